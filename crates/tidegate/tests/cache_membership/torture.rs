//! Inserts during rebuilds, killed builders, evicted buckets, emptied stores: nobody who was added and committed is ever
//! refused. And what breaks that on purpose is caught.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate::cache::membership::Mutant;
use tidegate::cache::*;
use tidegate_backend::BoxFuture;

use super::common::*;

/// A mutant is caught within a second or so; on a machine that is very busy it may take longer.
const MUTANT_TIME: Duration = Duration::from_secs(120);
/// The longest time from an addition to its commit.
const SETTLE: Duration = Duration::from_millis(60);

/// What happens to a store while it is tortured; another thing each time.
pub type Disturb = Box<dyn Fn(u64) -> BoxFuture<'static, ()> + Send + Sync>;

pub struct Torture {
    pub processes: Vec<Caches>,
    /// Another process in the place of one that was killed.
    pub another: Box<dyn Fn() -> BoxFuture<'static, Caches> + Send + Sync>,
    pub disturb: Disturb,
    pub settle: Duration,
    pub mutant: Option<Mutant>,
    pub time: Duration,
}

#[derive(Debug, Default)]
pub struct Tally {
    pub wrong: Vec<u64>,
    pub inserts: u64,
    pub reads: u64,
    pub refused: u64,
    pub rebuilds: u64,
    pub kills: u64,
}

struct Run {
    table: Arc<Table>,
    /// Ids that are committed, and were added or acknowledged.
    known: Mutex<Vec<u64>>,
    next: AtomicU64,
    stop: AtomicBool,
    tally: Mutex<Tally>,
    caches: Mutex<Vec<(Caches, Cache<u64, u64>)>>,
    mutant: Option<Mutant>,
    settle: Duration,
}

fn draw(below: u64) -> u64 {
    rand_u64() % below
}

fn rand_u64() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

impl Run {
    fn cache(&self) -> Cache<u64, u64> {
        let caches = self.caches.lock().unwrap();
        caches[draw(caches.len() as u64) as usize].1.clone()
    }

    fn begin(&self, caches: Caches) -> (Caches, Cache<u64, u64>) {
        let membership = self.table.mutant(self.mutant).capacity(4_000).settle(self.settle);
        let builder = caches.cache(NS).no_local().membership(membership);
        let cache = builder.loader(self.table.loader()).unwrap();
        (caches, cache)
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }

