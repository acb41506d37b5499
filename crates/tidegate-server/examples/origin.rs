//! A read-through cache of an HTTP origin, over HTTP: `cargo run -p tidegate-server --example origin`.
//!
//! It starts an origin that takes its time, a server with a namespace of it, and asks: the first answer is a load, the next
//! a hit, and after a `DELETE` there is another load.

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tidegate::cache::Ttl;
use tidegate::{Embedded, Options, Tidegate};
use tidegate_server::{Limits, Namespace, Origin, Server, ServerConfig, Surface};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// Answers each request after a while with its path and a number.
async fn origin() -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        for number in 1.. {
            let Ok((stream, _)) = listener.accept().await else { return };
            tokio::spawn(answer(stream, number));
        }
    });
    Ok(address)
}

async fn answer(mut stream: TcpStream, number: u32) -> std::io::Result<()> {
    let mut lines = BufReader::new(&mut stream).lines();
    let first = lines.next_line().await?.unwrap_or_default();
    while lines.next_line().await?.is_some_and(|line| !line.is_empty()) {}
    tokio::time::sleep(Duration::from_millis(200)).await;
    let body = format!("{} (load {number})", first.split(' ').nth(1).unwrap_or_default());
    let length = body.len();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length:";
    stream.write_all(format!("{head} {length}\r\n\r\n{body}").as_bytes()).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("tidegate-example-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let parts = Embedded::at(folder.join("ledger.db")).open().await?;
    let tidegate = Tidegate::start(parts, Options::default()).await?;

    // The origin is on this machine, which a namespace must allow.
    let at = Origin::new(&format!("http://{}/items/{{key}}", origin().await?), true)?;
    let mut items = Namespace::new("items", at);
    items.fresh_for = Ttl::seconds::<30>();
    let config = ServerConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        tokens: Vec::new(),
        manual_clock: false,
        limits: Limits::default(),
        surface: Surface::Whole,
        namespaces: vec![items],
        redis: None,
    };
    let server = Server::bind(config, tidegate.clone())?;
    let url = format!("http://{}/v1/cache/items/mug%2F7", server.local_addr());
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server.serve(async { drop(stopped.await) }));

    let client = reqwest::Client::builder().no_proxy().build()?;
    let mut seen = Vec::new();
    for method in ["GET", "GET", "DELETE", "GET"] {
        let begun = Instant::now();
        let answer = client.request(method.parse()?, &url).send().await?;
        let from = answer.headers().get("x-cache").map_or("-", |from| from.to_str().unwrap_or_default()).to_owned();
        let (status, body) = (answer.status(), answer.text().await?);
        say(&format!("{method:6} {status} X-Cache: {from:9} {:4} ms  {body}", begun.elapsed().as_millis()));
        seen.push(from);
    }
    assert_eq!(seen, ["miss", "hit-local", "-", "miss"]);

    drop(stop);
    serving.await??;
    tidegate.stop(Duration::from_secs(5)).await?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn say(line: &str) {
    println!("{line}");
}
