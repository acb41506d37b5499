//! Stock in counters: check and deduct in one step, once for each operation.

use redis::Value;
use tidegate_backend::{Error, ErrorKind, Result};

use crate::connect::{Call, Connector};
use crate::keys::Keys;
use crate::reply;
use crate::scripts;

/// How long an operation is remembered unless set, seconds.
const HOUR: u32 = 3_600;
/// Longest SKU and operation id, in bytes.
const MAX_NAME_BYTES: usize = 128;
/// Most SKUs of one operation.
const MAX_LINES: usize = 100;
/// Most units of one line, and most that `set` takes: sums stay far below what a double of Lua holds exactly.
const MAX_UNITS: i64 = 1_000_000_000_000;

/// Atomic, idempotent stock counters: the classical deduction by script, done right.
///
/// An operation checks and changes all its SKUs or none, never lets one fall below zero, and is remembered for an hour by its
/// id: repeated (a retry after a lost answer), it changes nothing and answers what it answered first. Only what was done is
/// remembered: an operation that was refused may be tried again under the same id.
///
/// A SKU is counted on the server that its hash tag names: `mug` on its own, `{sale}mug` and `{sale}cup` together. Several
/// SKUs in one operation must share a tag. Counters hold no orders and no history; whoever needs these takes the ledger.
#[derive(Clone)]
pub struct StockCounter {
    connector: Connector,
    keys: Keys,
    remember_seconds: u32,
}

/// Units to take or to give back, under an id chosen by the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StockOperation {
    id: String,
    lines: Vec<(String, i64)>,
}

impl StockOperation {
    /// Takes units: `(SKU, units)`, each 1 or more, no SKU twice.
    #[must_use]
    pub fn take(id: &str, lines: &[(&str, i64)]) -> Self {
        Self { id: id.to_owned(), lines: lines.iter().map(|(sku, units)| ((*sku).to_owned(), -units)).collect() }
    }

    /// Gives units back (or adds new ones). Its id must not be that of the operation that took them.
    #[must_use]
    pub fn give_back(id: &str, lines: &[(&str, i64)]) -> Self {
        Self { id: id.to_owned(), lines: lines.iter().map(|(sku, units)| ((*sku).to_owned(), *units)).collect() }
    }
}

/// What became of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StockAnswer {
    /// Done, now or (`repeated`) when it was first asked for.
    Done {
        /// Units left of each SKU right after it was done.
        left: Vec<i64>,
        /// Whether it had been done before and nothing changed now.
        repeated: bool,
    },
    /// Nothing was changed: this SKU has too few units.
    Short {
        /// The first SKU that has.
        sku: String,
        /// Its units.
        available: i64,
    },
    /// Nothing was changed: this SKU has no counter. `set` makes one.
    Unknown {
        /// The first SKU that has none.
        sku: String,
    },
    /// Nothing was changed: the id was used for another operation within the hour.
    IdReused,
}

impl StockCounter {
    /// Counters on the server, and under the name, that `connector`'s options say.
    #[must_use]
    pub fn new(connector: Connector) -> Self {
        let keys = Keys::new(&connector.options().name);
        Self { connector, keys, remember_seconds: HOUR }
    }

    /// The script's text and its SHA-1, for whoever measures or audits it.
    #[must_use]
    pub fn script() -> (&'static str, &'static str) {
        (scripts::STOCK.source(), scripts::STOCK.hash())
    }

    /// How long operations are remembered: an hour unless set, at least a second.
    #[must_use]
    pub fn remember_seconds(mut self, seconds: u32) -> Self {
        self.remember_seconds = seconds.max(1);
        self
    }

    /// Sets a SKU's units, whatever they were.
    ///
    /// # Errors
    /// [`ErrorKind::Command`] for an unusable SKU or number; otherwise why Redis does not answer.
    pub async fn set(&self, sku: &str, units: i64) -> Result<()> {
        if !(0..=MAX_UNITS).contains(&units) {
            return Err(refused(format!("units must be 0..={MAX_UNITS}")));
        }
        check_name("a SKU", sku)?;
        let call = Call::plain("SET", &self.keys.stock(sku), &[units.to_string().as_bytes()]);
        self.connector.one(call).await.map(|_| ())
    }

    /// Units of each SKU, `None` for one without a counter. Not one instant over SKUs of several servers.
    ///
    /// # Errors
    /// Why Redis does not answer.
    pub async fn available(&self, skus: &[&str]) -> Result<Vec<Option<i64>>> {
        let calls = skus.iter().map(|sku| Call::plain("GET", &self.keys.stock(sku), &[])).collect();
        let answers = self.connector.run(calls).await.into_iter();
        let units = answers.map(|answer| match answer? {
            Value::Nil => Ok(None),
            units => reply::integer(&units).map(Some),
        });
        units.collect()
    }

