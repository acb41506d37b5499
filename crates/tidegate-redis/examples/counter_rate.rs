//! How fast counters are: `cargo run --release -p tidegate-redis --example counter_rate -- <url> [pipelining] [operations]`.
//! Prints the `redis-benchmark` call that runs the same script at the same pipelining, for comparison.
#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::time::Instant;

use tidegate_redis::{Connector, RedisOptions, StockAnswer, StockCounter, StockOperation};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().ok_or("the first argument is the server's URL")?;
    let pipelining: usize = args.next().map_or(Ok(64), |n| n.parse())?;
    let total: usize = args.next().map_or(Ok(300_000), |n| n.parse())?;
    let connector = Connector::start(RedisOptions::parse(&url)?.name("rate")?).await?;
    let stock = StockCounter::new(connector.clone());
    stock.set("mug", 1_000_000_000).await?;
    let run = std::process::id();
    let began = Instant::now();
    let mut done = 0;
    while done < total {
        let batch: Vec<_> =
            (done..done + pipelining).map(|n| StockOperation::take(&format!("{run}-{n}"), &[("mug", 1)])).collect();
        for answer in stock.batch(&batch).await {
            if !matches!(answer?, StockAnswer::Done { repeated: false, .. }) {
                return Err("an operation was not done".into());
            }
        }
        done += pipelining;
    }
    println!("{:.0} operations/s", done as f64 / began.elapsed().as_secs_f64());
    let (_, hash) = StockCounter::script();
    println!(
        "redis-benchmark -h HOST -p PORT -c 1 -P {pipelining} -n {total} -r 1000000000 EVALSHA {hash} 2 \
         '{{tg:rate:s:mug}}:op:__rand_int__' '{{tg:rate:s:mug}}:stock:mug' 0123456789abcdef 3600 -1"
    );
    connector.close().await;
    Ok(())
}
