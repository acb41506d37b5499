//! What processes hear of each other.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tidegate_backend::cache::CacheNotice;
use tidegate_core::cache::Op;
use tokio::task::JoinHandle;

use super::*;

/// Nothing takes longer on a store that works.
const SOON: Duration = Duration::from_secs(10);
/// What is not heard by then was not told.
const QUIET: Duration = Duration::from_millis(200);

/// A task that hears all the time, as a cache's does.
pub(super) struct Listener {
    pub(super) store: Arc<dyn CacheStore>,
    heard: Arc<Mutex<Vec<CacheNotice>>>,
    task: JoinHandle<()>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Listener {
    /// Another process that hears what `s.store` tells: both ways have been tried.
    pub(super) async fn start(s: &Subject) -> Self {
        let store = s.harness.another().await;
        let heard = Arc::<Mutex<Vec<CacheNotice>>>::default();
        let task = tokio::spawn({
            let (store, heard) = (store.clone(), heard.clone());
            async move {
                loop {
                    let more = store.heard().await;
                    heard.lock().unwrap_or_else(PoisonError::into_inner).extend(more);
                }
            }
        });
        let listener = Self { store, heard, task };
        let probe = CacheKey { namespace: "probe".into(), ..key("probe") };
        let begun = Instant::now();
        while !listener.heard_all(&[woken(&probe), cleared("probe")], QUIET).await {
            assert!(begun.elapsed() < SOON, "a new process hears nothing: {:?}", listener.so_far());
            wait_for_a_lease(s, &probe).await;
            assert_eq!(s.apply(&probe, Op::Release { holder: by_lease(1) }).await, Reply::Held);
            s.store.tell(&[cleared("probe")]).await.expect("the store answers");
        }
        listener
    }

    pub(super) fn so_far(&self) -> Vec<CacheNotice> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let of_a_test = |notice: &&CacheNotice| namespace(notice).is_none_or(|namespace| namespace != "probe");
        heard.iter().filter(of_a_test).cloned().collect()
    }

    /// What was heard since the last call.
    pub(super) fn drain(&self) -> Vec<CacheNotice> {
        let all = self.so_far();
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clear();
        all
    }

