//! Reads of orders, their deadlines and the parked list.

use tidegate_backend::Page;
use tidegate_backend::stored::cursor::List;
use tidegate_core::command::Parked;
use tidegate_core::{Millis, Order, OrderId, OrderNo, Status};

use super::{MAX_ROWS, bytes, finish, money, page};
use crate::fault::Result;
use crate::fetched::Row;
use crate::row;
use crate::session::{Isolation, Session};
use crate::value::{Value, number};

/// The order with this id.
pub(crate) async fn order(session: &mut Session, id: &OrderId) -> Result<Option<Order>> {
    match order_row(session, id).await? {
        Some((_, payments)) if payments > 0 => {}
        found => return Ok(found.map(|(order, _)| order)),
    }
    // An order and its payments are of one instant.
    session.begin(Isolation::Snapshot).await?;
    let read = with_payments(session, id).await;
    finish(session, read).await
}

async fn with_payments(session: &mut Session, id: &OrderId) -> Result<Option<Order>> {
    let Some((mut order, payments)) = order_row(session, id).await? else { return Ok(None) };
    if payments > 0 {
        money::attach(session, [&mut order]).await?;
    }
    Ok(Some(order))
}

/// The order without its payments, and how many it has.
async fn order_row(session: &mut Session, id: &OrderId) -> Result<Option<(Order, i64)>> {
    let sql = format!(
        "SELECT {} FROM order_ids i JOIN orders o ON o.order_no = i.order_no WHERE i.id = ?",
        row::ORDER_COLUMNS
    );
    let found = session.one(&sql, &[bytes(id.as_str())]).await?;
    found.map(|r| row::order(&r, 0)).transpose()
}

/// Pending orders by deadline, without those on the parked list, after `after`, due before `before`.
///
/// In two halves, so that a million orders of one instant do not make each page walk past all that came before it.
pub(crate) async fn deadlines(
    session: &mut Session,
    before: Option<Millis>,
    after: Option<(Millis, OrderNo)>,
    limit: usize,
) -> Result<Vec<(OrderNo, Millis)>> {
    let before = before.map_or(i64::MAX, |at| at.0);
    let limit = limit.min(MAX_ROWS);
    let (table, pending) = (deadline_table(session), number(Status::Pending));
    let size = Value::from(limit as i64);
    let later = format!(
        "(SELECT o.order_no, o.release_at FROM {table} WHERE o.status = ? AND o.release_at > ? AND o.release_at < ? \
        AND {NOT_PARKED} ORDER BY o.release_at, o.order_no LIMIT ?)"
    );
    let from = Value::from(after.map_or(i64::MIN, |(at, _)| at.0));
    let (mut sql, mut values) = (later, vec![pending, from, before.into(), size]);
    if let Some((at, no)) = after.filter(|(at, _)| at.0 < before) {
        let same = format!(
            "(SELECT o.order_no, o.release_at FROM {table} WHERE o.status = ? AND o.release_at = ? AND o.order_no > ? \
            AND {NOT_PARKED} ORDER BY o.order_no LIMIT ?) UNION ALL "
        );
        sql.insert_str(0, &same);
        values.splice(0..0, [pending, at.into(), no.0.into(), size]);
    }
    let mut due = Vec::new();
    let read = |r: Row| {
        due.push((OrderNo(r.int(0)?), Millis(r.int(1)?)));
        Ok(())
    };
    session.each(&sql, &values, read).await?;
    // The halves come in no order that a server promises.
    due.sort_unstable_by_key(|(no, at)| (*at, *no));
    due.truncate(limit);
    Ok(due)
}

const NOT_PARKED: &str = "NOT EXISTS (SELECT 1 FROM parked k WHERE k.order_no = o.order_no)";

/// MySQL is told the index: it takes the primary key for `ORDER BY .. LIMIT` when it thinks that most orders are pending.
fn deadline_table(session: &Session) -> &'static str {
    session.dialect().pick("orders o FORCE INDEX (orders_due)", "orders o")
}

/// The parked list, newest first, from below the number `before`. Entries whose order has ended meanwhile are passed
/// over, so that a page may be short though more follow.
pub(crate) async fn parked(session: &mut Session, before: Option<i64>, limit: usize) -> Result<Page<Parked>> {
    let sql = "SELECT k.order_no, o.id, k.at, k.tries, k.reason, k.parked_no, o.status \
        FROM (SELECT * FROM parked WHERE parked_no < ? ORDER BY parked_no DESC LIMIT ?) k \
        JOIN orders o ON o.order_no = k.order_no ORDER BY k.parked_no DESC";
    let rows = session.rows(sql, &[before.unwrap_or(i64::MAX).into(), Value::from(limit as i64 + 1)]).await?;
    let read = |r: &Row| Ok((r.int(5)?, (row::parked(r)?, row::numbered::<Status>(r, 6)?)));
    let Page { items, next } = page(rows.iter().map(read), limit, List::Parked)?;
    let pending = items.into_iter().filter(|(_, status)| *status == Status::Pending);
    Ok(Page { items: pending.map(|(parked, _)| parked).collect(), next })
}
