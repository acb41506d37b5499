//! The status of an order that is cached in a hash.
//!
//! `redis-cli HSET order:7 status pending`, then
//! `cargo run -p tidegate-redis --example order_status -- redis://127.0.0.1:6379 order:7 paid`
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::time::Duration;

use tidegate_redis::{Connector, OrderStatus, RedisOptions, StatusChange, StatusOutcome};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [url, key, to] = std::env::args().skip(1).collect::<Vec<_>>().try_into().map_err(|_| "url, key, status")?;
    let connector = Connector::start(RedisOptions::parse(&url)?).await?;
    let status = OrderStatus::new(connector.clone()).ttl(Duration::from_secs(3_600));
    let change = StatusChange { key: &key, to: &to, from: None, fields: &[("changed_by", "example")] };
    match status.change(&change).await? {
        StatusOutcome::Changed { from } => println!("{key}: {from} -> {to}"),
        StatusOutcome::Already => println!("{key} is {to} already"),
        StatusOutcome::Unexpected { now } | StatusOutcome::Illegal { now } => println!("{key} is {now}: not allowed"),
        StatusOutcome::Unknown => println!("{key} is not in the cache: load it and try again"),
        other => println!("{other:?}"),
    }
    connector.close().await;
    Ok(())
}
