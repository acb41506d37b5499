//! The process of [`super::process`]: a test that does nothing unless it is started as a child.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use tidegate::queue::{Answer, Delivery, NewTask, Queues};
use tokio::signal::unix::{SignalKind, signal};

use super::common::{id, mail, open_with};
use super::process::{SETUP, Setup};

#[test]
#[ignore = "a process of other tests"]
fn run() {
    let Ok(setup) = std::env::var(SETUP) else { return };
    let setup: Setup = serde_json::from_str(&setup).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(work(setup));
}

/// One line, in one write: other processes write into the same file, and `writeln!` writes a line in pieces, between which
/// theirs would come to stand.
fn append(mut log: &File, line: &str) {
    log.write_all(line.as_bytes()).unwrap();
}

struct Part {
    setup: Setup,
    queues: Queues,
    log: File,
}

impl Part {
    fn note(&self, what: &str, task: &Delivery<u64>) {
        let Delivery { id, attempt, receipt, due_at, .. } = task;
        let late = super::common::late_ms(&self.queues, *due_at);
        let line = format!("{} {what} {id} {attempt} {} {late}\n", self.setup.who, receipt.0);
        append(&self.log, &line);
    }

    async fn handle(&self, tasks: Vec<Delivery<u64>>) -> Vec<Answer> {
        tasks.iter().for_each(|task| self.note("begin", task));
        tokio::time::sleep(Duration::from_millis(self.setup.work_ms)).await;
        if self.setup.killer.is_some_and(|killer| tasks.iter().any(|task| task.payload == killer)) {
            std::process::abort();
        }
        tasks.iter().for_each(|task| self.note("end", task));
        vec![Answer::Done; tasks.len()]
    }
}

async fn work(setup: Setup) {
    let mut term = signal(SignalKind::terminate()).unwrap();
    let queues = open_with(&setup.url, setup.max_attempts).await;
    let queue = mail(&queues);
    for (n, delay_ms) in &setup.schedule {
        queue.schedule(NewTask::after(id(*n), Duration::from_millis(*delay_ms), *n)).await.unwrap();
    }
    let log = File::options().append(true).open(&setup.log).unwrap();
    append(&log, &format!("{} up - 0 0 0\n", setup.who));
    let (batch, concurrency, lease) = (setup.batch, setup.concurrency, Duration::from_millis(setup.lease_ms));
    let part = Arc::new(Part { setup, queues: queues.clone(), log: log.try_clone().unwrap() });
    let own = part.clone();
    let worker = (concurrency > 0).then(|| {
        let builder = queue.worker().concurrency(concurrency).lease(lease);
        let handler = move |tasks| {
            let own = own.clone();
            async move { own.handle(tasks).await }
        };
        builder.batches(batch, handler).unwrap()
    });
    term.recv().await;
    if let Some(worker) = worker {
        let report = worker.stop(Duration::from_millis(300)).await;
        append(&log, &format!("{} stopped - {} {} 0\n", part.setup.who, report.finished, report.handed_back));
    }
    queues.close().await;
}
