//! Locks that several servers vote on, so that no single one of them is trusted: N independent masters, of which a majority
//! must agree (Redlock), with what is known to be missing from it:
//!
//! - **A server that may have forgotten does not count.** Each notes, in a key, in which run it began to remember. After a flush, a
//!   start or a failover that key is missing or of another run: the server still takes part, so that a holder's key is
//!   everywhere, but its word does not count for the longest time of a lock ([`QuorumOptions::longest`]). Nothing that it has
//!   forgotten outlives that. A new quorum therefore grants nothing for as long: nobody can tell it from one that lost all.
//! - **Fences grow.** A grant's fence is the largest that any server of its majority gave, and is taught to a majority before
//!   the grant counts. Any later majority shares a server with that one, and a server gives only larger fences than it knows. (If
//!   that server has forgotten, its clock makes the fence larger, as long as the servers' clocks are apart by less than the
//!   longest time of a lock.)
//! - **A renewal mends.** A server that lost a lock, or never had it, is given it again at each renewal. While a majority has
//!   it this is safe, since nobody else can have a majority; below that, only a server that has granted no larger fence since is
//!   mended. A lock that no server knows any more is lost, never made anew.
//! - **A failed renewal takes nothing back.** It is tried again until the lock's time is over.
//!
//! Waiting is not fair: no server alone can hand a lock over. Waiters ask again after a growing pause with jitter, at most 25
//! times a second at first and about twice a second later.
//!
//! - `ask`: one question to all servers. `grant`: acquire and release. `keep`: renewals.

mod ask;
mod grant;
mod keep;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_backend::lock::LockNode;
use tidegate_backend::{BoxFuture, Error, ErrorKind, LockCapabilities, LockStore, Renewal, Renewed, Result};
use tidegate_core::lock::{
    Acquire, Acquired, AskId, Leave, LockName, LockToken, Look, MAX_TTL_MS, MIN_TTL_MS, Process,
};
use tokio::task::JoinHandle;

/// Fewest servers: of two, none may be missing.
pub const MIN_NODES: usize = 3;
/// Most servers.
pub const MAX_NODES: usize = 15;

/// How a quorum works; the same in every process that uses it.
#[derive(Debug, Clone, Copy)]
pub struct QuorumOptions {
    longest: Duration,
    within: Duration,
}

impl Default for QuorumOptions {
    /// Locks of up to 30 s; servers that answer within 100 ms.
    fn default() -> Self {
        Self { longest: Duration::from_secs(30), within: Duration::from_millis(100) }
    }
}

impl QuorumOptions {
    /// The longest time of a lock, and so how long a server that was started or flushed does not count. 100 ms to a day.
    #[must_use]
    pub fn longest(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }

    /// How long a server is waited for: much less than the time of a lock, more than its usual answer. 1 ms to 10 s.
    #[must_use]
    pub fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }
}

/// A store of locks over several servers: [`super::Locks::new`] takes it.
pub struct Quorum {
    nodes: Arc<Nodes>,
    process: Process,
    /// Visits the servers, so that one that came back begins to count.
    keeper: Mutex<Option<JoinHandle<()>>>,
}

struct Nodes {
    all: Vec<Arc<dyn LockNode>>,
    majority: usize,
    longest_ms: i64,
    within: Duration,
    endings: Mutex<Endings>,
    underway: Arc<ask::Underway>,
}

/// Locks that were given back while a renewal was on its way: what that mends must go, too. By token, or by the call that ended.
#[derive(Default)]
struct Endings {
    renewals: usize,
    ended: HashSet<(LockToken, Option<AskId>)>,
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quorum").field("servers", &self.nodes.all.len()).finish_non_exhaustive()
    }
}

