//! `/v1/cache`: many callers at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::cache::namespace;
use super::client::{Api, read_one};
use super::origin::{Act, Origin};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_callers_cost_the_origin_one_call() {
    let origin = Origin::start(|_, call| Act::text(format!("v{call}")).after(Duration::from_millis(200))).await;
    let api = Arc::new(Api::caching(vec![namespace("items", &origin.url("/{key}"))]).await);
    for (round, query) in [(1, ""), (2, "?read=strong")] {
        let readers: Vec<_> = (0..200)
            .map(|_| {
                let api = Arc::clone(&api);
                tokio::spawn(async move { api.get(&format!("/v1/cache/items/x{query}")).await })
            })
            .collect();
        for reader in readers {
            let reply = reader.await.expect("no panic");
            assert_eq!((reply.status, reply.body), (200, format!("v{round}").into_bytes()));
        }
        assert_eq!(origin.calls_of("/x"), round);
        assert_eq!(api.raw("DELETE", "/v1/cache/items/x", &[], b"").await.status, 204);
    }
    // A failure is one call, too.
    origin.now(|_, _| Act::status(500).after(Duration::from_millis(1_000)));
    let readers: Vec<_> = (0..200)
        .map(|_| {
            let api = Arc::clone(&api);
            tokio::spawn(async move { api.get("/v1/cache/items/bad").await.code() })
        })
        .collect();
    for reader in readers {
        assert_eq!(reader.await.expect("no panic"), "origin-failed");
    }
    // A hot key may be loaded again by itself after its delete; this one is new.
    assert_eq!(origin.calls_of("/bad"), 1);
    Arc::into_inner(api).expect("the last").stop().await;
}

#[expect(clippy::print_stdout, reason = "what was measured is worth reading")]
fn tell(what: &str) {
    println!("{what}");
}

/// Held by whoever measures the memory of this process, and by whoever takes much of it.
pub static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Resident memory of this process, KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_unknown_keys_reaches_the_origin_as_far_as_the_rate_lets_it() {
    let _alone = ALONE.lock().await;
    const RATE: u64 = 50;
    let keys: u64 = if std::env::var_os("TIDEGATE_TEST_LONG").is_some() { 50_000 } else { 10_000 };
    let origin = Origin::start(|_, _| Act::status(404)).await;
    let mut items = namespace("items", &origin.url("/{key}"));
    items.load_rate = std::num::NonZeroU32::new(RATE as u32);
    items.load_timeout = Duration::from_millis(100);
    let api = Arc::new(Api::caching(vec![items]).await);
    let (next, begun, before) = (Arc::new(AtomicU64::new(0)), Instant::now(), resident());
    let callers: Vec<_> = (0..256)
        .map(|_| {
            let (api, next) = (Arc::clone(&api), Arc::clone(&next));
            tokio::spawn(async move {
                let (mut absent, mut refused, mut late) = (0_u64, 0_u64, 0_u64);
                let mut connection = api.connect().await;
                loop {
                    let n = next.fetch_add(1, Ordering::SeqCst);
                    if n >= keys {
                        return (absent, refused, late);
                    }
                    let request =
                        format!("GET /v1/cache/items/{:x} HTTP/1.1\r\nhost: {}\r\n\r\n", n * 7_919, api.address);
                    connection.write_all(request.as_bytes()).await.expect("sent");
                    match read_one(&mut connection).await.status {
                        404 => absent += 1,
                        503 => refused += 1,
                        504 => late += 1,
                        other => panic!("{other}"),
                    }
                }
            })
        })
        .collect();
    let (mut absent, mut refused, mut late) = (0, 0, 0);
    for caller in callers {
        let (a, r, l) = caller.await.expect("no panic");
        (absent, refused, late) = (absent + a, refused + r, late + l);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let most = (seconds * RATE as f64).ceil() as u64 + RATE / 4;
    assert_eq!(absent + refused + late, keys);
    // This machine is busy: some calls are too late.
    assert!(absent + late <= most, "{absent} and {late}");
    assert!(origin.calls() <= most, "{} calls in {seconds:.1} s", origin.calls());
    assert!(refused > keys / 2, "{refused} of {keys}");
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 10, "memory grew by {grown} KiB");
    tell(&format!(
        "{keys} keys in {seconds:.1} s: {} calls, {absent} absent, {refused} refused, {grown} KiB",
        origin.calls()
    ));
    Arc::into_inner(api).expect("the last").stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_readers_of_large_values_do_not_add_up() {
    let _alone = ALONE.lock().await;
    const READERS: usize = 200;
    let body: Vec<u8> =
        (0..16_u32 << 18).flat_map(|n| (n.wrapping_mul(0x9e37_79b1) ^ n.rotate_left(9)).to_le_bytes()).collect();
    assert_eq!(body.len(), 16 << 20);
    let sent = body.clone();
    let origin = Origin::start(move |_, _| Act::typed("a/b", sent.clone()).after(Duration::from_millis(300))).await;
    let mut items = namespace("items", &origin.url("/{key}"));
    items.max_value = 16 << 20;
    let api = Arc::new(Api::caching(vec![items]).await);
    let begun = resident();
    // Readers that take a little of the answer, then wait: the whole would be 3.1 GiB.
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let mut reader = api.connect().await;
        let request = format!("GET /v1/cache/items/x HTTP/1.1\r\nhost: {}\r\n\r\n", api.address);
        reader.write_all(request.as_bytes()).await.expect("sent");
        readers.push(reader);
    }
    for reader in &mut readers {
        let mut head = [0; 12];
        reader.read_exact(&mut head).await.expect("an answer");
        assert_eq!(&head, b"HTTP/1.1 200");
    }
    assert_eq!(origin.calls_of("/x"), 1);
    let grown = resident().saturating_sub(begun);
    // The value a few times (origin, load, store, copy), and what hyper buffers for each reader.
    assert!(grown < 250 << 10, "{grown} KiB for {READERS} readers");
    drop(readers);
    // Strong reads get a copy of their own each: only so many at a time.
    let strong: Vec<_> = (0..24)
        .map(|_| {
            let api = Arc::clone(&api);
            tokio::spawn(async move { api.get("/v1/cache/items/x?read=strong").await })
        })
        .collect();
    for reader in strong {
        let reply = reader.await.expect("no panic");
        match reply.status {
            200 => assert!(reply.body == body),
            status => assert_eq!((status, reply.code().as_str()), (503, "overloaded")),
        }
    }
    Arc::into_inner(api).expect("the last").stop().await;
}
