//! `tidegate queue`: queues and their tasks on a server, for people.

use http::Method;
use serde_json::{Value, json};

use crate::client::{Client, ServerArgs, segment};
use crate::failure::{Failure, Result};
use crate::{output, runtime};

/// Items of one page; the contract's bound.
const PAGE: usize = 500;

/// Flags of `queue`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Show a queue in numbers, or all of them
    #[command(after_help = "Example:\n  tidegate queue stats mail --to http://127.0.0.1:8080")]
    Stats {
        /// The queue; left out, all
        queue: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// List tasks, or show one
    #[command(after_help = "Example:\n  tidegate queue list mail --state leased")]
    List {
        /// The queue
        queue: String,
        /// One task
        id: Option<String>,
        /// Only tasks that stand so
        #[arg(long, value_parser = ["pending", "leased", "dead"], conflicts_with = "id")]
        state: Option<String>,
        #[command(flatten)]
        most: Most,
        #[command(flatten)]
        common: Common,
    },
    /// List tasks that used up their attempts, the newest dead first
    #[command(after_help = "Example:\n  tidegate queue dead mail")]
    Dead {
        /// The queue
        queue: String,
        #[command(flatten)]
        most: Most,
        #[command(flatten)]
        common: Common,
    },
    /// Give a dead task a new life, or every one
    #[command(after_help = "Example:\n  tidegate queue requeue mail cart-17")]
    Requeue {
        /// The queue
        queue: String,
        /// The task; left out, every dead one
        id: Option<String>,
        /// Due after so many milliseconds
        #[arg(long, value_name = "MS", default_value_t = 0)]
        delay_ms: i64,
        #[command(flatten)]
        common: Common,
    },
    /// Remove a task in any state
    #[command(after_help = "Example:\n  tidegate queue cancel mail cart-17")]
    Cancel {
        /// The queue
        queue: String,
        /// The task
        id: String,
        #[command(flatten)]
        common: Common,
    },
    /// Remove dead tasks for good
    #[command(after_help = "Example:\n  tidegate queue purge mail --before 2026-11-01T00:00:00Z --yes")]
    Purge {
        /// The queue
        queue: String,
        /// Only tasks that died before this instant (RFC 3339)
        #[arg(long, value_name = "INSTANT")]
        before: Option<String>,
        /// Do it: what is removed is gone
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        common: Common,
    },
}

/// How much is listed.
#[derive(clap::Args)]
struct Most {
    /// At most so many; 0: all
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
}

