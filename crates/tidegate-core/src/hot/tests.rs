//! The counters against exact counts.

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

const KEYS: usize = 1_000_000;

fn hash(key: u64) -> u64 {
    let mut z = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn count(sketch: &mut Sketch<u64>, now: i64, key: u64, weight: u64) {
    sketch.count(now, hash(key), weight, || (key, 8));
}

/// Keys by Zipf's law with exponent 1, the hottest is 0.
struct Zipf {
    sums: Vec<f64>,
    random: StdRng,
}

impl Zipf {
    fn new(keys: usize, seed: u64) -> Self {
        let mut sum = 0.0;
        let add = |rank: usize| {
            sum += 1.0 / rank as f64;
            sum
        };
        Self { sums: (1..=keys).map(add).collect(), random: StdRng::seed_from_u64(seed) }
    }

    fn draw(&mut self) -> u64 {
        let at = self.random.random_range(0.0..self.sums[self.sums.len() - 1]);
        self.sums.partition_point(|sum| *sum <= at) as u64
    }
}

#[test]
fn the_hottest_of_a_million_keys_are_known() {
    let (mut sketch, mut zipf) = (Sketch::new(1_000, 0), Zipf::new(KEYS, 1));
    let mut exact = vec![0_u64; KEYS];
    // Some 20 million reads, one in sixteen counted.
    for _ in 0..1_250_000 {
        let key = zipf.draw();
        exact[key as usize] += 16;
        count(&mut sketch, 0, key, 16);
    }
    let hottest = sketch.hottest(1_000);
    let known = |most: u64| hottest.iter().take(most as usize).filter(|hot| hot.name < most).count();
    assert!(known(20) == 20 && known(100) >= 95, "{} of 20, {} of 100", known(20), known(100));
    assert!(known(1_000) >= 800, "{} of 1,000", known(1_000));
    for hot in &hottest {
        let exact = exact[hot.name as usize];
        assert!((hot.count - hot.over..=hot.count).contains(&exact), "{hot:?} {exact}");
    }
}

#[test]
fn of_the_last_seconds_several_processes_know_the_true_hottest() {
    // What was hot before is another set of keys, which must be gone from the last ten seconds.
    let mut sketches: Vec<Sketch<u64>> = (0..4).map(|_| Sketch::new(1_000, 0)).collect();
    let mut zipf = Zipf::new(100_000, 2);
    let mut exact = vec![0_u64; 200_000];
    for second in 0..60_i64 {
        let apart = if second < 48 { 100_000 } else { 0 };
        for n in 0..20_000_i64 {
            let (key, now) = (zipf.draw() + apart, second * 1_000 + n / 20);
            count(&mut sketches[(n % 4) as usize], now, key, 1);
            exact[key as usize] += u64::from(second >= 50);
        }
        sketches.iter_mut().for_each(|sketch| sketch.age(second * 1_000 + 999));
    }
    let reports: Vec<Report<u64>> = sketches.iter().map(|sketch| sketch.report(MAX_REPORTED, 60_000)).collect();
    let merged = merge(&reports, 5, 20);
    assert_eq!(merged.reads, 200_000);
    let mut truth: Vec<u64> = (0..200_000).collect();
    truth.sort_by_key(|key| std::cmp::Reverse(exact[*key as usize]));
    let found = merged.hottest.iter().filter(|hot| truth[..20].contains(&hot.name)).count();
    // Those at the end of the list are a few reads apart.
    assert!(found >= 19, "{found}: {:?}", merged.hottest);
    for hot in &merged.hottest {
        let exact = exact[hot.name as usize];
        assert!((hot.reads..=hot.reads + hot.over).contains(&exact), "{hot:?} {exact}");
    }
}

#[test]
fn a_flood_of_keys_grows_nothing_and_hides_nothing() {
    let mut sketch = Sketch::new(1_000, 0);
    for round in 0..2_000_u64 {
        for hot in 0..50 {
            count(&mut sketch, round as i64, hot, 1);
        }
        for cold in 0..500 {
            count(&mut sketch, round as i64, 1_000 + round * 500 + cold, 1);
        }
        if round % 100 == 0 {
            sketch.age(round as i64);
        }
    }
    let (slots, cells, named) = sketch.size();
    assert!((slots, cells) == (2_000, 8_192) && named <= 256 << 10, "{slots} {cells} {named}");
    let hottest = sketch.hottest(50);
    assert!(hottest.iter().all(|hot| hot.name < 50), "{hottest:?}");
    for key in 0..10_000_u64 {
        sketch.count(2_000, hash(!key), 1_000_000, || (key, 1_024));
    }
    assert!(sketch.size().2 <= 256 << 10, "{:?}", sketch.size());
}

#[test]
fn what_is_not_read_any_more_is_forgotten() {
    let mut sketch = Sketch::new(10, 0);
    (0..1_000).for_each(|_| count(&mut sketch, 0, 1, 1));
    sketch.age(HALF_LIFE_MS);
    (0..600).for_each(|_| count(&mut sketch, HALF_LIFE_MS, 2, 1));
    let order: Vec<u64> = sketch.hottest(10).iter().map(|hot| hot.name).collect();
    assert_eq!(order, [2, 1]);
    let late = 20 * HALF_LIFE_MS;
    sketch.age(late);
    assert_eq!((sketch.hottest(10).len(), sketch.size()), (0, (0, 0, 0)));
    assert!(sketch.report(10, late).is_empty());
    count(&mut sketch, late, 3, 2);
    assert!(sketch.hottest(10).is_empty(), "read once");
    count(&mut sketch, late, 3, 3);
    let hottest = sketch.hottest(10);
    assert_eq!((hottest[0].name, hottest[0].count, sketch.span_s(late + 1_000)), (3, 5, 1.0));
}

#[test]
fn the_heap_is_one_after_anything() {
    let mut sketch = Sketch::new(20, 0);
    for n in 0..20_000_u64 {
        count(&mut sketch, n as i64 * 40, hash(n) % 97, hash(n) % 5 + 1);
        if n % 1_000 == 0 {
            sketch.age(n as i64 * 40);
        }
        if n % 61 == 0 {
            sketch.check();
        }
    }
}

#[test]
fn what_was_saved_is_known_until_others_are_hotter() {
    let mut sketch = Sketch::new(10, 0);
    for key in 0..30_u64 {
        sketch.seed(hash(key), key as usize, || (key, 8));
    }
    let first = sketch.hottest(3);
    assert!(first.iter().all(|hot| hot.name < 3 && hot.over == hot.count), "{first:?}");
    assert!(sketch.report(10, WINDOW_MS).is_empty(), "it was read before");
    (0..100).for_each(|_| count(&mut sketch, 0, 77, 1));
    assert_eq!(sketch.hottest(1)[0].name, 77);
}

#[test]
fn a_name_that_a_process_does_not_tell_of_may_be_hot_there() {
    let recent = |name: u64, reads: u32| {
        let mut counts = [0; WINDOWS];
        counts[0] = reads;
        Recent { name, counts, over: 0, held: WINDOWS }
    };
    let mut totals = [0; WINDOWS];
    totals[0] = 10_000;
    let full = Report { totals, hottest: (0..64).map(|key| recent(key, 100)).collect(), unnamed: 40 };
    let other = Report { totals, hottest: vec![recent(99, 500), recent(3, 7)], unnamed: 0 };
    let merged = merge(&[full, other], 1, 2);
    let hot = |name, reads, over| HotName { name, reads, over };
    assert_eq!((merged.reads, merged.hottest), (20_000, vec![hot(99, 500, 40), hot(3, 107, 0)]));
}

#[test]
fn parts_of_a_process_are_one_report() {
    let report = |first: u64| {
        let mut sketch = Sketch::new(100, 0);
        for key in first..first + 60 {
            (0..key % 60 + 2).for_each(|_| count(&mut sketch, 0, key, 1));
        }
        sketch.report(MAX_REPORTED, WINDOW_MS)
    };
    let (mut all, other) = (report(0), report(60));
    let reads = all.totals[0] + other.totals[0];
    all.add(other);
    assert_eq!((all.totals[0], all.hottest.len()), (reads, MAX_REPORTED));
    assert!(all.hottest.is_sorted_by_key(|recent| std::cmp::Reverse(recent.reads())));
    assert!(all.unnamed >= all.hottest[MAX_REPORTED - 1].reads());
}

/// Reads of a few keys over a minute, in order.
fn stream() -> impl Strategy<Value = Vec<(i64, u64, u64)>> {
    let read = (0..700_i64, 0..60_u64, 1..4_u64);
    prop::collection::vec(read, 0..400).prop_map(|reads| {
        let mut now = 0;
        let step = |(pause, key, weight)| {
            now += if pause < 600 { pause / 4 } else { pause * 4 };
            (now, key * key / 60, weight)
        };
        reads.into_iter().map(step).collect()
    })
}

proptest! {
    #[test]
    fn counts_are_right_within_what_they_say(reads in stream(), most in 1..12_usize, windows in 1..=WINDOWS) {
        let mut sketch = Sketch::new(most, 0);
        let mut aged = 0;
        for (now, key, weight) in &reads {
            while aged + 1_000 <= *now {
                aged += 1_000;
                sketch.age(aged);
            }
            count(&mut sketch, *now, *key, *weight);
        }
        let now = reads.last().map_or(0, |(now, ..)| *now);
        let newest = now / WINDOW_MS;
        let exact = |of: Option<u64>, windows: usize| -> u64 {
            let counted = reads.iter().filter(|(at, key, _)| {
                (newest - windows as i64..newest).contains(&(at / WINDOW_MS)) && of.is_none_or(|of| of == *key)
            });
            counted.map(|(.., weight)| weight).sum()
        };
        let report = sketch.report(MAX_REPORTED, now);
        prop_assert_eq!(report.totals.iter().sum::<u64>(), exact(None, WINDOWS));
        for key in 0..60 {
            let exact = exact(Some(key), WINDOWS);
            match report.hottest.iter().find(|recent| recent.name == key) {
                Some(recent) => prop_assert!((recent.reads()..=recent.reads() + recent.over).contains(&exact), "{:?} {}", recent, exact),
                None => prop_assert!(exact <= report.unnamed, "{} {} {}", key, exact, report.unnamed),
            }
        }
        let merged = merge(std::slice::from_ref(&report), windows, 100);
        prop_assert_eq!(merged.reads, exact(None, windows));
        for hot in merged.hottest {
            let exact = exact(Some(hot.name), windows);
            prop_assert!((hot.reads..=hot.reads + hot.over).contains(&exact), "{:?} {}", hot, exact);
        }
    }

    #[test]
    fn a_report_comes_back_and_a_damaged_one_does_not(reads in stream(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut sketch = Sketch::new(100, 0);
        for (now, key, weight) in &reads {
            sketch.count(*now, hash(*key), *weight, || (key.to_be_bytes()[..(*key % 8) as usize].to_vec(), 8));
        }
        let report = sketch.report(MAX_REPORTED, reads.last().map_or(0, |(now, ..)| *now) + WINDOW_MS);
        let mut bytes = report.encode();
        prop_assert!(bytes.len() <= MAX_REPORT_BYTES);
        prop_assert_eq!(Report::decode(&bytes), Some(report));
        let at = at.index(bytes.len());
        prop_assert_eq!(Report::decode(&bytes[..at]), None);
        bytes[at] ^= 1 << bit;
        prop_assert_eq!(Report::decode(&bytes), None);
    }
}
