//! The loop that many teams write: every second the ten earliest of a sorted set; those that are due are removed and done.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::seen::Seen;
use super::way::{How, PAYLOAD, Stop, Task, Way};
use crate::commands::bench::process::now_us;
use crate::commands::bench::redis::{Redis, broken};
use crate::failure::Result;

/// Between two looks, and how many it takes.
const PAUSE: Duration = Duration::from_secs(1);
const LAST: &str = "9";

/// The loop's store.
pub struct Naive {
    redis: Arc<Redis>,
    name: String,
}

impl Naive {
    /// On the server at `url`.
    ///
    /// # Errors
    /// As [`Redis::open`].
    pub async fn open(url: &str, name: &str) -> Result<Self> {
        Ok(Self { redis: Arc::new(Redis::open(url, name).await?), name: name.to_owned() })
    }

    /// The sorted set and the hash of payloads. In a form that is erased with everything of this run.
    fn keys(&self, queue: &str) -> (String, String) {
        (format!("tg:{}:{queue}", self.name), format!("tg:{}:{queue}:p", self.name))
    }
}

/// One look: removes what is due among the ten earliest and does it.
async fn look(redis: &Redis, (set, payloads): &(String, String), how: How, seen: &Seen) -> Result {
    let earliest = redis.ask(&["ZRANGE", set, "0", LAST, "WITHSCORES"]).await?.list();
    let words: Vec<String> = earliest.into_iter().flat_map(flat).collect();
    for task in words.chunks_exact(2) {
        let [id, score] = task else { continue };
        let due_ms = score.parse::<f64>().unwrap_or(f64::MAX) as i64;
        if due_ms.max(0).unsigned_abs() * 1_000 > now_us() {
            continue;
        }
        // Whoever removes it has it. If this process dies now, nobody has.
        if redis.ask(&["ZREM", set, id]).await?.text() == "1" {
            redis.ask(&["HGET", payloads, id]).await?;
            redis.ask(&["HDEL", payloads, id]).await?;
            seen.note(id.parse().unwrap_or(u64::MAX), due_ms, 0);
            how.work().await;
        }
    }
    Ok(())
}

/// Members and scores come flat or in pairs, as the protocol's version has it.
fn flat(answer: tidegate::bare_redis::BareAnswer) -> Vec<String> {
    match answer {
        tidegate::bare_redis::BareAnswer::List(pair) => pair.iter().map(|part| part.text()).collect(),
        one => vec![one.text()],
    }
}

impl Way for Naive {
    fn schedule<'a>(&'a self, queue: &'a str, tasks: &'a [Task]) -> BoxFuture<'a, Result> {
        Box::pin(async move {
            let (set, payloads) = self.keys(queue);
            let words: Vec<(String, String)> =
                tasks.iter().map(|task| (task.due_ms.to_string(), task.n.to_string())).collect();
            let mut commands: Vec<Vec<&[u8]>> = Vec::with_capacity(words.len() * 2);
            for (due, id) in &words {
                commands.push(vec![b"ZADD", set.as_bytes(), due.as_bytes(), id.as_bytes()]);
                commands.push(vec![b"HSET", payloads.as_bytes(), id.as_bytes(), PAYLOAD.as_bytes()]);
            }
            self.redis.bare.ask_all(&commands).await.map(drop).map_err(broken)
        })
    }

    fn left<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let (set, _) = self.keys(queue);
            Ok(self.redis.ask(&["ZCARD", &set]).await?.text().parse().unwrap_or(0))
        })
    }

    fn work<'a>(&'a self, queue: &'a str, how: How, seen: Arc<Seen>) -> BoxFuture<'a, Result<Stop>> {
        Box::pin(async move {
            let (stop, mut stopped) = watch::channel(false);
            let (redis, keys) = (Arc::clone(&self.redis), self.keys(queue));
            let task = tokio::spawn(async move {
                let mut seconds = tokio::time::interval(PAUSE);
                loop {
                    tokio::select! {
                        _ = stopped.changed() => return,
                        _ = seconds.tick() => {}
                    }
                    // A look that failed is followed by the next.
                    let _ = look(&redis, &keys, how, &seen).await;
                }
            });
            let stop: Stop = Box::new(move || {
                Box::pin(async move {
                    stop.send_replace(true);
                    // It ends by itself; how is of no interest.
                    let _ = task.await;
                })
            });
            Ok(stop)
        })
    }
}
