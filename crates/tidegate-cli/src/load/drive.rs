//! The two ways to put a server under load.
//!
//! A closed loop sends the next request when the last one is answered: it finds the highest rate. An open loop sends
//! at a fixed rate whatever the answers do, and times each request from the instant it should have started, so that a
//! stall is charged to every request it held up (no coordinated omission).

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Uri};

use super::conn::{Answer, Conn};
use super::record::Record;
use super::target::Target;

/// Makes the request with this number: path and body of a `POST`.
pub type Job = dyn Fn(u64) -> (Uri, Bytes) + Send + Sync;

/// How requests are sent.
#[derive(Debug, Clone, Copy)]
pub enum Pace {
    /// This many, as fast as answers come.
    Closed {
        /// Requests in all.
        requests: u64,
    },
    /// At a rate.
    Open {
        /// Requests a second.
        per_second: f64,
        /// Requests in all.
        requests: u64,
    },
}

/// What a run measured.
pub struct Run {
    /// Every answer.
    pub record: Record,
    /// From the first request's start to the last answer.
    pub took: Duration,
}

impl Run {
    /// Answers with `status` a second.
    #[must_use]
    pub fn rate(&self, status: u16) -> f64 {
        self.record.count(status) as f64 / self.took.as_secs_f64().max(f64::EPSILON)
    }
}

/// Sends requests over `connections` and waits for every answer. `first` numbers the first request.
///
/// # Errors
/// When a worker died, which is a fault of this program.
pub async fn run(target: &Target, connections: usize, pace: Pace, first: u64, job: Arc<Job>) -> io::Result<Run> {
    let requests = match pace {
        Pace::Closed { requests } | Pace::Open { requests, .. } => requests,
    };
    let target = Arc::new(target.clone());
    let record = Arc::new(Mutex::new(Record::new()));
    let next = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let workers: Vec<_> = (0..connections.max(1))
        .map(|_| {
            let (mut conn, record, next, job) =
                (Conn::new(Arc::clone(&target)), Arc::clone(&record), Arc::clone(&next), Arc::clone(&job));
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= requests {
                        return;
                    }
                    let intended = intended(pace, start, number).await;
                    let (path, body) = job(first + number);
                    let status = status_of(&conn.call(Method::POST, &path, Some(body)).await);
                    record.lock().unwrap_or_else(PoisonError::into_inner).add(status, intended.elapsed());
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.map_err(io::Error::other)?;
    }
    let record = std::mem::replace(&mut *record.lock().unwrap_or_else(PoisonError::into_inner), Record::new());
    Ok(Run { record, took: start.elapsed() })
}

/// Waits until request `number` should start, and gives that instant.
async fn intended(pace: Pace, start: Instant, number: u64) -> Instant {
    match pace {
        Pace::Closed { .. } => Instant::now(),
        Pace::Open { per_second, .. } => {
            let at = start + Duration::from_secs_f64(number as f64 / per_second);
            tokio::time::sleep_until(at.into()).await;
            at
        }
    }
}

fn status_of(answered: &io::Result<Answer>) -> u16 {
    answered.as_ref().map_or(0, |answer| answer.status)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::Response;
    use http_body_util::Full;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::net::TcpListener;

    use super::*;

    /// A server that stalls on its first request and answers `201` to all.
    async fn stalling(stall: Duration) -> Target {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target::local(listener.local_addr().unwrap()).unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let first = AtomicU64::new(0);
            let answer = service_fn(|_| async {
                if first.fetch_add(1, Ordering::Relaxed) == 0 {
                    tokio::time::sleep(stall).await;
                }
                Ok::<_, Infallible>(Response::builder().status(201).body(Full::new(Bytes::from("{}"))).unwrap())
            });
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await.unwrap();
        });
        target
    }

    #[tokio::test]
    async fn a_stall_is_charged_to_every_request_it_held_up() {
        let job: Arc<Job> = Arc::new(|_| (Uri::from_static("/"), Bytes::from("{}")));
        for (pace, held_up) in
            [(Pace::Closed { requests: 40 }, false), (Pace::Open { per_second: 100.0, requests: 40 }, true)]
        {
            let target = stalling(Duration::from_millis(600)).await;
            let run = run(&target, 1, pace, 0, Arc::clone(&job)).await.unwrap();
            let p = run.record.percentiles();
            assert_eq!(run.record.count(201), 40);
            assert!(p.max >= 590.0, "{p:?}");
            assert_eq!(p.p50 > 150.0, held_up, "{p:?}");
        }
    }
}
