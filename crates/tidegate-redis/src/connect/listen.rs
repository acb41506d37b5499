//! Subscriptions, on a link of their own that comes back by itself.

use std::time::Duration;

use redis::aio::{MultiplexedConnection, SendError};
use redis::{PushInfo, PushKind, Value};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::link::{self, RedisResult};
use super::options::RedisOptions;

/// Messages that may wait to be read; when more do, some were missed and the reader is told so.
const BUFFER: usize = 4_096;
/// A silent link is tried this often, and once more at once when it does not answer.
const PING: Duration = Duration::from_secs(3);
/// The first pause between two attempts; it doubles up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(500);

/// What a listener hears.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A message on its channel.
    Message(Vec<u8>),
    /// It listens from here on; messages before may have been missed.
    Gap,
}

/// Listens on one channel until it is dropped or closed.
pub(crate) struct Listener {
    heard: mpsc::Receiver<Heard>,
    trouble: watch::Receiver<Option<String>>,
    task: JoinHandle<()>,
}

impl Listener {
    pub(crate) fn start(options: RedisOptions, channel: String) -> Self {
        let (sender, heard) = mpsc::channel(BUFFER);
        let (told, trouble) = watch::channel(Some("not connected yet".to_owned()));
        let task = tokio::spawn(run(options, channel, sender, told));
        Self { heard, trouble, task }
    }

    /// The next that is heard; never ends.
    pub(crate) async fn next(&mut self) -> Heard {
        match self.heard.recv().await {
            Some(heard) => heard,
            // The task has ended: nothing will be heard any more.
            None => std::future::pending().await,
        }
    }

    /// What is heard already.
    pub(crate) fn try_next(&mut self) -> Option<Heard> {
        self.heard.try_recv().ok()
    }

    /// Why it hears nothing, while it does not.
    pub(crate) fn trouble(&self) -> watch::Receiver<Option<String>> {
        self.trouble.clone()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(
    options: RedisOptions,
    channel: String,
    heard: mpsc::Sender<Heard>,
    trouble: watch::Sender<Option<String>>,
) {
    let mut pause = SHORTEST;
    for turn in 0_usize.. {
        let (lost, mut cut) = watch::channel(false);
        match subscribe(&options, &channel, turn, &heard, lost).await {
            Ok(connection) => {
                trouble.send_replace(None);
                pause = SHORTEST;
                if heard.send(Heard::Gap).await.is_err() {
                    return;
                }
                let why = until_lost(connection, &mut cut).await;
                trouble.send_replace(Some(why));
            }
            Err(e) => {
                trouble.send_replace(Some(format!("cannot subscribe: {e}")));
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
}

/// Subscribes on one of the servers, another at each turn.
async fn subscribe(
    options: &RedisOptions,
    channel: &str,
    turn: usize,
    heard: &mpsc::Sender<Heard>,
    lost: watch::Sender<bool>,
) -> RedisResult<MultiplexedConnection> {
    let hosts = link::listening_hosts(options).await?;
    let host = &hosts[turn % hosts.len()];
    let sender = heard.clone();
    let push = move |info: PushInfo| {
        let told = match info.kind {
            PushKind::Message => {
                let Some(Value::BulkString(bytes)) = info.data.into_iter().nth(1) else { return Ok(()) };
                sender.try_send(Heard::Message(bytes)).is_ok()
            }
            PushKind::Disconnection => false,
            _ => true,
        };
        if !told {
            // Cut off, or too slow a reader: the link is made anew, which tells of the gap.
            lost.send_replace(true);
        }
        Ok::<(), SendError>(())
    };
    let connecting = async {
        let mut connection = link::connect_for_pushes(options, host, push).await?;
        connection.subscribe(channel).await?;
        Ok(connection)
    };
    let limit = options.connect_timeout + options.response_timeout;
    tokio::time::timeout(limit, connecting).await.map_err(|_| link::timed_out())?
}

/// Keeps asking whether the link is alive: one whose server froze tells nothing by itself.
async fn until_lost(mut connection: MultiplexedConnection, cut: &mut watch::Receiver<bool>) -> String {
    let mut silences = 0;
    loop {
        let pause = if silences == 0 { PING } else { Duration::ZERO };
        if tokio::time::timeout(pause, cut.wait_for(|cut| *cut)).await.is_ok() {
            return "the connection is lost".to_owned();
        }
        match redis::cmd("PING").query_async::<Value>(&mut connection).await {
            Ok(_) => silences = 0,
            Err(e) if e.is_timeout() && silences < 1 => silences += 1,
            Err(e) => return format!("the connection is lost ({e})"),
        }
    }
}