    /// Whether all of these are heard within `time`.
    pub(super) async fn heard_all(&self, notices: &[CacheNotice], time: Duration) -> bool {
        let begun = Instant::now();
        loop {
            let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if notices.iter().all(|notice| heard.contains(notice)) {
                return true;
            }
            if begun.elapsed() > time {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

fn namespace(notice: &CacheNotice) -> Option<&str> {
    match notice {
        CacheNotice::Invalidated { namespace, .. }
        | CacheNotice::Tag { namespace, .. }
        | CacheNotice::Cleared { namespace }
        | CacheNotice::Woken { namespace, .. } => Some(namespace),
        CacheNotice::Gap | CacheNotice::Lost => None,
    }
}

pub(super) fn woken(key: &CacheKey) -> CacheNotice {
    CacheNotice::Woken { namespace: key.namespace.clone(), key: key.key.clone() }
}

fn cleared(namespace: &str) -> CacheNotice {
    CacheNotice::Cleared { namespace: namespace.into() }
}

fn invalidated(name: &str) -> CacheNotice {
    CacheNotice::Invalidated { namespace: "ns".into(), key: key(name).key }
}

/// Leaves a lease of `id(1)` that `id(2)` waits for.
async fn wait_for_a_lease(s: &Subject, k: &CacheKey) {
    assert!(matches!(s.apply(k, lease(1)).await, Reply::Granted(_)));
    assert_eq!(s.apply(k, lease(2)).await, Reply::Present(waited_lease(1)));
}

/// However a lease ends that was waited for, other processes look again; nobody is woken when nobody waits, nor by what
/// was lost. (An invalidation without a floor may be a plain delete, which wakes nobody: whoever invalidates tells.)
pub async fn whoever_waits_is_woken(open: Open<'_>) {
    let s = Subject::open(open).await;
    let listener = Listener::start(&s).await;
    let ends = |k: &CacheKey| {
        [
            ("fill", fill(by_lease(1), &value(k, 1, None))),
            ("absence", fill(by_lease(1), &absence(k, 1, None))),
            ("release", Op::Release { holder: by_lease(1) }),
            ("fail", Op::Fail { holder: by_lease(1), error: error(1), for_ms: LONG }),
            ("put", put(&value(k, 3, Some(1)))),
            ("invalidate", invalidate(Some(1))),
        ]
    };
    let many = ends(&key("k")).len();
    let mut told = Vec::new();
    for n in 0..many {
        let (name, _) = ends(&key("k"))[n].clone();
        let (alone, waited) = (key(&format!("{name} alone")), key(&format!("{name} waited for")));
        assert_eq!(s.apply(&alone, lease(1)).await, GRANTED);
        assert_eq!(s.apply(&alone, ends(&alone)[n].1.clone()).await, Reply::Held);
        wait_for_a_lease(&s, &waited).await;
        let lost = Op::Release { holder: by_lease(2) };
        assert_eq!(s.apply(&waited, lost).await, Reply::Lost);
        tokio::time::sleep(QUIET / 10).await;
        assert!(!listener.so_far().contains(&woken(&waited)), "it is not over: {name}");
        assert_eq!(s.apply(&waited, ends(&waited)[n].1.clone()).await, Reply::Held);
        told.push(woken(&waited));
    }
    // Another schema's lease is waited for: whoever ends it wakes.
    for (name, end) in [("put schema", put(&value(&key("x"), 3, Some(1)))), ("floor schema", invalidate(Some(1)))] {
        let k = key(name);
        wait_for_a_lease(&s, &of_schema(&k, 2)).await;
        assert_eq!(s.apply(&k, end).await, Reply::Held);
        told.push(woken(&k));
    }
    assert!(listener.heard_all(&told, SOON).await, "{told:?}\nheard {:?}", listener.so_far());
    tokio::time::sleep(QUIET).await;
    let extra: Vec<_> = listener.so_far().into_iter().filter(|notice| !told.contains(notice)).collect();
    assert!(extra.is_empty(), "{extra:?}");
}

/// What one process tells another hears: all of it, counters of a tag in their order, and nothing about a gap.
pub async fn what_is_told_is_heard(open: Open<'_>) {
    let s = Subject::open(open).await;
    let listener = Listener::start(&s).await;
    let names: Vec<_> = (0..1_000).map(|n| format!("key {n} {{}}\u{0}\r\n")).collect();
    let mut told: Vec<_> = names.iter().map(|name| invalidated(name)).collect();
    told.push(CacheNotice::Invalidated { namespace: "ns".into(), key: Bytes::from((0..=255).collect::<Vec<u8>>()) });
    told.push(CacheNotice::Invalidated { namespace: "ns".into(), key: Bytes::new() });
    told.push(cleared("a.namespace_of-its-own"));
    for counter in 0..200 {
        told.push(CacheNotice::Tag { namespace: "ns".into(), tag: u64::MAX - 1, counter: (1 << 52) + counter });
    }
    for some in told.chunks(150) {
        s.store.tell(some).await.expect("the store answers");
    }
    s.store.tell(&[]).await.expect("the store answers");
    assert!(listener.heard_all(&told, SOON).await, "{} of {}", listener.so_far().len(), told.len());
    let heard = listener.so_far();
    let of = |notice: &CacheNotice| match notice {
        CacheNotice::Tag { counter, .. } => Some(*counter),
        _ => None,
    };
    let mut counters: Vec<_> = heard.iter().filter_map(of).collect();
    counters.dedup();
    assert_eq!(counters, (0..200).map(|n| (1 << 52) + n).collect::<Vec<_>>());
    assert!(!heard.contains(&CacheNotice::Gap), "nothing was lost");
}

/// A process that does not listen for a while hears everything, or that it missed something.
pub async fn what_was_missed_is_said(open: Open<'_>) {
    const MANY: usize = 40_000;
    let s = Subject::open(open).await;
    let listener = Listener::start(&s).await;
    listener.task.abort();
    tokio::time::sleep(QUIET).await;
    let told: Vec<_> = (0..MANY).map(|n| invalidated(&n.to_string())).collect();
    for some in told.chunks(1_000) {
        s.store.tell(some).await.expect("the store answers");
    }
    let last = cleared("last");
    s.store.tell(std::slice::from_ref(&last)).await.expect("the store answers");
    let mut missing: HashSet<_> = (0..MANY).map(|n| key(&n.to_string()).key).collect();
    let begun = Instant::now();
    while !missing.is_empty() {
        assert!(begun.elapsed() < 3 * SOON, "{} notices were lost without a word", missing.len());
        for notice in tokio::time::timeout(3 * SOON, listener.store.heard()).await.expect("there is something to hear")
        {
            match notice {
                CacheNotice::Gap => return,
                CacheNotice::Invalidated { key, .. } => drop(missing.remove(&key)),
                _ => {}
            }
        }
    }
}

/// While a process listens to a store that works, silence stays well below the bound of 1 s, whether anything is told or
/// not; what was told and not heard yet is never younger than the silence says.
pub async fn silence_is_bounded_and_honest(open: Open<'_>) {
    let s = Subject::open(open).await;
    let listener = Listener::start(&s).await;
    let begun = Instant::now();
    let (mut looked, mut longest) = (0, Duration::ZERO);
    while begun.elapsed() < Duration::from_secs(2) {
        if looked % 4 == 0 {
            s.store.tell(&[invalidated("now and then")]).await.expect("the store answers");
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
        longest = longest.max(listener.store.silence());
        looked += 1;
    }
    assert!(longest < Duration::from_millis(900), "{longest:?}");
    listener.task.abort();
    tokio::time::sleep(QUIET).await;
    let told = Instant::now();
    s.store.tell(&[invalidated("unheard")]).await.expect("the store answers");
    while told.elapsed() < Duration::from_millis(700) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let answered = Instant::now();
        let silence = listener.store.silence();
        // `told` is before the store had it: allow for the call itself.
        assert!(silence + Duration::from_millis(15) >= answered - told, "{silence:?} {:?}", answered - told);
    }
}

/// After `close` nothing hangs: what is asked is answered or refused, and it can be closed again.
pub async fn it_closes(open: Open<'_>) {
    let s = Subject::open(open).await;
    let other = s.harness.another().await;
    let bytes = s.filled(&key("k"), 1, None).await;
    let within = |what| tokio::time::timeout(SOON, what);
    within(other.close()).await.expect("it closes");
    within(other.close()).await.expect("it closes again");
    let _ = tokio::time::timeout(SOON, other.read(&key("k"))).await.expect("it is answered or refused");
    assert_eq!(s.read(&key("k")).await, Some(bytes), "the others go on");
    within(s.store.close()).await.expect("it closes");
}
