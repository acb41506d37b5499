//! The sample of keys.

use tidegate_core::doctor::{KeySample, Keys};

use super::*;

async fn sample(redis: &Redis) -> KeySample {
    match seen(&redis.url(), Purpose::Cache).await.nodes.remove(0).keys {
        Keys::Seen(sample) => sample,
        other => panic!("{other:?}"),
    }
}

/// The true shares lie within the intervals, as often as is said.
#[tokio::test]
async fn shares_lie_where_they_are_said_to_lie() {
    for engine in ENGINES {
        let redis = Redis::start_with(Setup::default().engine(engine));
        // Keys with and without a time to live.
        let planted = [("session:", 40_000, 10_000), ("page/", 30_000, 0), ("log_", 0, 15_000), ("cart:", 4_500, 500)];
        let total: u64 = planted.iter().map(|(_, with, without)| with + without).sum();
        for (prefix, with, without) in planted {
            fill(&redis, &format!("{prefix}a"), with, 3_600);
            fill(&redis, &format!("{prefix}b"), without, 0);
        }
        let (mut held, mut said) = (0, 0);
        for _ in 0..20 {
            let sample = sample(&redis).await;
            assert_eq!((sample.total, sample.how), (total, "random"));
            assert!((1_900..=2_000).contains(&sample.keys), "{}", sample.keys);
            for (prefix, with, without) in planted {
                let group = &sample.prefixes[prefix];
                let keys = (with + without) as f64;
                let of_keys = sample.share_of_keys(group);
                let never = sample.share_without_ttl(group);
                held += u32::from((of_keys.low..=of_keys.high).contains(&(keys / total as f64)));
                held += u32::from((never.low..=never.high).contains(&(without as f64 / keys)));
                said += 2;
                assert!(of_keys.high - of_keys.low < 0.08, "{of_keys:?}");
            }
        }
        println!("{engine:?}: {held} of {said} intervals hold the truth");
        // 99 of 100 are to; fewer than 94 of 100 would be by chance once in a million times.
        assert!(held * 100 >= said * 94, "{held} of {said}");
    }
}

#[tokio::test]
async fn few_keys_are_all_looked_at() {
    for engine in ENGINES {
        let redis = Redis::start_with(Setup::default().engine(engine));
        assert_eq!(sample(&redis).await, KeySample { how: "all", ..KeySample::default() });
        fill(&redis, "a:", 300, 0);
        fill(&redis, "b:", 700, 1_000);
        let sample = sample(&redis).await;
        assert_eq!((sample.how, sample.keys, sample.total), ("all", 1_000, 1_000));
        let never = sample.share_without_ttl(&sample.prefixes["a:"]);
        assert_eq!((never.low, never.high), (1.0, 1.0));
        assert_eq!(sample.prefixes["b:"].without_ttl, 0);
    }
}

/// O12, and other databases.
#[tokio::test]
async fn names_of_any_kind() {
    let redis = Redis::start();
    let huge = vec![b'n'; 1 << 20];
    redis.try_tell_bytes(&[b"SET", &huge, b"x"]).unwrap();
    redis.try_tell_bytes(&[b"SET", b"a\0\r\n\xff:1", b"x"]).unwrap();
    fill(&redis, "k:", 10, 0);
    let few = sample(&redis).await;
    assert_eq!(few.keys, 12);
    assert!(few.prefixes.contains_key("a\\x00\\r\\n\\xff:"), "{:?}", few.prefixes);
    // Names of which a sample would take gigabytes are drawn less often.
    for n in 0..40_u32 {
        redis.try_tell_bytes(&[b"SET", &[&huge[..], &n.to_be_bytes()].concat(), b"x"]).unwrap();
    }
    fill(&redis, "k:", 2_000, 0);
    let began = Instant::now();
    let many = sample(&redis).await;
    assert!(many.how == "random" && many.keys > 0 && many.total == 2_042, "{} {}", many.how, many.keys);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    redis.tell(&["FLUSHALL"]);
    let other = Redis::start();
    fill(&other, "zero:", 100, 0);
    let script = "redis.call('SELECT', 3) for i = 1, 200 do redis.call('SET', 'three:' .. i, 'x') end";
    other.tell(&["EVAL", script, "0"]);
    let both = sample(&other).await;
    assert_eq!((both.prefixes["zero:"].keys, both.prefixes["three:"].keys), (100, 200));
}

