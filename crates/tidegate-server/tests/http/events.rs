//! The log of events, by page and as a stream.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_server::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::client::Api;

/// A reader of a stream.
struct Reader(TcpStream, String);

impl Reader {
    async fn open(api: &Api, path: &str, headers: &str) -> Self {
        let mut connection = api.connect().await;
        connection
            .write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n").as_bytes())
            .await
            .expect("sent");
        Self(connection, String::new())
    }

    /// Reads until `enough` of the text so far; false when the stream has ended.
    async fn until(&mut self, enough: impl Fn(&str) -> bool) -> bool {
        while !enough(&self.1) {
            let mut piece = [0; 8192];
            let n = timeout(Duration::from_secs(15), self.0.read(&mut piece)).await.expect("in time").expect("bytes");
            if n == 0 {
                return false;
            }
            self.1.push_str(&String::from_utf8_lossy(&piece[..n]));
        }
        true
    }

    fn ids(&self) -> Vec<i64> {
        self.1.lines().filter_map(|line| line.strip_prefix("id: ")).map(|id| id.parse().expect("a cursor")).collect()
    }
}

#[tokio::test]
async fn pages_go_on_by_cursor() {
    let api = Api::start().await;
    api.sku("mug", 9).await;
    for i in 0..5 {
        api.place(&format!("o-{i}"), "mug", 1).await;
    }
    let (mut after, mut seen) = (0, Vec::new());
    loop {
        let page = api.get(&format!("/v1/events?after={after}&limit=2")).await.json();
        let items = page["items"].as_array().expect("items").clone();
        let Some(last) = items.last() else {
            assert_eq!(page["next_cursor"], Value::Null);
            break;
        };
        assert_eq!(page["next_cursor"], last["cursor"]);
        after = last["cursor"].as_i64().expect("a number");
        seen.extend(items);
    }
    assert_eq!(seen.len(), 5);
    let first = &seen[0];
    assert_eq!((&first["order_id"], &first["seq"], &first["type"]), (&json!("o-0"), &json!(1), &json!("order.placed")));
    assert_eq!(first["data"]["order"]["id"], "o-0");
    api.stop().await;
}

#[tokio::test]
async fn a_stream_goes_on_where_it_was_left() {
    let api = Api::start().await;
    api.sku("mug", 9).await;
    api.place("o-1", "mug", 1).await;
    let mut first = Reader::open(&api, "/v1/events/stream", "").await;
    assert!(first.until(|text| text.contains("data: {")).await);
    assert!(
        first.1.contains("content-type: text/event-stream") && first.1.contains("event: order.placed\n"),
        "{}",
        first.1
    );
    let line = first.1.lines().find_map(|line| line.strip_prefix("data: ")).expect("an event");
    let event: Value = serde_json::from_str(line).expect("JSON on one line");
    assert_eq!((&event["order_id"], &event["cursor"]), (&json!("o-1"), &json!(1)));
    api.place("o-2", "mug", 1).await;
    assert!(first.until(|text| text.contains("\nid: 2\n")).await, "woken by a commit");
    drop(first);
    api.place("o-3", "mug", 1).await;
    let mut second = Reader::open(&api, "/v1/events/stream?after=0", "last-event-id: 2\r\n").await;
    assert!(second.until(|text| text.contains("\nid: 3\n")).await);
    assert_eq!(second.ids(), [3], "the header is nearer than the address");
    let mut third = Reader::open(&api, "/v1/events/stream?after=1", "").await;
    assert!(third.until(|text| text.contains("\nid: 3\n")).await);
    assert_eq!(third.ids(), [2, 3]);
    assert_eq!(
        api.raw("GET", "/v1/events/stream", &[("last-event-id", "x")], b"").await.pointers(),
        ["/last-event-id"]
    );
    api.stop().await;
    assert!(!third.until(|_| false).await, "a stream ends at stop");
}

#[tokio::test]
async fn streams_are_bounded() {
    let api = Api::limited(Limits { max_event_streams: 1, ..Limits::default() }).await;
    let mut first = Reader::open(&api, "/v1/events/stream", "").await;
    assert!(first.until(|text| text.contains("retry:")).await);
    let refused = api.get("/v1/events/stream").await;
    assert_eq!((refused.code().as_str(), refused.header("retry-after")), ("overloaded", "10"));
    drop(first);
    api.sku("mug", 9).await;
    api.place("o-1", "mug", 1).await;
    for _ in 0..100 {
        let mut again = Reader::open(&api, "/v1/events/stream", "").await;
        if again.until(|text| text.contains("retry:") || text.contains("overloaded")).await
            && again.1.contains("retry:")
        {
            api.stop().await;
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("a place that became free was not given again");
}