    /// Adds, then commits a while later; or commits, then invalidates.
    async fn write(self: Arc<Self>) {
        while self.goes_on() {
            let id = self.next.fetch_add(1, Ordering::SeqCst);
            let cache = self.cache();
            let done = if id.is_multiple_of(3) {
                self.table.commit(id);
                cache.invalidate(&id).await.is_ok()
            } else {
                let added = Instant::now();
                let done = cache.membership().unwrap().add(&id).await.is_ok();
                // A commit may be nearly as late as was promised, whatever the machine does.
                let late = Duration::from_millis(draw(40));
                if done && added.elapsed() + late < SETTLE * 3 / 4 {
                    tokio::time::sleep(late).await;
                    if added.elapsed() < SETTLE {
                        self.table.commit(id);
                        true
                    } else {
                        false
                    }
                } else {
                    false
                }
            };
            if done {
                self.known.lock().unwrap().push(id);
                self.tally.lock().unwrap().inserts += 1;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn read(self: Arc<Self>) {
        while self.goes_on() {
            let id = {
                let known = self.known.lock().unwrap();
                if known.is_empty() {
                    None
                } else {
                    // The newest are those that a rebuild may miss.
                    let back = draw(known.len() as u64).min(draw(known.len() as u64));
                    Some(known[known.len() - 1 - back as usize])
                }
            };
            let cache = self.cache();
            if let Some(id) = id {
                match cache.read(&id).strong().await {
                    Ok(read) if read.source == Source::Filter => self.tally.lock().unwrap().wrong.push(id),
                    _ => {}
                }
            }
            let unknown = (1 << 40) + draw(1 << 40);
            let refused = cache.get(&unknown).await.is_ok_and(|read| read.source == Source::Filter);
            {
                let mut tally = self.tally.lock().unwrap();
                tally.reads += 2;
                tally.refused += u64::from(refused);
            }
            tokio::task::yield_now().await;
        }
    }

    async fn rebuild(self: Arc<Self>) {
        while self.goes_on() {
            let filter = self.cache().membership().unwrap();
            let rebuilt = tokio::time::timeout(Duration::from_secs(3), filter.rebuild()).await;
            if matches!(rebuilt, Ok(Ok(()))) {
                self.tally.lock().unwrap().rebuilds += 1;
            }
            tokio::time::sleep(Duration::from_millis(draw(20))).await;
        }
    }
}

pub async fn torture(plan: Torture) -> Tally {
    let table = Table::with(1..=2_000);
    table.ids_a_page.store(100, Ordering::SeqCst);
    table.stores_nothing.store(true, Ordering::SeqCst);
    let run = Arc::new(Run {
        table,
        known: Mutex::default(),
        next: AtomicU64::new(10_000),
        stop: AtomicBool::new(false),
        tally: Mutex::default(),
        caches: Mutex::default(),
        mutant: plan.mutant,
        settle: plan.settle,
    });
    let begun: Vec<_> = plan.processes.into_iter().map(|caches| run.begin(caches)).collect();
    *run.caches.lock().unwrap() = begun;
    let mut tasks = Vec::new();
    for _ in 0..8 {
        tasks.push(tokio::spawn(run.clone().write()));
    }
    for _ in 0..4 {
        tasks.push(tokio::spawn(run.clone().read()));
    }
    for _ in 0..2 {
        tasks.push(tokio::spawn(run.clone().rebuild()));
    }
    let began = Instant::now();
    let mut turn = 0;
    while began.elapsed() < plan.time && run.tally.lock().unwrap().wrong.is_empty() {
        tokio::time::sleep(Duration::from_millis(300)).await;
        turn += 1;
        if turn % 3 == 0 {
            // A process dies with all it does.
            let fresh = run.begin((plan.another)().await);
            let victim = std::mem::replace(&mut run.caches.lock().unwrap()[(turn / 3 % 2) as usize], fresh);
            victim.0.close().await;
            run.tally.lock().unwrap().kills += 1;
        } else if turn % 3 == 1 {
            (plan.disturb)(turn / 3).await;
        }
    }
    run.stop.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    let caches = std::mem::take(&mut *run.caches.lock().unwrap());
    for (caches, _) in caches {
        caches.close().await;
    }
    let tally = std::mem::take(&mut *run.tally.lock().unwrap());
    println!(
        "{} inserts, {} reads, {} refused, {} rebuilds, {} kills, {} wrong",
        tally.inserts,
        tally.reads,
        tally.refused,
        tally.rebuilds,
        tally.kills,
        tally.wrong.len()
    );
    tally
}

pub fn is_kept(tally: &Tally) {
    assert!(tally.wrong.is_empty(), "{tally:?}");
    assert!(tally.inserts > 100 && tally.refused > 100 && tally.rebuilds > 3, "nothing happened: {tally:?}");
}

fn in_memory(settle: Duration, mutant: Option<Mutant>, time: Duration) -> Torture {
    let store = Arc::new(memory());
    let processes = processes(&store, 3);
    let (for_another, for_disturb) = (store.clone(), store.clone());
    let another = move || {
        let caches = process(Arc::new(for_another.handle()));
        Box::pin(std::future::ready(caches)) as BoxFuture<'static, Caches>
    };
    let disturb = move |turn: u64| {
        let members = for_disturb.members();
        if turn % 3 == 2 {
            members.flush();
        } else {
            members.evict_some(NS);
        }
        Box::pin(std::future::ready(())) as BoxFuture<'static, ()>
    };
    Torture { processes, another: Box::new(another), disturb: Box::new(disturb), settle, mutant, time }
}

fn seconds() -> Duration {
    Duration::from_secs(if is_long() { 120 } else { 6 })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_who_exists_is_refused() {
    is_kept(&torture(in_memory(SETTLE, None, seconds())).await);
}

/// Without the wait an id that was added before a generation and committed after its reading is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_builder_that_does_not_wait_is_caught() {
    let tally = torture(in_memory(Duration::ZERO, None, MUTANT_TIME)).await;
    assert!(!tally.wrong.is_empty(), "{tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_builder_that_reads_before_it_registers_is_caught() {
    let tally = torture(in_memory(SETTLE, Some(Mutant::ReadsFirst), MUTANT_TIME)).await;
    assert!(!tally.wrong.is_empty(), "{tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_takes_lost_for_empty_is_caught() {
    let tally = torture(in_memory(SETTLE, Some(Mutant::MissingIsEmpty), MUTANT_TIME)).await;
    assert!(!tally.wrong.is_empty(), "{tally:?}");
}