/// Without RANDOMKEY the first keys of SCAN stand for all.
#[tokio::test]
async fn who_may_not_draw_scans() {
    let redis = Redis::start();
    fill(&redis, "a:", 3_000, 0);
    fill(&redis, "b:", 3_000, 900);
    redis.tell(&["ACL", "SETUSER", "scanner", "on", ">word", "~*", "+@all", "-randomkey"]);
    let url = format!("redis://scanner:word@127.0.0.1:{}", redis.port());
    let Keys::Seen(sample) = seen(&url, Purpose::Cache).await.nodes.remove(0).keys else { panic!("no sample") };
    assert_eq!((sample.how, sample.ttl_forbidden), ("scan", false));
    assert!((2_000..4_000).contains(&sample.keys), "{}", sample.keys);
    let group = &sample.prefixes["a:"];
    assert!(sample.share_without_ttl(group).low > 0.99 && sample.prefixes["b:"].without_ttl == 0, "{sample:?}");
}

#[tokio::test]
async fn keys_that_never_expire() {
    for engine in ENGINES {
        let redis = Redis::start_with(Setup::default().engine(engine));
        redis.tell(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
        fill(&redis, "leak:", 9_000, 0);
        fill(&redis, "page:", 1_000, 3_600);
        let report = look(&redis.url(), Purpose::Cache).await;
        let found = of(&report, Check::KeysWithoutTtl).unwrap();
        assert_eq!(found.severity, Severity::Warning);
        assert!(found.cause.contains("90 % of 10000 keys") && found.cause.contains("begin with leak:"), "{found:#?}");
        redis.tell(&["FLUSHALL"]);
        fill(&redis, "leak:", 9_000, 3_600);
        fill(&redis, "page:", 1_000, 0);
        let report = look(&redis.url(), Purpose::Cache).await;
        let blames = of(&report, Check::KeysWithoutTtl).is_some_and(|found| found.cause.contains("leak:"));
        assert!(!blames, "{report:#?}");
    }
}

/// A few of our own keys among many are found by their names, where they can go.
#[tokio::test]
async fn our_own_keys_where_they_may_go() {
    for engine in ENGINES {
        let redis = Redis::start_with(Setup::default().engine(engine).option("maxmemory", "200mb"));
        fill(&redis, "page:", 50_000, 3_600);
        let found = async |policy: &str| {
            redis.tell(&["CONFIG", "SET", "maxmemory-policy", policy]);
            of(&look(&redis.url(), Purpose::Cache).await, Check::OwnKeysEvictable).cloned()
        };
        assert_eq!(found("allkeys-lru").await, None);
        redis.tell(&["ZADD", "{tg:shop:d3}:due", "1", "order"]);
        let due = found("allkeys-lru").await.unwrap();
        assert_eq!(due.severity, Severity::Critical);
        assert!(due.cause.contains("deadlines of orders"), "{due:#?}");
        // It never expires, so that these leave it alone.
        assert_eq!((found("volatile-lru").await, found("noeviction").await), (None, None));
        redis.tell(&["ZADD", "{tg:shop:l5}:alive", "1", "process"]);
        redis.tell(&["PEXPIRE", "{tg:shop:l5}:alive", "100000"]);
        assert!(found("volatile-lru").await.unwrap().cause.contains("locks"));
        redis.tell(&["DEL", "{tg:shop:l5}:alive", "{tg:shop:d3}:due"]);
        // Caches may go.
        fill(&redis, "tg:shop:c:products:{:", 500, 900);
        assert_eq!(found("allkeys-lru").await, None);
    }
}
