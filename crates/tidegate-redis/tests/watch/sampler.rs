//! What is asked, and what happens where it may not be.

use tidegate_conformance::servers::Engine;

use super::*;

// O11
#[tokio::test]
async fn a_user_that_may_only_ask_for_info_sees_what_that_shows() {
    let redis = with_options(&[("maxmemory", "30mb")]);
    redis.tell(&["ACL", "SETUSER", "watch", "on", ">secret", "+info", "+ping"]);
    let url = redis.url().replace("redis://", "redis://watch:secret@");
    let mut watching = Watching::new(&url, short(Purpose::State));
    watching.quiet(5).await;
    let memory = watching.judge.memory().next().unwrap().clone();
    assert_eq!((memory.limit_bytes, memory.limit_source), (Some(30 << 20), Some("maxmemory")));
    let answer = watching.last.samples[0].answer().unwrap();
    assert_eq!((answer.config.permitted, answer.slow.clone(), answer.config.save.clone()), (Some(false), None, None));
    // What was forbidden is not tried again and again.
    let errors = || redis.tell(&["INFO", "errorstats"]);
    let before = errors();
    assert!(before.contains("NOPERM"), "{before}");
    watching.quiet(5).await;
    assert_eq!(errors(), before);
    fill(&redis, "a", 28, 1 << 20);
    let finding = watching.told(Rule::MemoryPressure, || {}).await;
    assert!(!finding.cause.is_empty());
    redis.tell(&["SAVE"]);
    // Without a user that may, nobody is told to type CONFIG.
    let finding =
        watching.told(Rule::FullNoeviction, || drop(redis.try_tell(&["APPEND", "b", &"x".repeat(1 << 20)]))).await;
    assert!(finding.next_command.contains("your provider"), "{finding:#?}");
}

#[tokio::test]
async fn a_wrong_password_is_said_to_be_one() {
    let redis = Redis::start_with(Setup::default().user("ann", "secret"));
    let url = redis.url().replace("secret", "wrong");
    let mut watching = Watching::new(&url, short(Purpose::State));
    let finding = watching.told(Rule::BlockedServer, || {}).await;
    assert!(finding.cause.contains("does not let the watch in") && !finding.cause.contains("wrong@"), "{finding:#?}");
}

#[tokio::test]
async fn a_look_costs_a_server_one_round_trip() {
    for engine in Engine::ALL {
        let redis = Redis::start_with(Setup::default().engine(engine));
        let mut watching = Watching::new(&redis.url(), short(Purpose::Cache));
        watching.look().await;
        let calls = || -> u64 {
            let stats = redis.tell(&["INFO", "stats"]);
            let line = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:")).unwrap();
            line.trim().parse().unwrap()
        };
        let before = calls();
        watching.quiet(5).await;
        // INFO and SLOWLOG GET 1, five times, and one INFO of ours.
        assert!(calls() - before <= 5 * 2 + 1, "{engine:?}");
        let answer = watching.last.samples[0].answer().unwrap();
        assert_eq!((answer.config.permitted, answer.config.save.clone()), (Some(true), Some(Vec::new())), "{engine:?}");
        assert_eq!(answer.host.swapped_bytes, Some(0), "{engine:?}: the server runs on this machine");
    }
}

// O1, O6: idle servers of both kinds, by the rules as they come.
#[tokio::test]
async fn idle_servers_are_never_told_of() {
    for engine in Engine::ALL {
        let redis = Redis::start_with(Setup::default().engine(engine));
        let mut settings = Settings::new(Purpose::State);
        for rule in Rule::ALL {
            // Their age does not save them.
            settings.set(*rule, RuleSettings { min_uptime_s: 0, samples: 1, of: 1, ..rule.defaults() }).unwrap();
        }
        let mut watching = Watching::new(&redis.url(), settings);
        watching.quiet(15).await;
    }
}
