//! Scripts that hold up everyone else for long. The server notes how long each took on the wall, the time in which another
//! program had its core included: so a control runs beside ours, which touches no key and always does the same.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidegate::bare_redis::BareAnswer;

use super::Bench;
use crate::commands::bench::line::Line;
use crate::commands::bench::redis::{Redis, broken};
use crate::failure::Result;

/// No script may take longer, microseconds.
const LONGEST: &str = "5000";
/// Most entries that are kept.
const KEPT: &str = "8192";
/// The control: how long it takes, how often it is made anew to find that out, and the pause after each call.
const CONTROL: &str = "-- control\nlocal n = 0\nfor i = 1, tonumber(ARGV[1]) do n = n + i % 7 end\nreturn n";
const CONTROL_TIME: Duration = Duration::from_micros(500);
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(4);
/// Turns of the control's loop that are timed.
const TURNS: u32 = 10_000;

/// Watches every command from now on.
pub struct Watch {
    /// Calls of scripts before.
    scripts: u64,
    turns: u32,
    controls: u64,
}

impl Watch {
    /// Begins.
    ///
    /// # Errors
    /// [`crate::failure::Failure::Work`]: the server lets nobody watch it.
    pub fn begin(bench: &Bench<'_>) -> Result<Self> {
        bench.on_redis(async |redis| {
            let turns = turns(redis).await?;
            redis.ask(&["CONFIG", "SET", "slowlog-log-slower-than", LONGEST]).await?;
            redis.ask(&["CONFIG", "SET", "slowlog-max-len", KEPT]).await?;
            redis.ask(&["SLOWLOG", "RESET"]).await?;
            Ok(Self { scripts: scripts(redis).await?, turns, controls: 0 })
        })
    }

    /// Runs the control beside `work`.
    ///
    /// # Errors
    /// What `work` and the control fail with.
    pub fn beside<T>(&mut self, bench: &Bench<'_>, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let (done, turns) = (AtomicBool::new(false), self.turns.to_string());
        std::thread::scope(|scope| {
            let control = scope.spawn(|| {
                bench.on_redis(async |redis| {
                    let mut calls = 0;
                    while !done.load(Ordering::Relaxed) {
                        redis.ask(&["EVAL", CONTROL, "0", &turns]).await?;
                        calls += 1;
                        tokio::time::sleep(PAUSE).await;
                    }
                    Ok(calls)
                })
            });
            let worked = work();
            done.store(true, Ordering::Relaxed);
            let calls = control.join().map_err(|_| broken("the control ended early"))?;
            self.controls += calls?;
            worked
        })
    }

    /// Prints what was seen.
    ///
    /// # Errors
    /// [`crate::failure::Failure::Work`].
    pub fn end(self, bench: &mut Bench<'_>) -> Result {
        let (ours, controls, calls) = bench.on_redis(async |redis| {
            let (mut ours, mut controls) = (0_u32, 0_u32);
            // What a script runs is noted by itself, too.
            for words in noted(redis).await?.into_iter().filter(|words| words[0].starts_with("EVAL")) {
                *(if words[1].starts_with("-- control") { &mut controls } else { &mut ours }) += 1;
            }
            Ok((ours, controls, scripts(redis).await? - self.scripts - self.controls))
        })?;
        let what = format!("scripts of these that took longer than 5 ms (SLOWLOG), of {calls}");
        bench.printer.line(Line::new(what, f64::from(ours), "scripts"))?;
        let what =
            format!("a loop of 0.5 ms on no key, beside the second of these: longer than 5 ms, of {}", self.controls);
        bench.printer.line(Line::new(what, f64::from(controls), "scripts"))
    }
}

/// The first two words of each command that was noted.
async fn noted(redis: &Redis) -> Result<Vec<[String; 2]>> {
    // Each is a number, an instant, a duration, the command's words and the client.
    let words = |entry: BareAnswer| {
        let mut words = entry.list().into_iter().nth(3)?.list().into_iter().map(|word| word.text());
        Some([words.next()?, words.next().unwrap_or_default()])
    };
    Ok(redis.ask(&["SLOWLOG", "GET", "-1"]).await?.list().into_iter().filter_map(words).collect())
}

/// How often a script was called.
async fn scripts(redis: &Redis) -> Result<u64> {
    let text = redis.ask(&["INFO", "commandstats"]).await?.text();
    let calls = |line: &str| -> Option<u64> {
        line.strip_prefix("cmdstat_eval")?.split_once(":calls=")?.1.split(',').next()?.parse().ok()
    };
    Ok(text.lines().filter_map(calls).sum())
}

/// Turns of the control's loop that take its time, by the fastest of some tries.
async fn turns(redis: &Redis) -> Result<u32> {
    let mut fastest = Duration::MAX;
    for turns in (0..TRIES).map(|_| TURNS.to_string()) {
        let began = Instant::now();
        redis.ask(&["EVAL", CONTROL, "0", &turns]).await?;
        fastest = fastest.min(began.elapsed());
    }
    Ok((f64::from(TURNS) * CONTROL_TIME.as_secs_f64() / fastest.as_secs_f64().max(f64::EPSILON)) as u32)
}
