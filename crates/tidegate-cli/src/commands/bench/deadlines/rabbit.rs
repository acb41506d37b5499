//! A broker as it is used for delays: messages wait in one durable queue for each class of delays, whose time to live is the
//! class, and which gives what has expired to the queue of the workers (its dead-letter exchange). A delay between two classes
//! waits for the longer. Messages are persistent; a schedule is over when the broker has confirmed all.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::TryStreamExt;
use futures_util::future::BoxFuture;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
    ConfirmSelectOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use tokio::sync::Mutex;

use super::seen::Seen;
use super::way::{How, PAYLOAD, Stop, Task, Way};
use crate::commands::bench::process::now_us;
use crate::failure::{Failure, Result};

/// The classes, milliseconds; what is due already goes to the workers at once.
const CLASSES: [i64; 12] = [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 600_000, 3_600_000, 86_400_000];
/// Survives a restart of the broker.
const PERSISTENT: u8 = 2;
/// The consumer's name.
const WORKER: &str = "worker";

fn broken(e: impl std::fmt::Display) -> Failure {
    Failure::Work(format!("RabbitMQ: {e}"))
}

/// The broker.
pub struct Rabbit {
    connection: Connection,
    /// Of what is published.
    channel: Channel,
    declared: Mutex<HashSet<String>>,
}

impl Rabbit {
    /// The broker at `url`.
    ///
    /// # Errors
    /// [`Failure::Work`].
    pub async fn open(url: &str) -> Result<Self> {
        let connection = Connection::connect(url, ConnectionProperties::default()).await.map_err(broken)?;
        let channel = connection.create_channel().await.map_err(broken)?;
        channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(broken)?;
        Ok(Self { connection, channel, declared: Mutex::default() })
    }

    /// Declares the workers' queue and, for a class, the queue in which messages wait; its name.
    async fn declare(&self, queue: &str, class: Option<i64>) -> Result<String> {
        let name = class.map_or_else(|| queue.to_owned(), |class| format!("{queue}.wait.{class}"));
        let mut declared = self.declared.lock().await;
        if declared.contains(&name) {
            return Ok(name);
        }
        let mut arguments = FieldTable::default();
        if let Some(class) = class {
            arguments.insert("x-message-ttl".into(), AMQPValue::LongLongInt(class));
            arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString("".into()));
            arguments.insert("x-dead-letter-routing-key".into(), AMQPValue::LongString(queue.into()));
        }
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        self.channel.queue_declare(name.as_str().into(), options, arguments).await.map_err(broken)?;
        declared.insert(name.clone());
        Ok(name)
    }
}

/// Number and instant, and as many bytes as every other way's payload has.
fn body(task: &Task) -> String {
    format!("{:<width$}", format!("{} {} ", task.n, task.due_ms), width = PAYLOAD.len() + 2)
}

fn task(body: &[u8]) -> Option<Task> {
    let mut words = std::str::from_utf8(body).ok()?.split_ascii_whitespace();
    Some(Task { n: words.next()?.parse().ok()?, due_ms: words.next()?.parse().ok()? })
}

impl Way for Rabbit {
    fn schedule<'a>(&'a self, queue: &'a str, tasks: &'a [Task]) -> BoxFuture<'a, Result> {
        Box::pin(async move {
            self.declare(queue, None).await?;
            let now = i64::try_from(now_us() / 1_000).unwrap_or(i64::MAX);
            let mut confirms = Vec::with_capacity(tasks.len());
            for task in tasks {
                let delay = task.due_ms - now;
                let class = CLASSES.into_iter().find(|class| *class >= delay).or(CLASSES.last().copied());
                let queue = self.declare(queue, class.filter(|_| delay > 0)).await?;
                let properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
                let options = BasicPublishOptions::default();
                let body = body(task);
                let sent =
                    self.channel.basic_publish("".into(), queue.into(), options, body.as_bytes(), properties).await;
                confirms.push(sent.map_err(broken)?);
            }
            for confirm in confirms {
                if !confirm.await.map_err(broken)?.is_ack() {
                    return Err(broken("a message was not confirmed"));
                }
            }
            Ok(())
        })
    }

    fn work<'a>(&'a self, queue: &'a str, how: How, seen: Arc<Seen>) -> BoxFuture<'a, Result<Stop>> {
        Box::pin(async move {
            self.declare(queue, None).await?;
            let channel = self.connection.create_channel().await.map_err(broken)?;
            let prefetch = u16::try_from(how.concurrency).unwrap_or(u16::MAX);
            channel.basic_qos(prefetch, BasicQosOptions::default()).await.map_err(broken)?;
            let consumer = channel.basic_consume(
                queue.into(),
                WORKER.into(),
                BasicConsumeOptions::default(),
                FieldTable::default(),
            );
            let consumer = consumer.await.map_err(broken)?;
            let working = tokio::spawn(async move {
                let handled = consumer.map_err(broken).try_for_each_concurrent(how.concurrency, |delivery| {
                    if let Some(Task { n, due_ms }) = task(&delivery.data) {
                        seen.note(n, due_ms, 0);
                    }
                    async move {
                        how.work().await;
                        delivery.ack(BasicAckOptions::default()).await.map(drop).map_err(broken)
                    }
                });
                // A broker that was killed is seen by what did not come.
                let _ = handled.await;
            });
            let stop: Stop = Box::new(move || {
                Box::pin(async move {
                    // The broker may be gone.
                    let _ = channel.basic_cancel(WORKER.into(), BasicCancelOptions::default()).await;
                    working.abort();
                    let _ = working.await;
                })
            });
            Ok(stop)
        })
    }
}