    /// Runs one operation.
    ///
    /// # Errors
    /// [`ErrorKind::Command`] when it is malformed; otherwise why Redis does not answer: then it may have been done, and
    /// repeating it is safe.
    pub async fn run(&self, operation: &StockOperation) -> Result<StockAnswer> {
        self.batch(std::slice::from_ref(operation)).await.pop().expect("one answer an operation")
    }

    /// Runs many operations in one round trip, in order for SKUs of one server; each has an answer of its own.
    ///
    /// # Errors
    /// Each as [`StockCounter::run`].
    pub async fn batch(&self, operations: &[StockOperation]) -> Vec<Result<StockAnswer>> {
        let checked: Vec<Result<Call>> = operations.iter().map(|operation| self.call(operation)).collect();
        let mut calls = Vec::with_capacity(checked.len());
        let faults: Vec<Option<Error>> =
            checked.into_iter().map(|call| call.map(|call| calls.push(call)).err()).collect();
        let mut answers = self.connector.run(calls).await.into_iter();
        let each = operations.iter().zip(faults).map(|(operation, fault)| match fault {
            Some(fault) => Err(fault),
            None => answers.next().expect("one answer a call").and_then(|answer| understood(operation, &answer)),
        });
        each.collect()
    }

    fn call(&self, operation: &StockOperation) -> Result<Call> {
        let StockOperation { id, lines } = operation;
        check_name("an operation id", id)?;
        let Some((first, _)) = lines.first() else { return Err(refused("an operation needs a SKU")) };
        if lines.len() > MAX_LINES {
            return Err(refused(format!("an operation has at most {MAX_LINES} SKUs")));
        }
        let tag = Keys::stock_tag(first);
        let taking = lines[0].1 < 0;
        let mut keys = Vec::with_capacity(1 + lines.len());
        let mut arguments = vec![Vec::new(), self.remember_seconds.to_string().into_bytes()];
        keys.push(self.keys.stock_operation(tag, id));
        let mut fingerprint = Fingerprint::default();
        for (at, (sku, units)) in lines.iter().enumerate() {
            check_name("a SKU", sku)?;
            if *units == 0 || (*units < 0) != taking || units.unsigned_abs() > MAX_UNITS.unsigned_abs() {
                return Err(refused(format!("units must be 1..={MAX_UNITS}")));
            }
            if Keys::stock_tag(sku) != tag {
                let why = "SKUs of one operation must share a hash tag, as {sale}mug and {sale}cup do";
                return Err(refused(why));
            }
            if lines[..at].iter().any(|(other, _)| other == sku) {
                return Err(refused("a SKU stands twice in one operation; add its units up"));
            }
            fingerprint.add(sku.as_bytes());
            fingerprint.add(&units.to_be_bytes());
            keys.push(self.keys.stock(sku));
            arguments.push(units.to_string().into_bytes());
        }
        arguments[0] = fingerprint.text();
        Ok(Call::script(&scripts::STOCK, keys, arguments))
    }
}

fn check_name(what: &str, name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        return Err(refused(format!("{what} must be 1..={MAX_NAME_BYTES} bytes without control characters")));
    }
    Ok(())
}

fn refused(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Command, why)
}

fn understood(operation: &StockOperation, answer: &Value) -> Result<StockAnswer> {
    let (outcome, numbers) = reply::list(answer)?.split_first().ok_or_else(|| reply::strange(answer))?;
    let numbers: Vec<i64> = numbers.iter().map(reply::integer).collect::<Result<_>>()?;
    let sku = |at: i64| {
        let line = usize::try_from(at - 1).ok().and_then(|at| operation.lines.get(at));
        line.map(|(sku, _)| sku.clone()).ok_or_else(|| reply::strange(answer))
    };
    match (reply::bytes(outcome)?, &numbers[..]) {
        (b"done", _) => Ok(StockAnswer::Done { left: numbers, repeated: false }),
        (b"again", _) => Ok(StockAnswer::Done { left: numbers, repeated: true }),
        (b"other", _) => Ok(StockAnswer::IdReused),
        (b"short", [at, available]) => Ok(StockAnswer::Short { sku: sku(*at)?, available: *available }),
        (b"unknown", [at, _]) => Ok(StockAnswer::Unknown { sku: sku(*at)? }),
        _ => Err(reply::strange(answer)),
    }
}

/// FNV-1a over 64 bits: the same in every version of this library, since it is stored.
struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fingerprint {
    fn add(&mut self, bytes: &[u8]) {
        // The length keeps two texts apart from one.
        for byte in (bytes.len() as u64).to_be_bytes().iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn text(&self) -> Vec<u8> {
        format!("{:016x}", self.0).into_bytes()
    }
}
