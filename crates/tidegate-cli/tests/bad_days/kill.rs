//! kill -9 at random moments: whatever was acknowledged is there afterwards, nothing is released twice.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::{Rng, SeedableRng};

use crate::long;
use crate::server::{Api, Server, Start};

/// What a server has acknowledged about an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    Placed { quantity: i64 },
    Paid,
    Cancelled,
}

/// A crowd that places, pays and cancels until it is told to go, and remembers every acknowledgement.
pub struct Crowd {
    stop: Arc<AtomicBool>,
    told: Arc<Mutex<Vec<(String, Told)>>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Crowd {
    pub fn start(api: &Api, threads: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::new(Mutex::new(Vec::new()));
        let threads = (0..threads)
            .map(|thread| {
                let (api, stop, told) = (api.clone(), Arc::clone(&stop), Arc::clone(&told));
                std::thread::spawn(move || shop(&api, thread, &stop, &told))
            })
            .collect();
        Self { stop, told, threads }
    }

    /// Sends it home: everything that was acknowledged.
    pub fn end(self) -> Vec<(String, Told)> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        Arc::try_unwrap(self.told).expect("the crowd has gone").into_inner().expect("no panic")
    }
}

fn shop(api: &Api, thread: u64, stop: &AtomicBool, told: &Mutex<Vec<(String, Told)>>) {
    let mut rng = rand::rngs::StdRng::seed_from_u64(thread);
    let tell = |id: &str, what| told.lock().expect("no panic").push((id.to_owned(), what));
    while !stop.load(Ordering::Relaxed) {
        let id = format!("o{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let quantity = rng.random_range(1..4);
        let hold = if rng.random_range(0..4) == 0 { 1 } else { 600 };
        match api.place(&id, "x", quantity, hold) {
            Some(reply) if reply.status == 201 => tell(&id, Told::Placed { quantity }),
            Some(reply) => assert!(matches!(reply.status, 409 | 503), "{reply:?}"),
            None => continue,
        }
        let (end, what) = match rng.random_range(0..3) {
            0 => (api.pay(&id), Told::Paid),
            1 => (api.cancel(&id), Told::Cancelled),
            _ => continue,
        };
        match end {
            Some(reply) if reply.status == 200 => tell(&id, what),
            Some(reply) => assert!(matches!(reply.status, 202 | 409 | 503), "{reply:?}"),
            None => {}
        }
    }
}

/// Every acknowledgement is still true.
pub fn verify(api: &Api, told: &[(String, Told)]) {
    for (id, what) in told {
        let order = api.order(id);
        let status = order["status"].as_str().unwrap_or_default();
        match what {
            Told::Placed { quantity } => {
                assert_eq!(order["lines"][0]["quantity"].as_i64(), Some(*quantity), "{order}");
                assert_eq!(order["total"]["amount"].as_i64(), Some(100 * quantity), "{order}");
            }
            Told::Paid => {
                assert_eq!(order["payments"].as_array().map(Vec::len), Some(1), "{order}");
                assert!(status == "paid" || status == "cancelled", "{order}");
            }
            Told::Cancelled => assert_eq!(status, "cancelled", "{order}"),
        }
    }
}

#[test]
fn killed_at_random_moments_under_load() {
    let rounds = if long() { 200 } else { 50 };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut rng = rand::rngs::StdRng::seed_from_u64(50);
    let mut all = Vec::new();
    let mut server = Start::in_folder(folder.path()).ready();
    server.api.sku("x", 1_000_000);
    for round in 0..rounds {
        let crowd = Crowd::start(&server.api, 4);
        std::thread::sleep(Duration::from_millis(rng.random_range(20..250)));
        server.kill();
        let told = crowd.end();
        server = Start::in_folder(folder.path()).ready();
        verify(&server.api, &told);
        all.extend(told);
        if round % 10 == 9 {
            server.api.check();
        }
    }
    assert!(all.len() > rounds * 5, "only {} acknowledgements in {rounds} rounds", all.len());
    verify(&server.api, &all);
    server.api.check();
}

#[test]
fn deadlines_that_passed_while_it_was_down_fire_within_a_second_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Start::in_folder(folder.path()).ready();
    server.api.sku("x", 300);
    for i in 0..300 {
        assert_eq!(server.api.place(&format!("o{i}"), "x", 1, 2).map(|r| r.status), Some(201));
    }
    server.kill();
    std::thread::sleep(Duration::from_millis(2_300));
    let server = Start::in_folder(folder.path()).ready();
    server.api.wait("every overdue order is cancelled", Duration::from_secs(1), |api| api.counts("x") == [300, 0, 0]);
    for i in 0..300 {
        assert_eq!(server.api.events(&format!("o{i}")), ["order.placed", "order.expired"]);
    }
    server.api.check();
}

#[test]
fn a_key_whose_first_call_was_killed_works_after_the_restart() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut server = Start::in_folder(folder.path()).ready();
    server.api.sku("x", 1_000);
    for round in 0..5 {
        let id = format!("retry-{round}");
        let api = server.api.clone();
        let first = {
            let id = id.clone();
            std::thread::spawn(move || api.place(&id, "x", 1, 600).map(|r| r.status))
        };
        std::thread::sleep(Duration::from_micros(700 * round));
        server.kill();
        let first = first.join().expect("no panic");
        server = Start::in_folder(folder.path()).ready();
        let again = server.api.place(&id, "x", 1, 600).expect("an answer").status;
        assert!(again == 200 || (again == 201 && first.is_none()), "first {first:?}, again {again}");
    }
    assert_eq!(server.api.counts("x"), [995, 5, 0]);
    server.api.check();
    assert_one_owner(&server);
}

/// A second server on the same folder refuses, and says whose it is.
fn assert_one_owner(server: &Server) {
    let (code, said) = Start::in_folder(&server.folder).refused();
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains(&server.child.id().to_string()), "it names the owner: {said}");
}
