//! `/v1/redis` over real sockets, on a real server and on samples that the tests make.
#![allow(clippy::unwrap_used, reason = "tests")]

#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../http/client.rs"]
mod client;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate::BoxFuture;
use tidegate::core::Millis;
use tidegate::watch::{
    self, Answer, Info, Reply as Sampled, Round, Rule, RuleSettings, Sample, SampleSource, Settings, Watch,
    WatchOptions,
};
use tidegate_conformance::servers::{Redis, Setup};
use tidegate_server::RedisWatch;

use client::Api;

async fn watching(sources: Vec<Box<dyn SampleSource>>, options: WatchOptions, urls: Vec<String>) -> Api {
    let watch = Arc::new(Watch::start(sources, options, None).await.unwrap());
    Api::watching(RedisWatch { watch, urls, authority: None }).await
}

fn options() -> WatchOptions {
    WatchOptions { interval: Duration::from_millis(100), settings: Settings::default() }
}

async fn on(redis: &Redis) -> Api {
    let urls = vec![redis.url()];
    watching(watch::on_redis(&urls, &options()).unwrap(), options(), urls).await
}

async fn json(api: &Api, path: &str) -> Value {
    let reply = api.get(path).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

async fn until(api: &Api, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let answer = json(api, path).await;
        if is_so(&answer) {
            return answer;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{answer}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Answers with the lines that `info` gives for each look.
struct Told<F>(F, u64);

impl<F: Fn(u64) -> String + Send> SampleSource for Told<F> {
    fn round(&mut self) -> BoxFuture<'_, Round> {
        let look = self.1;
        self.1 += 1;
        let answer = Answer { info: Info::parse(&(self.0)(look)), ..Answer::default() };
        let at = Millis(1_796_050_000_000 + i64::try_from(look).unwrap() * 1_000);
        let reply = Sampled::Answer(Box::new(answer));
        let sample = Sample { address: "10.0.0.7:6379".to_owned(), at, reply, is_late: false, tls: false };
        Box::pin(async { Round { samples: vec![sample], gone: Vec::new() } })
    }
}

#[tokio::test]
async fn memory_has_every_field() {
    let redis =
        Redis::start_with(Setup::default().option("maxmemory", "50mb").option("maxmemory-policy", "allkeys-lru"));
    for n in 0..5 {
        redis.tell(&["SET", &format!("k{n}"), "x"]);
    }
    let api = on(&redis).await;
    let known =
        |answer: &Value| answer["servers"].get(0).is_some_and(|server| server["evicted_per_second"].is_number());
    let answer = until(&api, "/v1/redis/memory", known).await;
    let [server] = &answer["servers"].as_array().unwrap()[..] else { panic!("{answer}") };
    let fields = [
        "address",
        "server",
        "version",
        "role",
        "sampled_at",
        "used_bytes",
        "rss_bytes",
        "limit_bytes",
        "limit_source",
        "pressure",
        "fragmentation_ratio",
        "allocator_frag_bytes",
        "evicted_per_second",
        "policy",
        "keys",
    ];
    let mut named: Vec<&str> = server.as_object().unwrap().keys().map(String::as_str).collect();
    let mut wanted = fields.to_vec();
    named.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(named, wanted);
    assert_eq!((&server["server"], &server["role"]), (&json!("redis"), &json!("master")));
    assert_eq!(server["address"], format!("127.0.0.1:{}", redis.port()));
    assert_eq!((&server["limit_bytes"], &server["limit_source"]), (&json!(50 << 20), &json!("maxmemory")));
    assert_eq!(
        (&server["policy"], &server["keys"], &server["evicted_per_second"]),
        (&json!("allkeys-lru"), &json!(5), &json!(0.0))
    );
    assert!(server["pressure"].as_f64().is_some_and(|share| (0.0..0.5).contains(&share)), "{server}");
    assert!(server["sampled_at"].as_str().unwrap().ends_with('Z') && server["version"].is_string());
    for field in ["used_bytes", "rss_bytes", "allocator_frag_bytes"] {
        assert!(server[field].as_u64().is_some(), "{field}: {server}");
    }
    assert!(server["fragmentation_ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{server}");
    api.stop().await;
}

#[tokio::test]
async fn what_is_unknown_is_null() {
    let api = watching(vec![Box::new(Told(|_| "role:master\r\n".to_owned(), 0))], options(), Vec::new()).await;
    let answer = until(&api, "/v1/redis/memory", |answer| !answer["servers"][0].is_null()).await;
    for field in [
        "version",
        "used_bytes",
        "rss_bytes",
        "limit_bytes",
        "limit_source",
        "pressure",
        "fragmentation_ratio",
        "allocator_frag_bytes",
        "policy",
    ] {
        assert_eq!(answer["servers"][0].get(field), Some(&Value::Null), "{field}: {answer}");
    }
    api.stop().await;
}

#[tokio::test]
async fn a_user_that_may_only_ask_for_info_sees_it() {
    let redis = Redis::start_with(Setup::default().option("maxmemory", "20mb"));
    redis.tell(&["SET", "k", "x"]);
    redis.tell(&["ACL", "SETUSER", "watch", "on", ">word", "+info", "+ping", "+hello"]);
    let url = redis.url().replacen("redis://", "redis://watch:word@", 1);
    let api = watching(watch::on_redis(std::slice::from_ref(&url), &options()).unwrap(), options(), vec![url]).await;
    let answer = until(&api, "/v1/redis/memory", |answer| !answer["servers"][0].is_null()).await;
    assert_eq!(
        (&answer["servers"][0]["limit_bytes"], &answer["servers"][0]["policy"]),
        (&json!(20 << 20), &json!("noeviction"))
    );
    assert_eq!(json(&api, "/v1/redis/findings").await["items"], json!([]));
    // It may not look at keys: that is a failure with a reason, not an empty list.
    assert_eq!(api.send("POST", "/v1/redis/big-keys", json!({"route": "scan"})).await.status, 202);
    let failed = until(&api, "/v1/redis/big-keys", |look| look["state"] != "running").await;
    assert!(
        failed["state"] == "failed" && failed["error"].as_str().is_some_and(|why| !why.contains("word")),
        "{failed}"
    );
    api.stop().await;
}

#[tokio::test]
async fn findings_are_shown_while_they_are_open_and_paged_when_they_are_closed() {
    // Fails for one look, then is well for two: a finding every three looks.
    let turns = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&turns);
    let info = move |look: u64| {
        seen.store(look, Ordering::Relaxed);
        let status = if look < 60 && look.is_multiple_of(3) || look > 60 { "err" } else { "ok" };
        format!("role:master\r\nrdb_last_bgsave_status:{status}\r\n")
    };
    let mut options = options();
    let settings = RuleSettings { quiet_ms: 0, ..Rule::SaveFailing.defaults() };
    options.settings.set(Rule::SaveFailing, settings).unwrap();
    let api = watching(vec![Box::new(Told(info, 0))], options, Vec::new()).await;
    let open = until(&api, "/v1/redis/findings", |page| {
        turns.load(Ordering::Relaxed) > 62 && page["items"].as_array().is_some_and(|items| items.len() == 1)
    })
    .await;
    let finding = &open["items"][0];
    let fields = ["id", "rule", "severity", "address", "opened_at", "cause", "evidence", "next_command", "risk"];
    for field in fields {
        assert!(!finding[field].is_null(), "{field}: {finding}");
    }
    assert_eq!((&finding["rule"], &finding["address"]), (&json!("save-failing"), &json!("10.0.0.7:6379")));
    assert!(finding.get("closed_at").is_none() && open["next_cursor"].is_null(), "{open}");
    assert_eq!(json(&api, "/v1/redis/findings?state=open").await, open);

    let all = json(&api, "/v1/redis/findings?state=closed&limit=500").await;
    let all = all["items"].as_array().unwrap();
    assert!(all.len() > 5, "{}", all.len());
    assert!(all.windows(2).all(|two| two[0]["closed_at"].as_str() > two[1]["closed_at"].as_str()));
    let (mut paged, mut path) = (Vec::new(), "/v1/redis/findings?state=closed&limit=3".to_owned());
    loop {
        let page = json(&api, &path).await;
        paged.extend(page["items"].as_array().unwrap().clone());
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/redis/findings?state=closed&limit=3&cursor={cursor}");
    }
    assert_eq!(&paged, all);
    let first = json(&api, "/v1/redis/findings?state=closed&limit=1").await["next_cursor"].as_str().unwrap().to_owned();
    for (query, pointer) in [
        ("state=shut".to_owned(), "/state"),
        ("state=closed&cursor=x".to_owned(), "/cursor"),
        (format!("state=open&cursor={first}"), "/cursor"),
        ("limit=0".to_owned(), "/limit"),
    ] {
        let refused = api.get(&format!("/v1/redis/findings?{query}")).await;
        assert_eq!((refused.code().as_str(), refused.pointers()), ("invalid", vec![pointer.to_owned()]), "{query}");
    }
    api.stop().await;
}

#[tokio::test]
async fn one_look_at_big_keys_at_a_time() {
    let redis = Redis::start();
    redis.tell(&["SET", "a\u{1}b", &"x".repeat(100_000), "EX", "1000"]);
    redis.tell(&["RPUSH", "list", "a", "b"]);
    let api = on(&redis).await;
    assert_eq!(json(&api, "/v1/redis/big-keys").await["state"], "none");
    for body in [json!({"route": "keys"}), json!({"top": 0}), json!({"top": 1_001}), json!({"paths": 1}), json!([])] {
        assert_eq!(api.send("POST", "/v1/redis/big-keys", body).await.code(), "invalid");
    }
    // What no look could do is refused before it begins.
    let refused = api.send("POST", "/v1/redis/big-keys", json!({"route": "keysizes"})).await;
    assert_eq!((refused.status, refused.code()), (422, "invalid".to_owned()), "{refused:?}");
    assert!(refused.json().to_string().contains("/route") && refused.json().to_string().contains("INFO keysizes"));
    assert_eq!(json(&api, "/v1/redis/big-keys").await["state"], "none");
    // A server that hangs is looked at for as long as that takes; meanwhile there is no other look.
    redis.freeze();
    let begun = api.send("POST", "/v1/redis/big-keys", json!({"route": "scan", "top": 1})).await;
    assert_eq!(begun.status, 202, "{begun:?}");
    let running = json(&api, "/v1/redis/big-keys").await;
    assert_eq!((&running["state"], &running["scan_id"]), (&json!("running"), &begun.json()["scan_id"]));
    assert!(running["started_at"].is_string() && running["finished_at"].is_null() && running["items"] == json!([]));
    assert_eq!(api.send("POST", "/v1/redis/big-keys", json!({})).await.code(), "scan-running");
    redis.thaw();
    until(&api, "/v1/redis/big-keys", |look| look["state"] != "running").await;
    // Without a body as well.
    let again = api.raw("POST", "/v1/redis/big-keys", &[], b"").await;
    assert_eq!(again.status, 202, "{again:?}");
    let done = until(&api, "/v1/redis/big-keys", |look| look["state"] != "running").await;
    assert_eq!(
        (&done["state"], &done["scanned"], &done["total"], &done["confidence"]),
        (&json!("done"), &json!(2), &json!(2), &json!(1.0))
    );
    let item = &done["items"][0];
    assert_eq!(
        (&item["key"], &item["key_base64"], &item["type"]),
        (&json!("a\\x01b"), &json!("YQFi"), &json!("string"))
    );
    for field in ["bytes", "elements", "encoding", "ttl_ms", "delete_blocks_ms"] {
        assert!(!item[field].is_null(), "{field}: {item}");
    }
    assert!(done["finished_at"].is_string() && done["items"][1]["ttl_ms"].is_null(), "{done}");
    api.stop().await;
}

#[tokio::test]
async fn a_look_ends_with_the_server() {
    let redis = Redis::start();
    let api = on(&redis).await;
    redis.freeze();
    assert_eq!(api.send("POST", "/v1/redis/big-keys", json!({})).await.status, 202);
    let began = Instant::now();
    api.stop().await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    redis.thaw();
}

#[tokio::test]
async fn without_a_watch_there_is_none() {
    let api = Api::start().await;
    for path in ["/v1/redis/memory", "/v1/redis/findings", "/v1/redis/big-keys", "/v1/redis/hot-keys"] {
        assert_eq!(api.get(path).await.code(), "no-redis", "{path}");
    }
    assert_eq!(api.send("POST", "/v1/redis/big-keys", json!({})).await.code(), "no-redis");
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hot_keys_are_told_by_those_who_read() {
    use tidegate::blocks::RedisOptions;
    use tidegate::cache::{Cache, CacheError, Caches, LoadContext, Loaded, RedisCache, RedisCacheOptions};

    let redis = Redis::start();
    let api = on(&redis).await;
    let nothing = json(&api, "/v1/redis/hot-keys").await;
    assert_eq!((&nothing["source"], &nothing["seconds"]), (&json!("sketch"), &json!(10.0)), "{nothing}");
    assert_eq!(nothing["items"], json!([]));
    let options = RedisOptions::parse(&redis.url()).unwrap().name("tea").unwrap();
    let store = Arc::new(RedisCache::open(options, RedisCacheOptions::default()).await.unwrap());
    let caches = Caches::builder(store).start().unwrap();
    let load = |key: String, _: LoadContext| async move { Ok::<_, CacheError>(Loaded::value(key)) };
    let cache: Cache<String, String> = caches.cache("pots").loader(load).unwrap();
    let reading = tokio::spawn(async move {
        loop {
            for n in 0..10 {
                cache.get(&if n < 6 { "mug".to_owned() } else { format!("pot-{n}") }).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let known = |answer: &Value| answer["items"].as_array().is_some_and(|items| items.len() == 5);
    let answer = until(&api, "/v1/redis/hot-keys", known).await;
    let first = &answer["items"][0];
    let names: Vec<&str> = first.as_object().unwrap().keys().map(String::as_str).collect();
    assert!(["key", "share", "per_second"].iter().all(|name| names.contains(name)), "{answer}");
    assert!(first["key"].as_str().is_some_and(|key| key.starts_with("tg:tea:c:pots:{:")), "{answer}");
    assert!(first["share"].as_f64().is_some_and(|share| (0.5..0.7).contains(&share)), "{answer}");
    assert!(first["per_second"].as_f64().is_some_and(|rate| rate > 1.0), "{answer}");
    assert_eq!((&answer["processes"], &first["purpose"]), (&json!(1), &json!("Tidegate: a cached entry")));
    reading.abort();
    caches.close().await;
    redis.kill();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(api.get("/v1/redis/hot-keys").await.code(), "store-unavailable");
    api.stop().await;
}