/// What every one of them takes.
#[derive(clap::Args)]
struct Common {
    #[command(flatten)]
    server: ServerArgs,
    /// Print one JSON object (lists: one a line)
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub fn run(args: Args) -> Result {
    runtime::run(async {
        match args.what {
            What::Stats { queue: Some(queue), common } => {
                let client = common.server.client()?;
                let numbers: Value = client.get(&format!("/v1/queues/{}", segment(&queue))).await?;
                show(&common, &QUEUE_COLUMNS, vec![numbers])
            }
            What::Stats { queue: None, common } => {
                let client = common.server.client()?;
                let (queues, _) = listed(&client, "/v1/queues", "", 0).await?;
                show(&common, &QUEUE_COLUMNS, queues)
            }
            What::List { queue, id: Some(id), common, .. } => {
                let client = common.server.client()?;
                let task: Value = client.get(&task_path(&queue, &id)).await?;
                show(&common, &TASK_COLUMNS, vec![task])
            }
            What::List { queue, state, most, common, .. } => {
                let state = state.map_or_else(String::new, |state| format!("&state={state}"));
                list(&common, &format!("/v1/queues/{}/tasks", segment(&queue)), &state, most.limit).await
            }
            What::Dead { queue, most, common } => {
                list(&common, &format!("/v1/queues/{}/dead", segment(&queue)), "", most.limit).await
            }
            What::Requeue { queue, id, delay_ms, common } => requeue(&common, &queue, id, delay_ms).await,
            What::Cancel { queue, id, common } => {
                let client = common.server.client()?;
                let _: Value = client.send(Method::DELETE, &task_path(&queue, &id), None).await?;
                said(&common, &json!({"queue": queue, "id": id, "cancelled": true}), "cancelled 1 task")
            }
            What::Purge { queue, before, yes, common } => purge(&common, &queue, before.as_deref(), yes).await,
        }
    })
}

fn task_path(queue: &str, id: &str) -> String {
    format!("/v1/queues/{}/tasks/{}", segment(queue), segment(id))
}

/// Up to `limit` items of a list (0: all), and whether there are more.
async fn listed(client: &Client, path: &str, filter: &str, limit: usize) -> Result<(Vec<Value>, bool)> {
    let (mut items, mut cursor) = (Vec::new(), String::new());
    loop {
        let wanted = if limit == 0 { PAGE } else { PAGE.min(limit - items.len()) };
        let mut page: Value = client.get(&format!("{path}?limit={wanted}{filter}{cursor}")).await?;
        match page.get_mut("items").map(Value::take) {
            Some(Value::Array(some)) => items.extend(some),
            _ => return Err(Failure::Work(format!("the answer to GET {path} has no items; is it a Tidegate server?"))),
        }
        let Some(next) = page.get("next_cursor").and_then(Value::as_str) else { return Ok((items, false)) };
        if limit > 0 && items.len() >= limit {
            return Ok((items, true));
        }
        cursor = format!("&cursor={}", segment(next));
    }
}

async fn list(common: &Common, path: &str, filter: &str, limit: usize) -> Result {
    let client = common.server.client()?;
    let (tasks, more) = listed(&client, path, filter, limit).await?;
    let shown = tasks.len();
    show(common, &TASK_COLUMNS, tasks)?;
    if more {
        output::note(format!("the first {shown}; --limit 0 lists all"));
    }
    Ok(())
}

async fn requeue(common: &Common, queue: &str, id: Option<String>, delay_ms: i64) -> Result {
    let client = common.server.client()?;
    let body = json!({"delay_ms": delay_ms});
    let dead = format!("/v1/queues/{}/dead", segment(queue));
    if let Some(id) = id {
        let task: Value = client.post(&format!("{dead}/{}/requeue", segment(&id)), &body).await?;
        return show(common, &TASK_COLUMNS, vec![task]);
    }
    // The list is read first: what dies again meanwhile is not requeued for ever.
    let (tasks, _) = listed(&client, &dead, "", 0).await?;
    let mut requeued = 0_u64;
    for id in tasks.iter().filter_map(|task| task.get("id").and_then(Value::as_str)) {
        let path = format!("{dead}/{}/requeue", segment(id));
        let reply = client.call(Method::POST, &path, Some(&body)).await?;
        match reply.status {
            200 => requeued += 1,
            // Somebody else was faster.
            404 => {}
            _ => return Err(Failure::Work(format!("{requeued} were requeued; then POST {path}: {}", reply.problem()))),
        }
    }
    said(
        common,
        &json!({"queue": queue, "requeued": requeued}),
        &format!("requeued {}", output::count(requeued, "task")),
    )
}

async fn purge(common: &Common, queue: &str, before: Option<&str>, yes: bool) -> Result {
    if !yes {
        return Err(Failure::Usage(format!(
            "purge removes dead tasks of {queue} for good; look at them with `tidegate queue dead {queue}`, then repeat with --yes"
        )));
    }
    let client = common.server.client()?;
    let before = before.map_or_else(String::new, |before| format!("?before={}", segment(before)));
    let path = format!("/v1/queues/{}/dead{before}", segment(queue));
    let mut purged = 0_u64;
    loop {
        let answer: Value = client.send(Method::DELETE, &path, None).await?;
        purged += answer.get("purged").and_then(Value::as_u64).unwrap_or_default();
        if answer.get("more") != Some(&Value::Bool(true)) {
            break;
        }
    }
    said(common, &json!({"queue": queue, "purged": purged}), &format!("purged {}", output::count(purged, "task")))
}

const QUEUE_COLUMNS: [&str; 7] = ["queue", "pending", "due", "leased", "dead", "oldest_due_at", "lag_ms"];
const TASK_COLUMNS: [&str; 6] = ["id", "state", "due_at", "visible_at", "attempt", "last_error"];

/// Items as a table of these columns, or as JSON, one a line.
fn show(common: &Common, columns: &[&str], items: Vec<Value>) -> Result {
    if common.json {
        return items.iter().try_for_each(output::json);
    }
    let cell = |item: &Value, column: &str| match item.get(column) {
        Some(Value::String(text)) => one_line(text),
        None | Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
    };
    let head = columns.iter().map(|column| (*column).to_owned()).collect();
    let rows = items.iter().map(|item| columns.iter().map(|column| cell(item, column)).collect());
    output::raw(output::table(&std::iter::once(head).chain(rows).collect::<Vec<_>>()))
}

/// A text that cannot break the table, nor speak to the terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// What was done.
fn said(common: &Common, done: &Value, words: &str) -> Result {
    if common.json { output::json(done) } else { output::line(words) }
}
