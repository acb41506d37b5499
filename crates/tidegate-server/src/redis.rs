//! What `/v1/redis` shows and does: the watch beside this server, and one look at big keys at a time.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate::big_keys::{self, BigKeysOptions, Progress, Report, Route};
use tidegate::core::Millis;
use tidegate::hot_keys::{self, HotKeysOptions};
use tidegate::watch::Watch;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// How long a look at big keys may take; SCAN ends there with what it has.
const DEADLINE: Duration = Duration::from_secs(600);

/// How long a look at hot keys is given to whoever asks: processes tell what they read as often.
const HOT_FOR: Duration = Duration::from_secs(1);

/// The watch that runs beside a server, and the servers that it looks at.
#[derive(Clone)]
pub struct RedisWatch {
    /// The watch; whoever started it stops it.
    pub watch: Arc<Watch>,
    /// The servers by their URLs, for a look at their keys.
    pub urls: Vec<String>,
    /// The authority (PEM) that TLS trusts instead of the system's.
    pub authority: Option<Vec<u8>>,
}

/// Without the URLs: they hold passwords.
impl fmt::Debug for RedisWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisWatch").field("servers", &self.urls.len()).finish_non_exhaustive()
    }
}

/// The watch, and the last look at big keys. Dropped, a look under way ends.
pub(crate) struct Redis {
    pub(crate) watch: Arc<Watch>,
    urls: Vec<String>,
    authority: Option<Vec<u8>>,
    scan: Arc<Mutex<Scan>>,
    running: Mutex<Option<JoinHandle<()>>>,
    /// The last look at hot keys, and when it ended. Held while one is under way.
    hot: tokio::sync::Mutex<Option<(Instant, Arc<hot_keys::Report>)>>,
}

/// A look at big keys.
#[derive(Default)]
pub(crate) struct Scan {
    /// Its number, and when it was begun; `None` before the first.
    pub(crate) begun: Option<(Uuid, Millis)>,
    /// How far it is.
    pub(crate) progress: Arc<Progress>,
    /// What came of it; `None` while it runs. A failure is what to tell of it.
    pub(crate) ended: Option<(Millis, Result<Arc<Report>, String>)>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Redis {
    pub(crate) fn new(RedisWatch { watch, urls, authority }: RedisWatch) -> Self {
        Self {
            watch,
            urls,
            authority,
            scan: Arc::default(),
            running: Mutex::new(None),
            hot: tokio::sync::Mutex::default(),
        }
    }

    /// The last look at big keys, for as long as `show` takes.
    pub(crate) fn scan<T>(&self, show: impl FnOnce(&Scan) -> T) -> T {
        show(&locked(&self.scan))
    }

    /// The hot keys of the watched servers, or why they cannot be looked at. One look at a time; who asks meanwhile, or soon after,
    /// gets the same.
    pub(crate) async fn hot_keys(&self) -> tidegate::Result<Arc<hot_keys::Report>> {
        let mut last = self.hot.lock().await;
        if let Some((_, report)) = last.as_ref().filter(|(at, _)| at.elapsed() < HOT_FOR) {
            return Ok(Arc::clone(report));
        }
        let options = HotKeysOptions::default();
        let report = Arc::new(hot_keys::look_at_all(&self.urls, self.authority.as_deref(), &options).await?);
        *last = Some((Instant::now(), Arc::clone(&report)));
        Ok(report)
    }

    /// Whether there can be a look at big keys by `route`, as far as that is known at once.
    pub(crate) async fn allow(&self, route: Route) -> tidegate::Result<()> {
        big_keys::allow(&self.urls, self.authority.as_deref(), route).await
    }

    /// Begins a look at big keys, which ends at `stopped`; `None`: one is under way.
    pub(crate) fn begin(&self, route: Route, top: usize, stopped: watch::Receiver<bool>) -> Option<Uuid> {
        let id = Uuid::now_v7();
        let progress = {
            let mut scan = locked(&self.scan);
            if scan.begun.is_some() && scan.ended.is_none() {
                return None;
            }
            *scan = Scan { begun: Some((id, now())), ..Scan::default() };
            Arc::clone(&scan.progress)
        };
        let options = BigKeysOptions { top, route, deadline: DEADLINE, progress, ..BigKeysOptions::default() };
        let (urls, authority, scan) = (self.urls.clone(), self.authority.clone(), Arc::clone(&self.scan));
        let look = tokio::spawn(async move {
            let ended = look(&urls, authority.as_deref(), &options, stopped).await;
            if let Err(why) = &ended {
                tracing::warn!("the look at big keys failed: {why}");
            }
            locked(&scan).ended = Some((now(), ended.map(Arc::new)));
        });
        *locked(&self.running) = Some(look);
        Some(id)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Some(running) = &*locked(&self.running) {
            running.abort();
        }
    }
}

fn now() -> Millis {
    Millis(jiff::Timestamp::now().as_millisecond())
}

async fn look(
    urls: &[String],
    authority: Option<&[u8]>,
    options: &BigKeysOptions,
    mut stopped: watch::Receiver<bool>,
) -> Result<Report, String> {
    tokio::select! {
        report = big_keys::look_at_all(urls, authority, options) => report.map_err(|e| e.to_string()),
        // Also when the server is gone.
        _ = stopped.wait_for(|stopped| *stopped) => Err("the server was stopped".to_owned()),
    }
}
