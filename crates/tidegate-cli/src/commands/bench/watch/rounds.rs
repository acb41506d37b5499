//! `tidegate watch` once a second.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::commands::bench::line::Line;
use crate::commands::bench::on_redis::Bench;
use crate::commands::bench::process::{cpu_seconds, resident_bytes};
use crate::commands::bench::redis;
use crate::failure::Result;

/// How long it is looked at.
const TIME: Duration = Duration::from_secs(120);
/// Its start does not count.
const START: Duration = Duration::from_secs(3);

/// Measures.
pub fn measure(bench: &mut Bench<'_>) -> Result {
    let time = TIME.mul_f64(bench.scale.clamp(0.05, 10.0));
    let own = std::env::current_exe().map_err(redis::broken)?;
    let state = bench.folder().join("watch-state");
    let mut command = Command::new(own);
    command.args(["watch", "--json", "--interval", "1s", "--redis", &bench.url, "--state-file"]).arg(&state);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut child = child.map_err(redis::broken)?;
    std::thread::sleep(START);
    let server = || bench.on_redis(async |redis| redis.info("server", "process_id").await);
    let pid = u32::try_from(server()?).unwrap_or(0);
    let (began, before, served) = (Instant::now(), cpu_seconds(child.id()), cpu_seconds(pid));
    std::thread::sleep(time);
    let seconds = began.elapsed().as_secs_f64();
    let (used, served) = (cpu_seconds(child.id()) - before, cpu_seconds(pid) - served);
    let memory = resident_bytes(child.id()) as f64 / 1_048_576.0;
    let has_ended = child.try_wait().map_err(redis::broken)?;
    // It is gone with its folder otherwise.
    let _ = child.kill();
    let _ = child.wait();
    if let Some(status) = has_ended {
        return Err(redis::broken(format!("tidegate watch ended with {status}")));
    }
    bench.printer.line(Line::new("tidegate watch, a look a second", used / seconds * 100.0, "% of a core"))?;
    bench.printer.line(Line::new("  its memory", memory, "MiB"))?;
    bench.printer.line(Line::new("  the server, which does nothing else", served / seconds * 100.0, "% of a core"))
}
