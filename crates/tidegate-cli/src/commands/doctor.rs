//! `tidegate doctor`: how servers of Redis and Valkey are set up, against what they are used for.

use serde_json::{Value, json};
use tidegate::core::doctor::{Node, Topology};
use tidegate::doctor::{self, Applied, Change, Examined, Finding, Outcome, Purpose, Step, Unknown};

use super::watch::{instant, severity};
use crate::config::value;
use crate::failure::{Failure, Result};
use crate::{output, runtime};

/// Flags of `doctor`.
#[derive(clap::Args)]
pub struct Args {
    /// The server: redis://.., rediss://.., redis-sentinel://.., redis-cluster://..
    #[arg(long, value_name = "URL")]
    redis: String,
    /// What it is used for: what may not be lost, what can be loaded again, or both
    #[arg(long, value_parser = ["state", "cache", "shared"])]
    role: String,
    /// Set what can be set with CONFIG SET while the server is in use; without --yes it is only shown
    #[arg(long)]
    apply: bool,
    /// Yes, set it
    #[arg(long, requires = "apply")]
    yes: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub fn run(args: Args) -> Result {
    let role = Purpose::named(&args.role).unwrap_or_default();
    runtime::run(async {
        let examined = look(&args, role).await?;
        if !args.apply {
            return tell(&args, &examined, &[], None);
        }
        let steps = doctor::steps(&examined.report);
        if !args.yes {
            tell(&args, &examined, &[], Some(&steps)).or_else(found_is_no_matter)?;
            return if steps.is_empty() {
                ended(&examined, &[])
            } else {
                let many = output::count(steps.len() as u64, "setting");
                Err(Failure::Usage(format!("nothing was set; say --yes to set the {many} above")))
            };
        }
        let applied = doctor::apply(&args.redis, &steps).await.map_err(|e| failed(e, &args.redis))?;
        let now = if applied.is_empty() { examined } else { look(&args, role).await? };
        tell(&args, &now, &applied, None)
    })
}

/// What was found is printed; how it ends is said otherwise.
fn found_is_no_matter(failure: Failure) -> Result {
    if matches!(failure, Failure::Found) { Ok(()) } else { Err(failure) }
}

async fn look(args: &Args, role: Purpose) -> Result<Examined> {
    doctor::look(&args.redis, role).await.map_err(|e| failed(e, &args.redis))
}

fn failed(e: tidegate::Error, url: &str) -> Failure {
    match e {
        tidegate::Error::Redis(why) => Failure::Unreachable(format!("{}: {why}", value::without_password(url))),
        other => other.into(),
    }
}

fn ended(examined: &Examined, applied: &[Applied]) -> Result {
    let all_set = applied.iter().all(|done| done.outcome == Outcome::Set);
    if examined.report.is_critical() || !all_set { Err(Failure::Found) } else { Ok(()) }
}

fn tell(args: &Args, examined: &Examined, applied: &[Applied], would: Option<&[Step]>) -> Result {
    if args.json {
        output::json(&shape(examined, applied, would))?;
    } else {
        output::raw(words(examined, applied, would))?;
    }
    ended(examined, applied)
}

fn shape(examined: &Examined, applied: &[Applied], would: Option<&[Step]>) -> Value {
    let changes = |step: &Step, outcome: &str| {
        json!({
            "address": step.address,
            "name": step.change.name,
            "from": step.change.from,
            "to": step.change.to,
            "outcome": outcome,
        })
    };
    let mut settings: Vec<Value> = would.unwrap_or_default().iter().map(|step| changes(step, "not-set")).collect();
    settings.extend(applied.iter().map(|done| {
        let mut shape = changes(&done.step, done.outcome.name());
        if let Outcome::Refused(why) | Outcome::Failed(why) = &done.outcome {
            shape["why"] = why.as_str().into();
        } else {
            shape["lost_with_a_restart"] = true.into();
            shape["config_file"] = done.config_file.as_deref().into();
        }
        shape
    }));
    json!({
        "role": examined.seen.role.name(),
        "at": instant(examined.at),
        "servers": examined.seen.nodes.iter().map(server).collect::<Vec<_>>(),
        "findings": examined.report.findings.iter().map(|finding| one(finding, examined)).collect::<Vec<_>>(),
        "unknown": examined.report.unknown.iter().map(|unknown| json!({
            "rule": unknown.check.name(), "address": unknown.address, "why": unknown.why,
        })).collect::<Vec<_>>(),
        "settings": settings,
    })
}

/// In the shape of `/v1/redis/findings`, with `fix` and what can be set for it.
fn one(finding: &Finding, examined: &Examined) -> Value {
    let change = |change: &Change| json!({ "name": change.name, "from": change.from, "to": change.to });
    json!({
        "id": finding.id(),
        "rule": finding.check.name(),
        "severity": finding.severity.name(),
        "address": finding.address,
        "opened_at": instant(examined.at),
        "cause": finding.cause,
        "evidence": finding.evidence,
        "next_command": finding.fix,
        "fix": finding.fix,
        "risk": finding.risk,
        "settings": finding.changes.iter().map(change).collect::<Vec<_>>(),
    })
}

fn server(node: &Node) -> Value {
    let server = node.info.server();
    let said = |word: &str| node.info.text(word);
    json!({
        "address": node.address,
        "server": server.kind.name(),
        "version": (!server.version.is_empty()).then_some(server.version),
        "role": node.info.is_replica().map(|is| if is { "replica" } else { "master" }),
        "keys": node.key_count(),
        "used_bytes": node.info.number("used_memory"),
        "policy": said("maxmemory_policy"),
        "can_defragment": node.can_defrag,
        "config_file": said("config_file").filter(|file| !file.is_empty()),
    })
}

fn words(examined: &Examined, applied: &[Applied], would: Option<&[Step]>) -> String {
    let mut text = set(applied);
    for finding in &examined.report.findings {
        text.push_str(&format!(
            "{} {} at {}\n  {}\n  evidence: {}\n  fix: {}\n  risk: {}\n\n",
            severity(finding.severity),
            finding.check.name(),
            finding.address,
            finding.cause,
            numbers(finding),
            finding.fix,
            finding.risk
        ));
    }
    for (address, why, checks) in unknown(&examined.report.unknown) {
        text.push_str(&format!("not checked at {address}, since {why}: {}\n", checks.join(", ")));
    }
    for step in would.unwrap_or_default() {
        text.push_str(&format!("would set at {}\n", change(step)));
    }
    text.push_str(&summary(examined));
    text
}

/// The evidence on one line, prefixes on lines of their own; what the cause says in words is left to `--json`.
fn numbers(finding: &Finding) -> String {
    let simple = finding.evidence.iter().filter(|(name, value)| *name != "prefixes" && !value.is_object());
    // Flags are told as they are set, without what each covers.
    let flags = finding.evidence.get("flags").and_then(Value::as_object).into_iter().flatten();
    let flags = flags.map(|(name, flag)| (name.clone(), flag["on"].clone()));
    let mut text = tidegate::core::watch::evidence_words(
        &flags.chain(simple.map(|(name, value)| (name.clone(), value.clone()))).collect(),
    );
    let rows = finding.evidence.get("prefixes").and_then(Value::as_array).into_iter().flatten();
    for row in rows {
        let share = |name: &str| {
            let end = |at: usize| row[name][at].as_f64().unwrap_or_default() * 100.0;
            format!("{:.1} to {:.1} %", end(0), end(1))
        };
        let prefix = row["prefix"].as_str().filter(|prefix| !prefix.is_empty()).unwrap_or("(no prefix)");
        let ours = if row["ours"] == true { " (Tidegate's)" } else { "" };
        text.push_str(&format!(
            "\n    {prefix}{ours}: {} of the keys, of which {} never expire",
            share("of_keys"),
            share("without_ttl_between")
        ));
    }
    text
}

fn change(step: &Step) -> String {
    let shown = |value: &str| if value.is_empty() { "''".to_owned() } else { value.to_owned() };
    format!("{}: {} {} -> {}", step.address, step.change.name, shown(&step.change.from), shown(&step.change.to))
}

fn set(applied: &[Applied]) -> String {
    let mut text = String::new();
    for done in applied {
        let line = match &done.outcome {
            Outcome::Set => format!("set at {}\n", change(&done.step)),
            Outcome::Refused(why) => format!("not set at {}: {why}\n", change(&done.step)),
            Outcome::Failed(why) => format!("failed at {}: {why}\n", change(&done.step)),
        };
        text.push_str(&line);
    }
    let mut told = std::collections::BTreeSet::new();
    for done in applied.iter().filter(|done| done.outcome == Outcome::Set) {
        if told.insert(&done.step.address) {
            let how = match &done.config_file {
                Some(file) => format!("`CONFIG REWRITE` writes it to {file}"),
                None => "it has no configuration file: add it to how the server is started".to_owned(),
            };
            text.push_str(&format!("{}: lost with a restart until it is written down; {how}\n", done.step.address));
        }
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// What was not checked for the same reason in one line.
fn unknown(unknown: &[Unknown]) -> Vec<(&str, &str, Vec<&'static str>)> {
    let mut lines: Vec<(&str, &str, Vec<&'static str>)> = Vec::new();
    for one in unknown {
        let name = one.check.name();
        match lines.iter_mut().find(|(address, why, _)| *address == one.address && *why == one.why) {
            Some((_, _, checks)) => checks.push(name),
            None => lines.push((&one.address, &one.why, vec![name])),
        }
    }
    lines
}

fn summary(examined: &Examined) -> String {
    let of =
        |wanted: doctor::Severity| examined.report.findings.iter().filter(|finding| finding.severity == wanted).count();
    let servers = output::count(examined.seen.nodes.len() as u64, "server");
    let how = match examined.seen.topology {
        Topology::Single => "",
        Topology::Sentinel(_) => " under Sentinel",
        Topology::Cluster(_) => " of a Cluster",
    };
    let (critical, warning, info) =
        (of(doctor::Severity::Critical), of(doctor::Severity::Warning), of(doctor::Severity::Info));
    let role = examined.seen.role.name();
    if critical + warning + info == 0 {
        return format!("{servers}{how} as {role}: nothing wrong\n");
    }
    format!("{servers}{how} as {role}: {critical} critical, {warning} warning, {info} info\n")
}
