//! What is read of `INFO`.

use proptest::prelude::*;

use super::super::info::Keyspace;
use super::super::{Facts, Info, Kind};
use super::*;

/// The fields that rules read, as these versions are documented to give them.
const DOCUMENTED: [(&str, Kind, (u32, u32), &str); 6] = [
    (
        "6.2",
        Kind::Redis,
        (6, 2),
        "# Server\r\nredis_version:6.2.14\r\nrun_id:a\r\nuptime_in_seconds:90\r\n# Clients\r\nconnected_clients:3\r\nmaxclients:10000\r\n\
         client_recent_max_input_buffer:24\r\n# Memory\r\nused_memory:900000\r\nused_memory_rss:7000000\r\nmaxmemory:0\r\n\
         maxmemory_policy:noeviction\r\nmem_not_counted_for_evict:0\r\nmem_clients_slaves:0\r\nmem_clients_normal:20512\r\n\
         mem_allocator:jemalloc-5.1.0\r\n# Persistence\r\nloading:0\r\nrdb_changes_since_last_save:2\r\nrdb_last_bgsave_status:ok\r\n\
         aof_enabled:0\r\n# Stats\r\nrejected_connections:0\r\nexpired_stale_perc:0.00\r\nevicted_keys:0\r\nkeyspace_hits:0\r\n\
         keyspace_misses:1\r\nlatest_fork_usec:0\r\ntotal_error_replies:1\r\n# Replication\r\nrole:master\r\nconnected_slaves:1\r\n\
         slave0:ip=10.0.0.2,port=6379,state=online,offset=1400,lag=1\r\nmaster_repl_offset:1414\r\n# Errorstats\r\n\
         errorstat_WRONGTYPE:count=1\r\n# Keyspace\r\ndb0:keys=4,expires=3,avg_ttl=99917\r\ndb3:keys=1,expires=0,avg_ttl=0\r\n",
    ),
    (
        "7.2",
        Kind::Redis,
        (7, 2),
        "redis_version:7.2.5\r\nused_memory:900000\r\nused_memory_rss:7000000\r\nallocator_allocated:1\r\nrole:master\r\n\
         expired_keys:0\r\nevicted_keys:0\r\nevicted_clients:0\r\ntotal_error_replies:1\r\nslave0:ip=10.0.0.2,port=6379,state=online,offset=1400,lag=1\r\n\
         errorstat_WRONGTYPE:count=1\r\ndb0:keys=4,expires=3,avg_ttl=1\r\ndb3:keys=1,expires=0,avg_ttl=0\r\n",
    ),
    (
        "8.0",
        Kind::Redis,
        (8, 0),
        "redis_version:8.0.2\r\nused_memory:900000\r\nused_memory_rss:7000000\r\nmem_overhead_db_hashtable_rehashing:0\r\nrole:master\r\n\
         evicted_keys:0\r\ntotal_error_replies:1\r\nslave0:ip=10.0.0.2,port=6379,state=online,offset=1400,lag=1\r\nmodule:name=vectorset,ver=1\r\n\
         module:name=search,ver=80001\r\nsearch_gc_bytes_collected:0\r\nerrorstat_WRONGTYPE:count=1\r\n\
         db0:keys=4,expires=3,avg_ttl=1,subexpiry=0\r\ndb3:keys=1,expires=0,avg_ttl=0,subexpiry=2\r\ndb0_distrib_strings_sizes:1=1,2=3\r\n",
    ),
    (
        "valkey 7.2",
        Kind::Valkey,
        (7, 2),
        "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:7.2.9\r\nused_memory:900000\r\nused_memory_rss:7000000\r\nrole:master\r\n\
         evicted_keys:0\r\ntotal_error_replies:1\r\nslave0:ip=10.0.0.2,port=6379,state=online,offset=1400,lag=1\r\n\
         errorstat_WRONGTYPE:count=1\r\ndb0:keys=4,expires=3,avg_ttl=1\r\ndb3:keys=1,expires=0,avg_ttl=0\r\n",
    ),
    (
        "valkey 9.0",
        Kind::Valkey,
        (9, 0),
        "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.0.1\r\nvalkey_release_stage:ga\r\nserver_mode:standalone\r\n\
         used_memory:900000\r\nused_memory_rss:7000000\r\nrole:master\r\nevicted_keys:0\r\ntotal_error_replies:1\r\n\
         slave0:ip=10.0.0.2,port=6379,state=online,offset=1400,lag=1,type=replica\r\nerrorstat_WRONGTYPE:count=1\r\n\
         db0:keys=4,expires=3,avg_ttl=1,keys_with_volatile_items=0\r\ndb3:keys=1,expires=0,avg_ttl=0,keys_with_volatile_items=1\r\n",
    ),
    (
        "7.4",
        Kind::Redis,
        (7, 4),
        "redis_version:7.4.1\nused_memory:900000\nused_memory_rss:7000000\nrole:master\nevicted_keys:0\ntotal_error_replies:1\n\
         slave0:ip=10.0.0.2,port=6379,state=online,offset=1400,lag=1\nerrorstat_WRONGTYPE:count=1\n\
         db0:keys=4,expires=3,avg_ttl=1,subexpiry=0\ndb3:keys=1,expires=0,avg_ttl=0,subexpiry=0\n",
    ),
];

