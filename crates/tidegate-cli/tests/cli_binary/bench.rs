//! `tidegate bench cache`: what it prints, and that it leaves nothing on a server that is not its own.

use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_conformance::servers::Redis;

use crate::support::{Run, run};

fn lines(run: &Run) -> Vec<Value> {
    run.out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
}

#[test]
fn it_measures_on_a_private_redis_and_prints_a_figure_a_line() {
    let measured = run(&["bench", "cache", "--json", "--scale", "0.01", "--only", "many,expiry"]).expect(0, &[]);
    let lines = lines(&measured);
    let (machine, figures) = lines.split_first().expect("a line about the machine");
    for field in ["cpu", "cores", "tidegate", "build", "redis", "date"] {
        assert!(!machine[field].is_null(), "{field}: {machine}");
    }
    assert_eq!(figures.len(), 3, "{measured:?}");
    for figure in figures {
        assert!(figure["bench"] == "cache" && figure["what"].is_string() && figure["unit"].is_string(), "{figure}");
        assert!(figure["rate"].as_f64().is_some_and(|rate| rate > 0.0), "{figure}");
        assert!(figure["errors"].is_null(), "{figure}");
    }
    assert!(figures[0]["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0) && figures[0]["baseline"].is_string());
    let loads = figures.iter().find(|figure| figure["unit"] == "loads").expect("the loads of a round");
    assert_eq!(loads["rate"].as_f64(), Some(1.0), "exactly one load a round: {loads}");
}

#[test]
fn what_counting_reads_for_hot_keys_costs() {
    let measured = run(&["bench", "cache", "--json", "--scale", "0.01", "--only", "counted"]).expect(0, &[]);
    let lines = lines(&measured);
    let [_, hits, counting] = &lines[..] else { panic!("{measured:?}") };
    assert_eq!((&hits["unit"], &counting["unit"]), (&"hits/s".into(), &"ns".into()), "{measured:?}");
    for figure in [hits, counting] {
        assert!(figure["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{figure}");
        assert!(figure["baseline"].as_str().is_some_and(|text| text.contains("hot_keys(0)")), "{figure}");
    }
    let hit_ns = 1e9 / hits["ceiling"].as_f64().expect("the uncounted hits");
    assert!((counting["ceiling"].as_f64().expect("ns") / hit_ns - 1.0).abs() < 0.01, "{counting}");
}

#[test]
fn on_a_server_that_is_not_its_own_it_clears_up_after_itself() {
    let redis = Redis::start();
    redis.tell(&["SET", "tg:shop:c:products:{:x}:0", "somebody else's"]);
    let args = ["bench", "cache", "--json", "--scale", "0.01", "--only", "store,frozen", "--redis", &redis.url()];
    let measured = run(&args).expect(0, &["left out: only a private Redis is frozen"]);
    assert_eq!(lines(&measured).len(), 5, "{measured:?}");
    // Which keys were hot is told for ten seconds.
    let began = Instant::now();
    while redis.tell(&["KEYS", "*"]).contains("{tg::hot}") {
        assert!(began.elapsed() < Duration::from_secs(30), "{}", redis.tell(&["KEYS", "*"]));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(redis.tell(&["KEYS", "*"]), "tg:shop:c:products:{:x}:0");
}

#[test]
fn what_cannot_be_measured_is_said() {
    run(&["bench", "cache", "--only", "nothing"]).expect(2, &["no such case", "local: "]);
    run(&["bench", "cache", "--redis", "nonsense://u:secret@h"]).expect(2, &["--redis"]);
    let gone =
        run(&["bench", "cache", "--only", "store", "--redis", "redis://u:secret@127.0.0.1:9"]).expect(3, &["Redis"]);
    assert!(!gone.err.contains("secret"), "{gone:?}");
}
