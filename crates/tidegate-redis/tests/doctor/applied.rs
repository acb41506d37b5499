//! What is set, and what is not.

use tidegate_core::doctor::{Step, steps};
use tidegate_redis::doctor::{Applied, Outcome, apply};

use super::*;

async fn set(url: &str, steps: &[Step]) -> Vec<Applied> {
    apply(&RedisOptions::parse(url).unwrap(), steps).await.unwrap()
}

/// Everything that can be set is set, and a second look finds none of it.
#[tokio::test]
async fn what_is_set_is_found_no_more() {
    for engine in ENGINES {
        for role in [Purpose::State, Purpose::Cache, Purpose::Shared] {
            let [master, first, second] = [(); 3].map(|()| Redis::start_with(Setup::default().engine(engine)));
            follow(&master, &first).await;
            follow(&master, &second).await;
            let policy = if role == Purpose::Cache { "noeviction" } else { "allkeys-random" };
            for (name, value) in [
                ("maxmemory-policy", policy),
                ("tcp-keepalive", "0"),
                ("timeout", "10"),
                ("slowlog-log-slower-than", "-1"),
                ("slowlog-max-len", "2"),
                ("repl-backlog-size", "1mb"),
                ("client-output-buffer-limit", "replica 1mb 1mb 10"),
                ("lazyfree-lazy-expire", "no"),
                ("auto-aof-rewrite-percentage", "0"),
            ] {
                master.tell(&["CONFIG", "SET", name, value]);
            }
            let report = look(&master.url(), role).await;
            let planned = steps(&report);
            assert!(planned.len() >= 9, "{planned:#?}");
            let applied = set(&master.url(), &planned).await;
            assert_eq!(applied.len(), planned.len());
            for done in &applied {
                assert_eq!(done.outcome, Outcome::Set, "{engine:?} {role:?}: {done:#?}");
                assert_eq!(done.config_file, None, "it was started without a file");
            }
            let again = look(&master.url(), role).await;
            let left: Vec<_> = steps(&again);
            // What makes the server fork, or limits it, may show what was no matter before; all else is gone.
            let new: Vec<_> =
                left.iter().filter(|step| planned.iter().any(|old| old.change.name == step.change.name)).collect();
            assert!(new.is_empty(), "{engine:?} {role:?}: {new:#?}");
            let last = set(&master.url(), &left).await;
            assert!(last.iter().all(|done| done.outcome == Outcome::Set), "{last:#?}");
            assert_eq!(steps(&look(&master.url(), role).await), [], "{engine:?} {role:?}");
            let expected = match role {
                Purpose::State => "noeviction",
                Purpose::Cache => "allkeys-lfu",
                // Whether state lies there is the operator's to say.
                Purpose::Shared => "allkeys-random",
            };
            assert!(master.tell(&["CONFIG", "GET", "maxmemory-policy"]).contains(expected));
            assert_eq!(master.tell(&["PING"]), "PONG");
        }
    }
}

/// Each step ends for itself: one that is forbidden, one that is no longer safe, one of a server that is gone.
#[tokio::test]
async fn some_steps_fail() {
    let redis = Redis::start_with(Setup::default().option("maxmemory-policy", "allkeys-lru"));
    redis.tell(&["CONFIG", "SET", "tcp-keepalive", "0"]);
    redis.tell(&["CONFIG", "SET", "timeout", "10"]);
    let planned = steps(&look(&redis.url(), Purpose::State).await);
    let names: Vec<&str> = planned.iter().map(|step| step.change.name.as_str()).collect();
    assert!(
        ["maxmemory-policy", "maxmemory", "tcp-keepalive", "timeout"].iter().all(|name| names.contains(name)),
        "{names:?}"
    );
    // Somebody is faster.
    redis.tell(&["CONFIG", "SET", "timeout", "400"]);
    redis.tell(&["ACL", "SETUSER", "looker", "on", ">word", "~*", "+@all", "-config", "+config|get"]);
    let url = format!("redis://looker:word@127.0.0.1:{}", redis.port());
    let refused = set(&url, &planned).await;
    for done in &refused {
        match done.step.change.name.as_str() {
            "maxmemory" => {
                assert!(matches!(&done.outcome, Outcome::Refused(why) if why.contains("policy")), "{done:?}");
            }
            "timeout" => assert!(matches!(&done.outcome, Outcome::Refused(why) if why.contains("400")), "{done:?}"),
            _ => assert!(matches!(&done.outcome, Outcome::Failed(why) if why.contains("no permissions")), "{done:?}"),
        }
    }
    assert!(redis.tell(&["CONFIG", "GET", "tcp-keepalive"]).ends_with('0'));
    // A limit is not set below what is used by now.
    let limit = planned.iter().find(|step| step.change.name == "maxmemory").unwrap();
    let mut low = limit.clone();
    low.change.to = "1048576".to_owned();
    let [done] = &set(&redis.url(), &[low]).await[..] else { panic!("one step") };
    assert!(matches!(&done.outcome, Outcome::Refused(why) if why.contains("are used")), "{done:?}");
    // The file that a server was started with is named.
    redis.kill();
    let gone = set(&redis.url(), &planned).await;
    assert!(gone.iter().all(|done| done.outcome != Outcome::Set), "{gone:?}");
}
