//! The bare loop: what one thread can insert with this driver, these pragmas and these statements, with no engine, no
//! queue and no answer. `tidegate bench orders` prints it as the ceiling of the ledger.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, Statement};
use tidegate_backend::clock::host_now;
use tidegate_backend::{Result, ledger::MAX_BATCH_COMMANDS};
use tidegate_core::order::OrderState;
use tidegate_core::{BuyerId, Event, EventKind, JsonObject, Line, Millis, Order, OrderId, OrderNo, SkuId, Status};

use super::buyers::{self, Buyers};
use super::insert::{
    INSERT_EVENT, INSERT_ID, INSERT_LINE, INSERT_ORDER, INSERT_STOCK, UPDATE_COUNTS, insert_event, insert_order,
};
use super::open::{Options, connect_writer};
use super::{checkpoint, fault, lock, migrate};
use tidegate_backend::stored::codec;

/// Batches between two checkpoints of the loop, which has no thread beside it.
const CHECKPOINT_EVERY: usize = 32;

/// What the loop did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ceiling {
    /// Orders that were inserted.
    pub orders: usize,
    /// Orders a second, checkpoints included.
    pub rate: f64,
    /// How long it took.
    pub took: Duration,
}

/// Inserts `orders` one-line orders of one SKU in batches of `batch` (`1..=512`) into a new ledger at `path`, each batch
/// one durable commit: order, id, line, event and stock change an order, the SKU once a batch.
///
/// # Errors
/// As [`super::SqliteLedger::open`], and whatever the disk refuses.
pub fn ceiling(path: &Path, orders: usize, batch: usize) -> Result<Ceiling> {
    let options = Options::new(path);
    let _lock = lock::take(path, "ledger")?;
    let mut conn = connect_writer(&options)?;
    migrate::run(&mut conn, &migrate::LEDGER)?;
    let run = |conn: &mut Connection| {
        let sku = SkuId::parse("ceiling").expect("a valid SKU");
        let card = "INSERT INTO skus (sku, on_hand, held, sold, stock_version, version, archived, changed_at) VALUES (?1, ?2, 0, 0, 0, 1, 0, 0)";
        let sku_no = conn.prepare(card)?.insert((sku.as_str().as_bytes(), i64::MAX / 2))?;
        let mut made = make(&sku, orders);
        let buyers = Buyers::default();
        let begun = Instant::now();
        for (n, chunk) in made.chunks_mut(batch.clamp(1, MAX_BATCH_COMMANDS)).enumerate() {
            insert(conn, &buyers, sku_no, chunk)?;
            if n % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1 {
                checkpoint::checkpoint(conn, "PASSIVE")?;
            }
        }
        let took = begun.elapsed();
        Ok(Ceiling { orders, rate: orders as f64 / took.as_secs_f64(), took })
    };
    run(&mut conn).map_err(fault::writing)
}

/// The orders, made before the clock starts: with ids as a server makes them.
fn make(sku: &SkuId, orders: usize) -> Vec<Order> {
    let line = Line { sku: sku.clone(), quantity: 1, unit_price: None };
    (1..=orders)
        .map(|n| Order {
            no: OrderNo(n as i64),
            id: OrderId::parse(&uuid::Uuid::now_v7().to_string()).expect("a UUID is of the alphabet of order ids"),
            buyer_id: BuyerId::parse(&format!("buyer-{}", n * 7_919 % 10_000_019)).expect("a valid buyer"),
            lines: vec![line.clone()],
            total: None,
            placed_at: Millis(0),
            metadata: JsonObject::empty(),
            requested_hold: None,
            supersedes: None,
            state: OrderState {
                status: Status::Pending,
                pay_by: Millis(0),
                release_at: Millis(0),
                paid_at: None,
                cancelled_at: None,
                cancel_reason: None,
                fulfilled_at: None,
                version: 1,
            },
            closed: false,
            last_seq: 1,
            payments: Vec::new(),
        })
        .collect()
}

fn insert(conn: &mut Connection, buyers: &Buyers, sku_no: i64, orders: &mut [Order]) -> rusqlite::Result<()> {
    let now = host_now();
    let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    {
        let mut statements = Statements {
            order: tx.prepare_cached(INSERT_ORDER)?,
            id: tx.prepare_cached(INSERT_ID)?,
            line: tx.prepare_cached(INSERT_LINE)?,
            event: tx.prepare_cached(INSERT_EVENT)?,
            stock: tx.prepare_cached(INSERT_STOCK)?,
        };
        let mut bytes = Vec::new();
        for order in orders.iter_mut() {
            (order.placed_at, order.state.pay_by) = (now, now.plus_seconds(1_800));
            order.state.release_at = order.state.pay_by;
            statements.insert(sku_no, order, now, &mut bytes)?;
        }
        let held = orders.last().map_or(0, |o| o.no.0);
        tx.prepare_cached(UPDATE_COUNTS)?.execute((sku_no, i64::MAX / 2, held, 0, held, now.0))?;
    }
    let merged = buyers.merge(&tx, orders.len())?;
    tx.commit()?;
    buyers.committed(merged, orders.iter().map(|o| (buyers::hash(&o.buyer_id), o.no.0)));
    Ok(())
}

struct Statements<'a> {
    order: rusqlite::CachedStatement<'a>,
    id: rusqlite::CachedStatement<'a>,
    line: rusqlite::CachedStatement<'a>,
    event: rusqlite::CachedStatement<'a>,
    stock: rusqlite::CachedStatement<'a>,
}

impl Statements<'_> {
    fn insert(&mut self, sku_no: i64, order: &Order, now: Millis, bytes: &mut Vec<u8>) -> rusqlite::Result<()> {
        let no = order.no.0;
        codec::encode_lines(&order.lines, bytes);
        insert_order(&mut self.order, order, Some(no), bytes)?;
        self.id.execute((order.id.as_str().as_bytes(), no, None::<i64>, 0))?;
        self.line.execute((sku_no, no, 1))?;
        stock(&mut self.stock, sku_no, no, now)?;
        let event = Event {
            order: Some((order.no, order.id.clone())),
            seq: 1,
            kind: EventKind::OrderPlaced,
            at: now,
            state: Some(order.state.clone()),
            payments: Vec::new(),
            payment: None,
            refund: None,
            reason: None,
        };
        insert_event(&mut self.event, no, &event)?;
        Ok(())
    }
}

fn stock(insert: &mut Statement<'_>, sku_no: i64, no: i64, now: Millis) -> rusqlite::Result<usize> {
    insert.execute((sku_no, no, now.0, 1, no, None::<String>, 0, 1, 0, i64::MAX / 2, no, 0))
}
