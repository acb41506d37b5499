//! What the bench compares with, on the same server and the same tables: the bare loop (how fast one connection can insert
//! batches, with no engine, no queue and no answer), and one transaction for each order from many connections, which is
//! what a service does that knows nothing of group commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidegate_backend::ledger::MAX_BATCH_COMMANDS;
use tidegate_backend::{Error, ErrorKind, Result};
use tidegate_core::order::OrderState;
use tidegate_core::{
    BuyerId, Counts, Event, EventKind, JsonObject, Line, Millis, Order, OrderId, OrderNo, Sku, SkuId, Status,
    StockChange, StockKind,
};

use super::{ORDERS_A_BATCH, begin_batch, rows, store::take_cursors, tables};
use crate::bulk::Bulk;
use crate::clock::instant_of;
use crate::connect::{Address, Role};
use crate::fault::{self, Class, Fault};
use crate::migrate;
use crate::session::{Isolation, Session};

/// Units on hand: more than any run takes.
const ON_HAND: i64 = 1 << 40;
/// Most connections of [`one_by_one`].
const MAX_CLIENTS: usize = 64;

/// What a loop did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ceiling {
    /// Orders that were inserted.
    pub orders: usize,
    /// Orders a second.
    pub rate: f64,
    /// How long it took.
    pub took: Duration,
}

impl Ceiling {
    fn since(begun: Instant, orders: usize) -> Self {
        let took = begun.elapsed();
        Self { orders, rate: orders as f64 / took.as_secs_f64(), took }
    }
}

/// Inserts `orders` one-line orders of one new SKU in batches of `batch` (`1..=512`) into the ledger at `url`, each batch one
/// durable commit: order, id, line, event and stock change an order; SKU and counter once a batch.
///
/// # Errors
/// As [`crate::SqlLedger::open`], and whatever the server refuses.
pub async fn ceiling(url: &str, orders: usize, batch: usize) -> Result<Ceiling> {
    let address = Address::parse(url)?;
    let (mut session, sku) = prepare(&address).await?;
    let mut left = orders;
    let begun = Instant::now();
    while left > 0 {
        let count = left.min(batch.clamp(1, MAX_BATCH_COMMANDS));
        transact(&mut session, &sku, count).await?;
        left -= count;
    }
    Ok(Ceiling::since(begun, orders))
}

