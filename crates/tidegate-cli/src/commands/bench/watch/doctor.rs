//! `tidegate doctor` on a server with a million keys.

use std::process::{Command, Stdio};
use std::time::Instant;

use crate::commands::bench::line::Line;
use crate::commands::bench::on_redis::Bench;
use crate::commands::bench::redis;
use crate::failure::Result;
use crate::load::record::Record;

/// Keys at full scale; one of four expires.
const KEYS: u64 = 1_000_000;
/// How often it is asked.
const TIMES: usize = 20;
/// Keys that one script makes.
const STEP: u64 = 10_000;
const PLANT: &str = "for i = ARGV[2], ARGV[3] do
  if i % 4 == 0 then redis.call('SET', ARGV[1] .. ':session:' .. i, i, 'EX', 3600) else redis.call('SET', ARGV[1] .. ':user:' .. i, i) end
end";

/// Measures.
pub fn measure(bench: &mut Bench<'_>) -> Result {
    let keys = bench.scaled(KEYS, STEP);
    let prefix = format!("tg:{}", bench.name);
    bench.on_redis(async |redis| {
        for from in (0..keys).step_by(usize::try_from(STEP).unwrap_or(1)) {
            let to = (from + STEP).min(keys) - 1;
            redis.ask(&["EVAL", PLANT, "0", &prefix, &from.to_string(), &to.to_string()]).await?;
        }
        Ok(())
    })?;
    let own = std::env::current_exe().map_err(redis::broken)?;
    let mut times = Record::new();
    for _ in 0..TIMES {
        let mut command = Command::new(&own);
        command.args(["doctor", "--json", "--role", "cache", "--redis", &bench.url]);
        let began = Instant::now();
        let output = command.stdin(Stdio::null()).output().map_err(redis::broken)?;
        times.time(began.elapsed());
        // 1: something critical, as without a limit to its memory.
        if !matches!(output.status.code(), Some(0 | 1)) {
            return Err(redis::broken(String::from_utf8_lossy(&output.stderr).trim()));
        }
    }
    let text = format!("tidegate doctor, {keys} keys, from the start of the process to its end");
    bench.printer.line(Line::new(text, TIMES as f64, "times").times(times.percentiles()))
}
