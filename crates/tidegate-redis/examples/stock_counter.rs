//! Stock in counters, for a shop whose orders live elsewhere.
//!
//! `cargo run -p tidegate-redis --example stock_counter -- redis://127.0.0.1:6379`
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use tidegate_redis::{Connector, RedisOptions, StockAnswer, StockCounter, StockOperation};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let connector = Connector::start(RedisOptions::parse(&url)?.name("example")?).await?;
    let stock = StockCounter::new(connector.clone());

    // Both lie on one server, so one operation can take both.
    stock.set("{sale}mug", 3).await?;
    stock.set("{sale}cup", 3).await?;

    // The id is the order's: whoever retries after a lost answer gets the first answer again.
    let order = StockOperation::take("order-1", &[("{sale}mug", 2), ("{sale}cup", 1)]);
    for _ in 0..2 {
        match stock.run(&order).await? {
            StockAnswer::Done { left, repeated } => println!("taken (repeated: {repeated}), left: {left:?}"),
            StockAnswer::Short { sku, available } => println!("only {available} of {sku} left"),
            other => println!("{other:?}"),
        }
    }

    // The order was not paid.
    stock.run(&StockOperation::give_back("order-1:back", &[("{sale}mug", 2), ("{sale}cup", 1)])).await?;

    // Many orders in one round trip.
    let crowd: Vec<_> = (0..5).map(|n| StockOperation::take(&format!("crowd-{n}"), &[("{sale}mug", 1)])).collect();
    for (operation, answer) in crowd.iter().zip(stock.batch(&crowd).await) {
        println!("{operation:?}: {:?}", answer?);
    }
    connector.close().await;
    Ok(())
}
