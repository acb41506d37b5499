//! A ledger and the oracle side by side: every batch goes to both, every answer and every row must be the same.
//!
//! Order numbers and refund ids are the ledger's own. They are matched by the order in which they appear: the oracle's
//! orders are 1, 2, .., and a test names them so; the ledger's only have to grow.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tidegate_backend::{Commit, Deadline, EventRecord, Ledger, PageRequest};
use tidegate_core::cache::products;
use tidegate_core::command::{Park, SettleRefund};
use tidegate_core::{
    Command, Event, Map, Millis, Order, OrderNo, Outcome, Payment, Refund, RefundId, Settings, StockChange, Verdict,
};

use crate::Oracle;

/// The number of no order.
const NOBODYS: OrderNo = OrderNo(i64::MAX);

fn sorted<T: Ord>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = all.collect();
    all.sort_unstable();
    all
}

/// A ledger with its oracle.
pub struct Twin {
    /// The ledger under test.
    pub ledger: Arc<dyn Ledger>,
    /// What it must agree with.
    pub oracle: Oracle,
    /// The oracle's refund id for each of the ledger's.
    names: HashMap<RefundId, RefundId>,
    /// The oracle's and the ledger's id of each refund, oldest first.
    refunds: Vec<(RefundId, RefundId)>,
    /// The ledger's number of each order, oldest first: that of the oracle's order 1 is the first.
    numbers: Vec<OrderNo>,
    /// What is due, as the ledger's commits told it, in the oracle's numbers.
    due: BTreeMap<OrderNo, Millis>,
    seen_events: usize,
}

impl Twin {
    /// An empty ledger and an empty oracle.
    #[must_use]
    pub fn new(ledger: Arc<dyn Ledger>, settings: Settings) -> Self {
        // No command can guess these: a refund is named only once both sides have told its id.
        let oracle = Oracle::with_refunds_named(settings, "oracle-");
        Self {
            ledger,
            oracle,
            names: HashMap::new(),
            refunds: Vec::new(),
            numbers: Vec::new(),
            due: BTreeMap::new(),
            seen_events: 0,
        }
    }

    /// Commits a batch to both and compares the answers.
    pub async fn commit(&mut self, commands: Vec<Command>) -> Vec<Verdict> {
        let (ours, theirs): (Vec<Command>, Vec<Command>) =
            commands.iter().map(|command| self.translate(command)).unzip();
        let mut commit = self.ledger.commit(theirs.into()).await.expect("the ledger commits");
        let expected = self.oracle.commit(&ours, commit.now);
        self.learn(commit.last_cursor).await;
        let verdicts: Vec<Verdict> =
            std::mem::take(&mut commit.verdicts).into_iter().map(|verdict| self.verdict(verdict)).collect();
        for ((command, said), expected) in commands.iter().zip(&verdicts).zip(&expected) {
            assert_eq!(said, expected, "the ledger and the oracle differ on {command:?}");
        }
        self.follow(&commit);
        verdicts
    }

    /// What a commit tells beside its verdicts: copies of SKUs, and all there is to know of what is due.
    fn follow(&mut self, commit: &Commit) {
        for (sku, copy) in &commit.copies {
            let truth = self.oracle.sku(sku).expect("a copy is of a SKU that exists");
            assert_eq!(
                (copy.available, copy.stock_version),
                (truth.counts.available(), truth.stock_version),
                "copy of {sku}"
            );
        }
        let old = commit.outbox.iter().map(|entry| (&*entry.namespace, &*entry.key, entry.stored_floor()));
        let keys: Vec<_> = self.oracle.cards.iter().map(|(sku, version)| (products::key(sku), *version)).collect();
        let cards = keys.iter().map(|(key, version)| (products::NAMESPACE, key.as_bytes(), Some(*version)));
        assert_eq!(sorted(old), sorted(cards), "a page is old once for each batch that changed its card");
        for deadline in &commit.deadlines {
            match *deadline {
                Deadline::At(no, at) => assert_eq!(self.due.insert(self.ours(no), at), None, "told twice: {no:?}"),
                // Of a parked order it may be told a second time.
                Deadline::Gone(no, at) => assert!(self.due.remove(&self.ours(no)).is_none_or(|was| was == at)),
            }
        }
        // An order that was extended while it is parked is told too; the parked list keeps it from being acted on.
        self.due.retain(|no, _| !self.oracle.is_parked(*no));
        let due = self.oracle.due().map(|order| (order.no, order.state.release_at));
        assert_eq!(self.due, due.collect(), "whoever follows the commits knows what is due");
    }