impl Quorum {
    /// The locks that `nodes` vote on, 3 to 15 servers that share nothing; every process names the same ones. Its task runs in
    /// the runtime this is called in.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: too few or too many, or a time out of its bounds.
    pub fn new(nodes: Vec<Arc<dyn LockNode>>, options: QuorumOptions) -> Result<Self> {
        let refuse = |why: String| Err(Error::new(ErrorKind::Configuration, why));
        if !(MIN_NODES..=MAX_NODES).contains(&nodes.len()) {
            return refuse(format!("a quorum has {MIN_NODES} to {MAX_NODES} servers, not {}", nodes.len()));
        }
        let longest_ms = i64::try_from(options.longest.as_millis()).unwrap_or(i64::MAX);
        if !(MIN_TTL_MS..=MAX_TTL_MS).contains(&longest_ms) {
            return refuse(format!("the longest time of a lock is {MIN_TTL_MS} to {MAX_TTL_MS} ms, not {longest_ms}"));
        }
        if !(Duration::from_millis(1)..=Duration::from_secs(10)).contains(&options.within) {
            return refuse(format!("a server is waited for for 1 ms to 10 s, not {:?}", options.within));
        }
        let majority = nodes.len() / 2 + 1;
        let (endings, underway) = (Mutex::default(), Arc::default());
        let nodes = Arc::new(Nodes { all: nodes, majority, longest_ms, within: options.within, endings, underway });
        let keeper = Mutex::new(Some(tokio::spawn(visit(nodes.clone()))));
        Ok(Self { nodes, process: Process(uuid::Uuid::new_v4().as_u64_pair().0 >> 12), keeper })
    }

    fn take_keeper(&self) -> Option<JoinHandle<()>> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Quorum {
    fn drop(&mut self) {
        if let Some(keeper) = self.take_keeper() {
            keeper.abort();
        }
    }
}

/// Visits every server now and then, until it is aborted: from its first visit on a server's time runs.
async fn visit(nodes: Arc<Nodes>) {
    let pause = Duration::from_millis(nodes.longest_ms.unsigned_abs()) / 4;
    let pause = pause.clamp(Duration::from_millis(250), Duration::from_secs(10));
    loop {
        let longest = nodes.longest_ms;
        let mut answers = nodes.ask(move |node| async move { node.beat(longest).await });
        while let Some((at, answer)) = answers.recv().await {
            match answer {
                Ok(0) => {}
                Ok(ms) => {
                    tracing::info!(server = nodes.all[at].name(), ms, "a server of the quorum does not count yet")
                }
                Err(e) => tracing::debug!(server = nodes.all[at].name(), error = %e, "a server of the quorum is away"),
            }
        }
        tokio::time::sleep(pause).await;
    }
}

impl LockStore for Quorum {
    fn capabilities(&self) -> LockCapabilities {
        LockCapabilities { name: "quorum", shared: true, fair: false, longest_ms: self.nodes.longest_ms }
    }

    fn process(&self) -> Process {
        self.process
    }

    fn trouble(&self) -> Option<String> {
        let troubles: Vec<String> = self.nodes.all.iter().filter_map(|node| node.trouble()).collect();
        let left = self.nodes.all.len() - troubles.len();
        let of = self.nodes.all.len();
        (left < self.nodes.majority)
            .then(|| format!("{left} of {of} servers of the quorum are left: {}", troubles.join("; ")))
    }

    fn acquire<'a>(&'a self, name: &'a LockName, asked: &'a Acquire) -> BoxFuture<'a, Result<Acquired>> {
        Box::pin(self.nodes.acquire(name, asked))
    }

    fn release<'a>(&'a self, name: &'a LockName, token: &'a LockToken) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.nodes.give_back(name, token, None))
    }

    fn leave<'a>(
        &'a self,
        name: &'a LockName,
        token: &'a LockToken,
        ask: AskId,
        why: Leave,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.nodes.give_back(name, token, Some((ask, why))).await.map(drop) })
    }

    fn renew<'a>(&'a self, locks: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renewed>>> {
        Box::pin(self.nodes.renew(locks))
    }

    fn look<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Look>> {
        Box::pin(self.nodes.look(name))
    }

    fn replicated<'a>(
        &'a self,
        _: &'a LockName,
        _: &'a LockToken,
        _: usize,
        _: Duration,
    ) -> BoxFuture<'a, Result<usize>> {
        // A grant is a majority's.
        Box::pin(std::future::ready(Ok(self.nodes.majority - 1)))
    }

    fn sign<'a>(&'a self, _: &'a [LockName]) -> BoxFuture<'a, Result<()>> {
        // There is no line to give signs to.
        Box::pin(std::future::ready(Ok(())))
    }

    fn woken(&self) -> BoxFuture<'_, Vec<(LockName, LockToken)>> {
        Box::pin(std::future::pending())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Some(keeper) = self.take_keeper() {
                keeper.abort();
                // It was told to end; how it ended is of no interest.
                let _ = keeper.await;
            }
        })
    }
}
