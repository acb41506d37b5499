use super::*;

fn generation(capacity: u64, rate: f64) -> Generation {
    let shape = Shape::of(capacity, rate);
    Generation { id: 7, seed: 42, shape, capacity, begun: Millis(5), home: 9, layout: shape.layout() }
}

fn id(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

#[test]
fn every_member_is_in_and_few_strangers_are() {
    for (capacity, rate) in [(1_000, 0.01), (50_000, 0.001), (100_000, DEFAULT_FALSE_POSITIVES)] {
        let g = generation(capacity, rate);
        let members = Members::new(g.shape);
        for n in 0..capacity {
            members.insert(g.place(&id(n)));
        }
        assert!((0..capacity).all(|n| members.contains(g.place(&id(n)))));
        let strangers = 2_000_000_u64;
        let let_through = (1..=strangers).filter(|n| members.contains(g.place(&id(n << 40)))).count();
        let measured = let_through as f64 / strangers as f64;
        assert!(measured < rate * 1.25, "{capacity} at {rate}: {measured}");
        assert!(g.shape.false_positives(capacity) <= rate);
    }
}

#[test]
fn sizes_are_what_the_documentation_says() {
    let shape = Shape::of(MAX_CAPACITY, DEFAULT_FALSE_POSITIVES);
    assert_eq!(shape.hashes, 13);
    assert!((48_000_000..49_000_000).contains(&shape.bytes()), "{shape:?}: {}", shape.bytes());
    assert!(shape.buckets < MAX_BUCKETS);
    assert!(Shape::of(MAX_CAPACITY, *FALSE_POSITIVES.start()).buckets < MAX_BUCKETS);
    assert_eq!(Shape::of(0, 0.0), Shape::of(MIN_CAPACITY, *FALSE_POSITIVES.start()));
    assert_eq!(Shape::of(u64::MAX, 1.0), Shape::of(MAX_CAPACITY, *FALSE_POSITIVES.end()));
}

/// The bits as Redis sets them one by one are the bits of the filter as it is sent as a whole.
#[test]
fn bits_one_by_one_and_buckets_as_a_whole_agree() {
    let g = generation(1_000, DEFAULT_FALSE_POSITIVES);
    let (members, again) = (Members::new(g.shape), Members::new(g.shape));
    let mut stored = vec![vec![0_u8; BUCKET_BYTES]; g.shape.buckets as usize];
    for n in 0..1_000 {
        let place = g.place(&id(n));
        members.insert(place);
        for offset in g.offsets(place) {
            stored[place.bucket as usize][(offset / 8) as usize] |= 0x80 >> (offset % 8);
        }
    }
    for (at, bytes) in stored.iter().enumerate() {
        assert_eq!(members.bytes(at as u32).as_ref(), Some(bytes));
        again.merge(at as u32, bytes);
        again.merge(at as u32, &bytes[1..]);
        assert_eq!(again.bytes(at as u32).as_ref(), Some(bytes));
    }
    for n in 0..2_000 {
        let place = g.place(&id(n));
        let bucket = &stored[place.bucket as usize];
        assert_eq!(g.may_hold(place, bucket), Some(members.contains(place)));
        assert_eq!(again.contains(place), members.contains(place));
        assert_eq!(g.may_hold(place, &bucket[..10]), None);
    }
}

#[test]
fn a_merge_adds_and_takes_nothing_away() {
    let g = generation(1_000, DEFAULT_FALSE_POSITIVES);
    let (one, two) = (Members::new(g.shape), Members::new(g.shape));
    for n in 0..500 {
        assert!(one.insert(g.place(&id(n))) || n > 0);
        two.insert(g.place(&id(n + 500)));
    }
    for at in 0..g.shape.buckets {
        one.merge(at, &two.bytes(at).expect("500 ids fill all buckets"));
    }
    assert!((0..1_000).all(|n| one.contains(g.place(&id(n)))));
    assert!(!one.insert(g.place(&id(700))));
    one.merge(g.shape.buckets, &[0; BUCKET_BYTES]);
    assert_eq!(one.bytes(g.shape.buckets), None);
}

#[test]
fn a_state_comes_back_and_nothing_else_is_one() {
    let current = generation(5_000, 0.01);
    let building = Generation { id: 8, begun: Millis(-3), ..generation(1_000, 0.1) };
    for state in [
        State::default(),
        State { current: Some(current), building: None },
        State { current: None, building: Some(building) },
        State { current: Some(current), building: Some(building) },
    ] {
        let bytes = state.bytes();
        assert_eq!(State::read(&bytes), Ok(state));
        assert!(state.is_known());
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(State::read(&other), Err(NoState));
            if at > 0 {
                assert_eq!(State::read(&bytes[..at]), Err(NoState));
            }
        }
    }
    let strange = Generation { layout: current.layout ^ 1, ..current };
    assert!(!State { current: Some(strange), building: None }.is_known());
}

/// Processes of different builds share filters: if this changes, the layout's number has to change with it, and it does,
/// since it is computed from the same bits.
#[test]
fn the_bits_of_an_id_are_told_apart_by_the_layout() {
    let shape = |hashes| Shape { buckets: 10, hashes };
    let layouts: std::collections::HashSet<u64> = (1..=MAX_HASHES).map(|hashes| shape(hashes).layout()).collect();
    assert_eq!(layouts.len(), MAX_HASHES as usize);
    let offsets = generation(1_000, DEFAULT_FALSE_POSITIVES).offsets(Place { bucket: 0, hash: 0x1234_5678_9abc_def0 });
    assert!(offsets.windows(2).all(|pair| pair[0] < pair[1]) && offsets.iter().all(|o| *o < BUCKET_BITS as u32));
}