/// Places `orders` one-line orders of one new SKU from `clients` (`1..=64`) connections, each order in a transaction of its
/// own, with the same rows.
///
/// # Errors
/// As [`ceiling`].
pub async fn one_by_one(url: &str, orders: usize, clients: usize) -> Result<Ceiling> {
    let address = Address::parse(url)?;
    let (_, sku) = prepare(&address).await?;
    let mut sessions = Vec::new();
    for _ in 0..clients.clamp(1, MAX_CLIENTS) {
        sessions.push(address.connect(Role::Writer).await?);
    }
    let (sku, taken) = (Arc::new(sku), Arc::new(AtomicUsize::new(0)));
    let begun = Instant::now();
    let tasks = sessions.into_iter().map(|mut session| {
        let (sku, taken) = (sku.clone(), taken.clone());
        tokio::spawn(async move {
            while taken.fetch_add(1, Ordering::Relaxed) < orders {
                transact(&mut session, &sku, 1).await?;
            }
            fault::Result::Ok(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.map_err(|e| Error::new(ErrorKind::Unavailable, "a client of the loop was stopped").because(e))??;
    }
    Ok(Ceiling::since(begun, orders))
}

/// The SKU that is sold.
struct Sold {
    no: i64,
    id: SkuId,
}

async fn prepare(address: &Address) -> fault::Result<(Session, Sold)> {
    migrate::run(&mut address.connect(Role::Audit).await?, true).await?;
    let mut session = address.connect(Role::Writer).await?;
    let id = format!("ceiling-{}", uuid::Uuid::now_v7());
    let id = SkuId::parse(&id).expect("letters, digits and hyphens");
    let mut sku = Sku::new(id.clone());
    (sku.counts.on_hand, sku.version, sku.stock_version) = (ON_HAND, 1, 1);
    let mut bulk = Bulk::new(&tables::NEW_SKUS);
    rows::counts(&mut bulk, &sku, 0);
    rows::card(&mut bulk, &sku);
    session.write(&bulk).await?;
    let found = session.one("SELECT sku_no FROM skus WHERE sku = ?", &[id.as_str().as_bytes().into()]).await?;
    let no = found.ok_or_else(|| Fault::corrupt("a SKU that was written is gone"))?.int(0)?;
    let created = StockChange {
        sku: id.clone(),
        stock_version: 1,
        at: Millis(0),
        kind: StockKind::Created,
        order: None,
        reason: None,
        delta: sku.counts,
        after: sku.counts,
    };
    let mut stock = Bulk::new(&tables::STOCK_CHANGES);
    rows::stock_change(&mut stock, no, &created);
    session.write(&stock).await?;
    Ok((session, Sold { no, id }))
}

/// One transaction with `count` orders; the SKU's row is what they wait for.
async fn transact(session: &mut Session, sku: &Sold, count: usize) -> fault::Result<()> {
    session.begin(Isolation::Write).await?;
    let first = begin_batch(session, uuid::Uuid::new_v4().as_bytes()).await? * ORDERS_A_BATCH;
    let (before, now) = take_stock(session, sku, count as i64).await?;
    let orders: Vec<Order> = (0..count as i64).map(|n| order(sku, OrderNo(first + n), now)).collect();
    let (mut all, mut ids) = (Bulk::new(&tables::NEW_ORDERS), Bulk::new(&tables::NEW_IDS));
    let (mut lines, mut stock) = (Bulk::new(&tables::LINES), Bulk::new(&tables::STOCK_CHANGES));
    let mut buffer = Vec::new();
    for (held, order) in (before + 1..).zip(&orders) {
        rows::new_order(&mut all, order, &mut buffer);
        ids.bytes(order.id.as_str().as_bytes()).int(order.no.0).int(None).int(0);
        lines.int(sku.no).int(order.no.0).int(1);
        rows::stock_change(&mut stock, sku.no, &stock_change(sku, order, held));
    }
    for bulk in [&all, &ids, &lines, &stock] {
        session.write(bulk).await?;
    }
    let newest = take_cursors(session, count as i64, now).await?;
    let mut events = Bulk::new(&tables::EVENTS);
    for (cursor, order) in (newest - count as i64 + 1..).zip(&orders) {
        rows::event(&mut events, cursor, &placed(order))?;
    }
    session.write(&events).await?;
    session.commit().await
}

/// Takes `count` units if they are there; gives how many were held before, and the instant.
async fn take_stock(session: &mut Session, sku: &Sold, count: i64) -> fault::Result<(i64, Millis)> {
    let sql = "UPDATE skus SET held = held + ?, stock_version = stock_version + ? WHERE sku_no = ? AND on_hand - held - sold >= ?";
    session.execute(sql, &[count.into(), count.into(), sku.no.into(), count.into()]).await?;
    let sql = format!("SELECT held, {} FROM skus WHERE sku_no = ?", instant_of(session));
    let row = session.one(&sql, &[sku.no.into()]).await?;
    let row = row.ok_or_else(|| Fault::new(Class::Data, "the SKU of the loop is gone"))?;
    Ok((row.int(0)? - count, Millis(row.int(1)?)))
}

fn order(sku: &Sold, no: OrderNo, now: Millis) -> Order {
    let pay_by = now.plus_seconds(1_800);
    Order {
        no,
        id: OrderId::parse(&uuid::Uuid::now_v7().to_string()).expect("a UUID is of the alphabet of order ids"),
        buyer_id: BuyerId::parse(&format!("buyer-{}", no.0 * 7_919 % 10_000_019)).expect("a valid buyer"),
        lines: vec![Line { sku: sku.id.clone(), quantity: 1, unit_price: None }],
        total: None,
        placed_at: now,
        metadata: JsonObject::empty(),
        requested_hold: None,
        supersedes: None,
        state: OrderState {
            status: Status::Pending,
            pay_by,
            release_at: pay_by,
            paid_at: None,
            cancelled_at: None,
            cancel_reason: None,
            fulfilled_at: None,
            version: 1,
        },
        closed: false,
        last_seq: 1,
        payments: Vec::new(),
    }
}

fn stock_change(sku: &Sold, order: &Order, held: i64) -> StockChange {
    StockChange {
        sku: sku.id.clone(),
        stock_version: held + 1,
        at: order.placed_at,
        kind: StockKind::Held,
        order: Some((order.no, order.id.clone())),
        reason: None,
        delta: Counts { on_hand: 0, held: 1, sold: 0 },
        after: Counts { on_hand: ON_HAND, held, sold: 0 },
    }
}

fn placed(order: &Order) -> Event {
    Event {
        order: Some((order.no, order.id.clone())),
        seq: 1,
        kind: EventKind::OrderPlaced,
        at: order.placed_at,
        state: Some(order.state.clone()),
        payments: Vec::new(),
        payment: None,
        refund: None,
        reason: None,
    }
}
