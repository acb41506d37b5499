//! What processes tell of their own reads.

use std::time::Duration;

use redis::Value;
use tidegate_backend::Result;
use tidegate_core::hot::{self, WINDOW_MS};

use super::{HotKey, HotKeysOptions, Report, Source};
use crate::bigkeys::purpose;
use crate::bigkeys::server::Server;
use crate::connect::{Call, Connector, RedisResult};
use crate::keys::Keys;
use crate::{reply, scripts};

/// Processes that are heard of a server.
const MAX_PROCESSES: usize = 256;

/// Keeps the report of a process for `keep`.
pub(crate) async fn tell(connector: &Connector, process: &[u8; 16], report: Vec<u8>, keep: Duration) -> Result<()> {
    let process = hex(process);
    let keys = vec![Keys::hot_processes().to_vec(), Keys::hot_report(&process)];
    let keep = keep.as_millis().max(1).to_string().into_bytes();
    let arguments = vec![process, report, keep, MAX_PROCESSES.to_string().into_bytes()];
    connector.one(Call::script(&scripts::HOT_TELL, keys, arguments)).await.map(drop)
}

fn hex(id: &[u8; 16]) -> Vec<u8> {
    id.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| b"0123456789abcdef"[usize::from(digit)]).collect()
}

/// What the processes that use these servers read most.
pub(super) async fn look(servers: &mut [Server], options: &HotKeysOptions, mut notes: Vec<String>) -> Result<Report> {
    let mut reports = Vec::new();
    let mut forbidden = false;
    for server in servers {
        match of(server).await? {
            Some(told) => reports.extend(told),
            None => {
                forbidden = true;
                notes.push(format!(
                    "{}: what processes tell may not be read; give the user +zrange +get on the keys {{tg::hot}}:*",
                    server.address
                ));
            }
        }
    }
    let windows = u64::from(options.seconds).div_ceil(WINDOW_MS.unsigned_abs() / 1_000);
    let seconds = (windows * WINDOW_MS.unsigned_abs()) as f64 / 1_000.0;
    let merged = hot::merge(&reports, usize::try_from(windows).unwrap_or(hot::WINDOWS), options.top);
    notes.push(match reports.len() {
        0 if forbidden => "nothing could be read of what processes tell".to_owned(),
        0 => "no process tells what it reads here: those that use Tidegate's cache on this server do, every 2 s while they \
              read"
            .to_owned(),
        1 => "told by 1 process of what it read, copies in process included".to_owned(),
        many => format!("told by {many} processes of what they read, copies in process included"),
    });
    let item = |hot: hot::HotName<Vec<u8>>| HotKey {
        share: hot.reads as f64 / merged.reads.max(1) as f64,
        per_second: Some(hot.reads as f64 / seconds),
        error: Some(hot.over as f64 / seconds),
        cpu_us_per_second: None,
        purpose: purpose(&hot.name),
        name: hot.name,
    };
    let items = merged.hottest.into_iter().map(item).collect();
    Ok(Report { source: Source::Sketch, seconds, processes: reports.len(), items, notes })
}

/// The reports that a server keeps; none where another of its Cluster keeps them. `None`: they may not be read.
async fn of(server: &mut Server) -> Result<Option<Vec<hot::Report<Vec<u8>>>>> {
    let is_forbidden = |answer: &RedisResult<Value>| answer.as_ref().is_err_and(|e| e.code() == Some("NOPERM"));
    let mut who = redis::cmd("ZRANGE");
    who.arg(Keys::hot_processes()).arg(0).arg(MAX_PROCESSES - 1);
    let answers = server.all(&[who]).await.map_err(|e| server.unavailable(e))?;
    if answers.iter().any(is_forbidden) {
        return Ok(None);
    }
    let Some(Ok(Value::Array(processes))) = answers.into_iter().next() else { return Ok(Some(Vec::new())) };
    let reports = processes.iter().filter_map(|process| reply::bytes(process).ok()).map(|process| {
        let mut get = redis::cmd("GET");
        get.arg(Keys::hot_report(process));
        get
    });
    let reports: Vec<_> = reports.collect();
    if reports.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let answers = server.all(&reports).await.map_err(|e| server.unavailable(e))?;
    if answers.iter().any(is_forbidden) {
        return Ok(None);
    }
    // What has just ended is no report; nor is that of a newer binary, which another look may be able to read.
    let report = |answer: &Value| hot::Report::decode(reply::bytes(answer).ok()?);
    Ok(Some(answers.iter().flatten().filter_map(report).collect()))
}