    /// The oracle's number of the order that has this number in the ledger.
    ///
    /// # Panics
    /// When no order of the ledger has it.
    #[must_use]
    pub fn ours(&self, theirs: OrderNo) -> OrderNo {
        let at = self.numbers.binary_search(&theirs).expect("an order of the ledger");
        OrderNo(at as i64 + 1)
    }

    /// The ledger's number of the order that has this number in the oracle.
    #[must_use]
    pub fn theirs(&self, ours: OrderNo) -> Option<OrderNo> {
        let at = usize::try_from(ours.0).ok()?.checked_sub(1)?;
        self.numbers.get(at).copied()
    }

    /// Both numbers of an order that a command names. One that is not there yet becomes one that nobody will have: nobody
    /// can name an order by its number before the commit that made it.
    fn both(&self, ours: OrderNo) -> (OrderNo, OrderNo) {
        self.theirs(ours).map_or((NOBODYS, NOBODYS), |theirs| (ours, theirs))
    }

    /// The command for the oracle and for the ledger: refund `rN` is the Nth there is.
    fn translate(&self, command: &Command) -> (Command, Command) {
        match command {
            Command::SettleRefund(settle) => {
                let number = settle.refund_id.as_str().trim_start_matches('r').parse::<usize>().ok();
                let Some((ours, theirs)) = number.and_then(|n| self.refunds.get(n.wrapping_sub(1))) else {
                    return (command.clone(), command.clone());
                };
                let settle = |id: &RefundId| {
                    Command::SettleRefund(SettleRefund { refund_id: id.clone(), key: settle.key.clone() })
                };
                (settle(ours), settle(theirs))
            }
            Command::Expire(no) => {
                let (ours, theirs) = self.both(*no);
                (Command::Expire(ours), Command::Expire(theirs))
            }
            Command::Park(park) => {
                let (ours, theirs) = self.both(park.order);
                let park = |order| Command::Park(Park { order, ..park.clone() });
                (park(ours), park(theirs))
            }
            _ => (command.clone(), command.clone()),
        }
    }

    /// Reads the new events of both and pairs their order numbers and refund ids; the events must agree.
    async fn learn(&mut self, last_cursor: Option<i64>) {
        let new: Vec<Event> = self.oracle.events[self.seen_events..].to_vec();
        assert_eq!(last_cursor.is_some(), !new.is_empty(), "a commit with events tells its last cursor");
        let mut after = i64::try_from(self.seen_events).expect("few events");
        let mut pairs = Vec::with_capacity(new.len());
        for expected in new {
            let record =
                self.ledger.events(after, 1).await.expect("readable").pop().expect("the ledger has the event too");
            after += 1;
            assert_eq!(record.cursor, after, "cursors are dense");
            if let (Some(theirs), Some(ours)) = (&record.event.refund, &expected.refund)
                && self.names.insert(theirs.id.clone(), ours.id.clone()).is_none()
            {
                self.refunds.push((ours.id.clone(), theirs.id.clone()));
            }
            if let (Some((theirs, _)), Some((ours, _))) = (&record.event.order, &expected.order)
                && ours.0 > self.numbers.len() as i64
            {
                assert!(self.numbers.last().is_none_or(|last| last < theirs), "order numbers grow");
                self.numbers.push(*theirs);
            }
            pairs.push((record, expected));
        }
        for (record, expected) in pairs {
            self.same_event(record, expected);
        }
        self.seen_events = self.oracle.events.len();
        if let Some(cursor) = last_cursor {
            assert_eq!(cursor, after);
        }
    }