#[test]
fn versions_by_the_documentation_are_read() {
    for (name, kind, number, text) in DOCUMENTED {
        let info = Info::parse(text);
        assert_eq!((info.server().kind, info.server().number), (kind, Some(number)), "{name}");
        let keys: Vec<Keyspace> = info.keyspaces().collect();
        let want = [Keyspace { db: 0, keys: 4, expires: 3 }, Keyspace { db: 3, keys: 1, expires: 0 }];
        assert_eq!(keys, want, "{name}");
        let replicas: Vec<_> = info.replicas().collect();
        assert_eq!((replicas.len(), replicas[0].lag, replicas[0].offset), (1, Some(1), Some(1_400)), "{name}");
        assert_eq!((&replicas[0].address[..], &replicas[0].state[..]), ("10.0.0.2:6379", "online"), "{name}");
        assert_eq!((info.errors("WRONGTYPE"), info.errors("OOM")), (Some(1), Some(0)), "{name}");
        assert_eq!((info.number("used_memory"), info.is_replica()), (Some(900_000), Some(false)), "{name}");
    }
}

#[test]
fn real_servers_are_read() {
    let want = [
        (REDIS_7_0, Kind::Redis, "7.0.15", "jemalloc-5.3.0"),
        (REDIS_7_4, Kind::Redis, "7.4.1", "jemalloc-5.3.0"),
        (VALKEY_8_1, Kind::Valkey, "8.1.8", "libc"),
        (VALKEY_9_1, Kind::Valkey, "9.1.2", "libc"),
    ];
    for (text, kind, version, allocator) in want {
        let info = Info::parse(text);
        let server = info.server();
        assert_eq!((server.kind, &server.version[..]), (kind, version));
        assert_eq!(info.text("mem_allocator"), Some(allocator), "{version}");
        let facts = Facts::of(Millis(0), &Answer { info: info.clone(), ..Answer::default() });
        assert_eq!((facts.keys, facts.expires, facts.lasting()), (Some(5), Some(3), Some(2)), "{version}");
        assert_eq!((facts.misses, facts.evicted, facts.out_of_memory), (Some(1), Some(0), Some(0)), "{version}");
        assert_eq!(info.errors("WRONGTYPE"), Some(1), "{version}");
        for name in [
            "used_memory",
            "used_memory_rss",
            "mem_not_counted_for_evict",
            "maxclients",
            "total_system_memory",
            "client_recent_max_input_buffer",
            "rdb_last_save_time",
            "uptime_in_seconds",
            "latest_fork_usec",
            "mem_clients_normal",
            "mem_clients_slaves",
        ] {
            assert!(info.number(name).is_some(), "{version}: {name}");
        }
    }
}

// O2
#[test]
fn counters_below_zero_are_unknown() {
    let text = "used_memory:1500000\r\nused_memory_dataset:18446744073708551100\r\nused_memory_dataset_perc:45035996273704960.00%\r\n\
                mem_fragmentation_ratio:24.30\r\nused_memory_overhead:-4\r\nallocator_frag_ratio:nan\r\nrss_overhead_ratio:inf\r\n\
                maxmemory:9223372036854775808\r\nlarge:9223372036854775807\r\n";
    let info = Info::parse(text);
    for name in ["used_memory_dataset", "used_memory_overhead", "maxmemory", "absent", "mem_fragmentation_ratio"] {
        assert_eq!(info.number(name), None, "{name}");
    }
    for name in ["used_memory_dataset_perc", "allocator_frag_ratio", "rss_overhead_ratio", "absent"] {
        assert_eq!(info.ratio(name), None, "{name}");
    }
    assert_eq!((info.number("used_memory"), info.number("large")), (Some(1_500_000), Some((1 << 63) - 1)));
    assert_eq!(info.ratio("mem_fragmentation_ratio"), Some(24.3));
}

#[test]
fn odd_lines_are_passed_over() {
    let info = Info::parse("# Memory\r\n\r\n:nothing\r\nno colon\r\na:1\r\na:2\r\nurl:http://x:1/\r\nlast:7");
    assert_eq!((info.text("a"), info.text("url"), info.text("last")), (Some("1"), Some("http://x:1/"), Some("7")));
    assert_eq!((info.text(""), info.text("no colon"), info.text("# Memory")), (None, None, None));
    assert!(Info::parse("").is_empty() && !info.is_empty());
    let long = format!("{}\r\nbehind:1\r\n", "x".repeat(1 << 20));
    assert_eq!(Info::parse(&long).text("behind"), None);
}

proptest! {
    #[test]
    fn no_text_is_too_odd(text in any::<String>(), lines in prop::collection::vec("[a-z0-9_]{1,12}:[ -~]{0,40}", 0..40)) {
        for text in [text, lines.join("\r\n"), with(REDIS_7_0, &[("db0", &lines.concat()), ("slave0", &lines.concat())])] {
            let mut scene = Scene::new(Purpose::Shared);
            scene.text = text;
            scene.looks(3);
            let saved = scene.judge.save();
            prop_assert!(Judge::restore(Settings::default(), &saved).is_ok());
        }
    }

    #[test]
    fn no_number_is_too_odd(name in prop::sample::select(REDIS_7_0.lines().filter_map(|l| Some(l.split_once(':')?.0)).collect::<Vec<_>>()),
                            value in prop_oneof![any::<u64>().prop_map(|n| n.to_string()), any::<f64>().prop_map(|n| n.to_string()), "[ -~]{0,12}"]) {
        for purpose in [Purpose::State, Purpose::Cache, Purpose::Shared] {
            let mut scene = Scene::new(purpose);
            scene.looks(2);
            scene.set(&[(name, &value)]);
            scene.looks(12);
            scene.set(&[(name, "1")]);
            scene.looks(2);
        }
    }
}
