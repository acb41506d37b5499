//! Which orders a buyer has, written late.
//!
//! Buyers come in no order, so an index kept with every order dirties a page an order: measured, it halves the rate at
//! a million orders. So new entries wait in memory, and once there are many they are merged in key order, a few with
//! every batch: neighbours share a page, and no commit pays for more than its share. What waits is not lost in a crash:
//! it is read again from the orders above a stored mark. Entries are hints: a reader holds each against its order.

use std::collections::BTreeSet;
use std::sync::{PoisonError, RwLock};

use rusqlite::{Connection, Result};
use tidegate_core::BuyerId;

use super::row;

/// Entries that wait before they are merged; at most about twice as many are in memory (some 10 MB).
const CHUNK: usize = 1 << 17;
/// The key in `meta` of the newest order number that is merged, as all before it are.
const MARK: &str = "buyers_merged_to";

type Entry = (i64, i64);

/// The waiting entries, shared by the writer and the readers.
#[derive(Debug, Default)]
pub(super) struct Buyers {
    tail: RwLock<Tail>,
}

#[derive(Debug, Default)]
struct Tail {
    /// Being merged, in key order; all of it is older than `fresh`.
    frozen: BTreeSet<Entry>,
    /// The last entry of `frozen` that is merged and committed.
    merged: Option<Entry>,
    /// Newer entries.
    fresh: BTreeSet<Entry>,
}

/// What a batch merged; takes effect by [`Buyers::committed`] once the batch is durable.
#[derive(Debug, Default)]
pub(super) struct Merged {
    last: Option<Entry>,
    finished: bool,
}

/// The stored hash of a buyer (FNV-1a, then mixed). It is part of the file's format.
pub(super) fn hash(buyer: &BuyerId) -> i64 {
    let bytes = buyer.as_str().bytes();
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15).cast_signed()
}

impl Buyers {
    /// Reads what waits: the orders above the mark.
    pub(super) fn load(conn: &Connection) -> Result<Self> {
        let mark: i64 = row::one(conn, "SELECT value FROM meta WHERE key = ?1", [MARK])?.unwrap_or(0);
        let mut select = conn.prepare("SELECT buyer_id, order_no FROM orders WHERE order_no > ?1")?;
        let entries = select.query_map([mark], |r| Ok((hash(&row::id(r, 0)?), r.get(1)?)))?;
        let fresh = entries.collect::<Result<BTreeSet<Entry>>>()?;
        Ok(Self { tail: RwLock::new(Tail { fresh, ..Tail::default() }) })
    }

    /// Merges a share of what waits into the table, inside the transaction of a batch with `new_orders`.
    pub(super) fn merge(&self, conn: &Connection, new_orders: usize) -> Result<Merged> {
        let mut tail = self.tail.write().unwrap_or_else(PoisonError::into_inner);
        if tail.frozen.is_empty() {
            if tail.fresh.len() < CHUNK {
                return Ok(Merged::default());
            }
            tail.frozen = std::mem::take(&mut tail.fresh);
        }
        drop(tail);
        let tail = self.tail.read().unwrap_or_else(PoisonError::into_inner);
        // A quarter more than comes in, so that one chunk is merged before the next is full.
        let share = new_orders + new_orders / 4 + 1;
        let mut insert = conn.prepare_cached("INSERT OR IGNORE INTO buyer_orders (buyer, order_no) VALUES (?1, ?2)")?;
        let mut merged = Merged { last: tail.merged, finished: false };
        let mut left = tail.frozen.range((after(tail.merged), std::ops::Bound::Unbounded));
        for entry in left.by_ref().take(share) {
            insert.execute(*entry)?;
            merged.last = Some(*entry);
        }
        if left.next().is_none() {
            merged.finished = true;
            let newest = tail.frozen.iter().map(|(_, no)| *no).max();
            conn.prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)")?.execute((MARK, newest))?;
        }
        Ok(merged)
    }

    /// The batch is durable: its merge counts, and `new` waits. Called before the batch is answered.
    pub(super) fn committed(&self, merged: Merged, new: impl Iterator<Item = Entry>) {
        let mut tail = self.tail.write().unwrap_or_else(PoisonError::into_inner);
        if merged.finished {
            tail.frozen.clear();
            tail.merged = None;
        } else if merged.last.is_some() {
            tail.merged = merged.last;
        }
        tail.fresh.extend(new);
    }

    /// Numbers of waiting orders of the buyer with this hash below `before`, newest first, at most `limit`.
    ///
    /// To be read before the table is: what has left the memory by then is in the table.
    pub(super) fn waiting(&self, buyer: i64, before: i64, limit: usize) -> Vec<i64> {
        let tail = self.tail.read().unwrap_or_else(PoisonError::into_inner);
        let numbers = |set: &BTreeSet<Entry>| {
            set.range((buyer, i64::MIN)..(buyer, before)).rev().map(|(_, no)| *no).take(limit).collect()
        };
        let mut all: Vec<i64> = numbers(&tail.fresh);
        let frozen: Vec<i64> = numbers(&tail.frozen);
        all.extend(frozen);
        all.truncate(limit);
        all
    }
}

