//! The batch engine: which rows a list of commands needs, and what the rules make of it.
//!
//! A ledger calls [`missing`] and loads what it names until nothing is missing (two or three rounds: an order names
//! its SKUs, a SKU with `max_per_buyer` names a counter), then [`decide`] once, then writes [`Changes`] and commits.
//!
//! - `keys.rs`: which rows; `rows.rs`: what they look like; `work.rs`: the state a batch changes, and its bookkeeping.
//! - `place.rs`, `pay.rs`, `end.rs` (cancel, expire), `keep.rs` (extend, fulfil, park), `catalog.rs`, `refund.rs`: the
//!   rules, a command each.

mod catalog;
mod end;
mod keep;
mod keys;
mod pay;
mod place;
mod refund;
mod rows;
mod work;

pub use keys::missing;
pub use rows::{Changes, Decided, KeyScope, Keys, RequestRecord, Rows, Slot, Source};

use crate::{Command, Millis, Settings};
use work::Work;

/// Decides `commands` in order on `rows`, which it changes to what they are afterwards. A rejected command changes nothing.
///
/// `now` is the ledger's clock, read after the rows were locked. Every row [`missing`] names must be in `rows`: one that
/// is not counts as absent.
pub fn decide(
    rows: &mut Rows,
    commands: &[Command],
    now: Millis,
    settings: &Settings,
    source: &mut dyn Source,
) -> Decided {
    let mut work = Work::new(rows, now, settings, source);
    let verdicts = commands
        .iter()
        .map(|command| match command {
            Command::Place(place) => work.place(place),
            Command::Pay(pay) => work.pay(pay),
            Command::Cancel(cancel) => work.cancel(cancel),
            Command::Expire(no) => work.expire(*no),
            Command::Extend(extend) => work.extend(extend),
            Command::Fulfil(id) => work.fulfil(id),
            Command::PutSku(put) => work.put_sku(put),
            Command::Adjust(adjust) => work.adjust(adjust),
            Command::ArchiveSku(sku) => work.archive(sku),
            Command::RefundPayment(refund) => work.refund_payment(refund),
            Command::SettleRefund(settle) => work.settle_refund(settle),
            Command::Park(park) => work.park(park),
            Command::Unpark(id) => work.unpark(id),
            Command::FlagUnmatched(payment) => work.flag_unmatched(payment),
        })
        .collect();
    Decided { verdicts, changes: work.into_changes() }
}