    fn same_event(&self, record: EventRecord, expected: Event) {
        let mut event = record.event;
        event.order = event.order.map(|(no, id)| (self.ours(no), id));
        event.payments.iter_mut().for_each(|p| self.payment(p));
        event.payment.iter_mut().for_each(|p| self.payment(p));
        event.refund.iter_mut().for_each(|r| self.refund(r));
        assert_eq!(event, expected);
        match (&expected.order, record.order) {
            (None, None) => {}
            (Some((_, id)), Some(order)) => {
                let truth = self.oracle.order(id).expect("events name orders that exist");
                assert_eq!(
                    (self.ours(order.no), &order.id, &order.lines, &order.total, &order.metadata),
                    (truth.no, &truth.id, &truth.lines, &truth.total, &truth.metadata)
                );
                assert_eq!(
                    Some(&order.state),
                    expected.state.as_ref(),
                    "an event shows the order as its command left it"
                );
            }
            (expected, got) => panic!("event of {expected:?} came with order {got:?}"),
        }
    }

    fn refund(&self, refund: &mut Refund) {
        if let Some(name) = self.names.get(&refund.id) {
            refund.id = name.clone();
        }
    }

    fn payment(&self, payment: &mut Payment) {
        payment.refunds.iter_mut().for_each(|refund| self.refund(refund));
    }

    /// An order with the oracle's number and names of its refunds.
    #[must_use]
    pub fn named(&self, mut order: Order) -> Order {
        order.no = self.ours(order.no);
        order.payments.iter_mut().for_each(|payment| self.payment(payment));
        order
    }

    fn change(&self, mut change: StockChange) -> StockChange {
        change.order = change.order.map(|(no, id)| (self.ours(no), id));
        change
    }

    fn verdict(&self, verdict: Verdict) -> Verdict {
        verdict.map(|outcome| match outcome {
            Outcome::Placed { order, replayed } => Outcome::Placed { order: self.named(order), replayed },
            Outcome::Paid { outcome, order, mut refund } => {
                refund.iter_mut().for_each(|r| self.refund(r));
                Outcome::Paid { outcome, order: order.map(|order| self.named(order)), refund }
            }
            Outcome::Refund { mut refund, replayed } => {
                self.refund(&mut refund);
                Outcome::Refund { refund, replayed }
            }
            Outcome::Cancelled(order) => Outcome::Cancelled(self.named(order)),
            Outcome::Expired(order) => Outcome::Expired(self.named(order)),
            Outcome::Extended(order) => Outcome::Extended(self.named(order)),
            Outcome::Fulfilled(order) => Outcome::Fulfilled(self.named(order)),
            Outcome::Unparked(order) => Outcome::Unparked(self.named(order)),
            other => other,
        })
    }

    /// Reads every row back and compares it; the ledger's own audit must be sound too.
    pub async fn compare(&self) {
        for order in self.oracle.orders() {
            let read = self.ledger.order(order.id.clone()).await.expect("readable").expect("it exists");
            assert_eq!(self.named(read), *order);
        }
        let mut changes: Map<_, Vec<_>> = Map::default();
        for change in &self.oracle.stock {
            changes.entry(change.sku.clone()).or_default().push(change.clone());
        }
        for sku in self.oracle.skus() {
            let read = self.ledger.sku(sku.id.clone()).await.expect("readable");
            assert_eq!(read.as_ref(), Some(sku));
            let mut rows = Vec::new();
            let mut page = PageRequest { cursor: None, limit: 7 };
            loop {
                let got = self
                    .ledger
                    .stock_changes(sku.id.clone(), page.clone())
                    .await
                    .expect("readable")
                    .expect("it exists");
                rows.extend(got.items.into_iter().map(|change| self.change(change)));
                match got.next {
                    Some(next) => page.cursor = Some(next),
                    None => break,
                }
            }
            assert_eq!(&rows, changes.get(&sku.id).expect("a SKU has at least its creation"));
        }
        let due = self.ledger.deadlines(None, None, self.due.len() + 1).await.expect("readable");
        assert!(due.is_sorted_by_key(|(no, at)| (*at, *no)), "earliest first, then in the order of their numbers");
        assert_eq!(due.into_iter().map(|(no, at)| (self.ours(no), at)).collect::<BTreeMap<_, _>>(), self.due);
        let report = self.ledger.audit(i64::MAX / 2).await.expect("readable");
        assert!(report.is_sound() && report.checked > 0, "{:?}", report.findings);
    }

    /// Moves the ledger's clock.
    pub async fn advance(&self, ms: i64) -> Millis {
        self.ledger.advance(ms).await.expect("a manual clock")
    }
}