fn after(entry: Option<Entry>) -> std::ops::Bound<Entry> {
    entry.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH_OF_ANNA: i64 = -9_083_212_998_126_196_072;

    fn table() -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        let schema = "CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
            CREATE TABLE orders (order_no INTEGER PRIMARY KEY, buyer_id BLOB);
            CREATE TABLE buyer_orders (buyer INTEGER, order_no INTEGER, PRIMARY KEY (buyer, order_no)) WITHOUT ROWID";
        conn.execute_batch(schema).unwrap();
        conn
    }

    #[test]
    fn nothing_is_lost_between_memory_and_table() {
        let (conn, buyers) = (table(), Buyers::default());
        let buyer = |no: i64| no * 7_919 % 101;
        let (mut no, mut largest) = (0, 0);
        while no < 3 * CHUNK as i64 {
            let merged = buyers.merge(&conn, 500).unwrap();
            // Every third batch fails after its merge: the same share is merged again.
            if no % 3 == 0 && merged.last.is_some() {
                no += 1;
                buyers
                    .committed(Merged { last: merged.last, finished: merged.finished }, [(buyer(no), no)].into_iter());
                continue;
            }
            buyers.committed(merged, (no + 1..=no + 500).map(|n| (buyer(n), n)));
            no += 500;
            let tail = buyers.tail.read().unwrap();
            largest = largest.max(tail.fresh.len() + tail.frozen.len());
        }
        assert!(largest < 2 * CHUNK + 1_000, "{largest}");
        for of in 0..101 {
            let mut select = conn.prepare("SELECT order_no FROM buyer_orders WHERE buyer = ?1").unwrap();
            let mut seen: BTreeSet<i64> = select.query_map([of], |r| r.get(0)).unwrap().collect::<Result<_>>().unwrap();
            let waiting = buyers.waiting(of, i64::MAX, usize::MAX);
            assert!(waiting.is_sorted_by(|a, b| a > b));
            seen.extend(waiting);
            let want: BTreeSet<i64> = (1..=no).filter(|n| buyer(*n) == of).collect();
            assert_eq!(seen, want);
        }
        let mark: i64 = conn.query_row("SELECT value FROM meta", [], |r| r.get(0)).unwrap();
        assert!(mark > 0);
    }

    #[test]
    fn a_start_reads_what_is_above_the_mark() {
        let conn = table();
        let anna = BuyerId::parse("anna").unwrap();
        let mut insert = conn.prepare("INSERT INTO orders VALUES (?1, ?2)").unwrap();
        for no in 1..=10 {
            insert.execute((no, anna.as_str().as_bytes())).unwrap();
        }
        conn.execute("INSERT INTO meta VALUES (?1, 7)", [MARK]).unwrap();
        let buyers = Buyers::load(&conn).unwrap();
        assert_eq!(buyers.waiting(hash(&anna), i64::MAX, 10), [10, 9, 8]);
        assert_eq!(buyers.waiting(hash(&anna), 10, 1), [9]);
        assert!(buyers.waiting(hash(&anna) + 1, i64::MAX, 10).is_empty());
        // Stored: another build must find the same.
        assert_eq!(hash(&anna), HASH_OF_ANNA);
    }
}
