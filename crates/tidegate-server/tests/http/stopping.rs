//! An orderly end: what was begun is answered, what is new is told, nobody holds it up.

use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_server::Limits;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::client::{Api, read_one};

#[tokio::test]
async fn kept_alive_connections_are_told() {
    let mut api = Api::limited(Limits { stop_notice: Duration::from_millis(800), ..Limits::default() }).await;
    let mut kept = api.connect().await;
    let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    kept.write_all(request).await.expect("sent");
    assert_eq!(read_one(&mut kept).await.status, 200);
    api.begin_stop();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(TcpStream::connect(api.address).await.is_err(), "nothing new is accepted");
    kept.write_all(request).await.expect("sent");
    let told = read_one(&mut kept).await;
    assert_eq!((told.status, told.code().as_str()), (503, "stopping"));
    assert_eq!((told.header("retry-after"), told.header("connection")), ("2", "close"));
    api.ended().await;
}

#[tokio::test]
async fn what_was_begun_is_answered_and_a_slow_client_holds_nobody_up() {
    let limits =
        Limits { stop_notice: Duration::from_millis(100), stop_patience: Duration::from_secs(2), ..Limits::default() };
    let mut api = Api::limited(limits).await;
    api.sku("mug", 9).await;
    let body = json!({"order_id": "o-1", "buyer_id": "b", "lines": [{"sku": "mug", "quantity": 1}]}).to_string();
    let head = format!(
        "POST /v1/orders HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let (begun, rest) = body.split_at(10);
    let mut honest = api.connect().await;
    honest.write_all(format!("{head}{begun}").as_bytes()).await.expect("sent");
    let mut slow = api.connect().await;
    slow.write_all(format!("{head}{begun}").as_bytes()).await.expect("sent");
    let _idle = api.connect().await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let stopping = Instant::now();
    api.begin_stop();
    tokio::time::sleep(Duration::from_millis(300)).await;
    honest.write_all(rest.as_bytes()).await.expect("sent");
    let placed = read_one(&mut honest).await;
    assert_eq!((placed.status, placed.header("connection")), (201, "close"), "{placed:?}");
    api.ended().await;
    assert!(stopping.elapsed() < Duration::from_secs(5), "{:?}", stopping.elapsed());
}

#[tokio::test]
async fn a_crowd_at_work_loses_nothing_that_was_acknowledged() {
    let mut api = Api::start().await;
    api.sku("mug", 1_000_000).await;
    let address = api.address;
    let workers: Vec<_> = (0..16)
        .map(|worker| {
            tokio::spawn(async move {
                let mut connection = TcpStream::connect(address).await.expect("a connection");
                let mut acknowledged = Vec::new();
                for i in 0.. {
                    let id = format!("w{worker}-{i}");
                    let body = json!({"order_id": id, "buyer_id": "b", "lines": [{"sku": "mug", "quantity": 1}]}).to_string();
                    let head = format!("POST /v1/orders HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
                    connection.write_all(format!("{head}{body}").as_bytes()).await.expect("sent");
                    let reply = read_one(&mut connection).await;
                    match reply.status {
                        201 => acknowledged.push(id),
                        503 => break,
                        other => panic!("{other}: {reply:?}"),
                    }
                    if reply.header("connection") == "close" {
                        break;
                    }
                }
                acknowledged
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    api.begin_stop();
    let mut acknowledged = Vec::new();
    for worker in workers {
        acknowledged.extend(worker.await.expect("a worker"));
    }
    assert!(acknowledged.len() > 16);
    let orders = api.tidegate.orders();
    for id in acknowledged {
        let id = tidegate::core::OrderId::parse(&id).expect("an id");
        assert!(orders.get(id.clone()).await.expect("a ledger").is_some(), "{id} was acknowledged and is lost");
    }
    api.ended().await;
}
