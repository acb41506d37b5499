//! What the buyers were told.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::load::record::Record;
use crate::load::verify::Accepted;

/// A "sold out" that can be checked afterwards: instants are the host's, milliseconds since 1970.
#[derive(Debug)]
pub struct SoldOut {
    /// The SKU.
    pub sku: String,
    /// Units asked for.
    pub quantity: i64,
    /// Just before the request was sent.
    pub sent: i64,
    /// Just after the answer was there.
    pub answered: i64,
}

/// Everything the buyers were told.
#[derive(Default)]
pub struct Told {
    /// Orders accepted, each once.
    pub accepted: Vec<Accepted>,
    /// Ids answered `201` twice.
    pub duplicates: u64,
    /// Visits that were refused, by code.
    pub refused: BTreeMap<String, u64>,
    /// The refusals for want of stock.
    pub sold_out: Vec<SoldOut>,
    /// Payments by outcome.
    pub payments: BTreeMap<String, u64>,
    /// Orders cancelled by request.
    pub cancelled: u64,
    /// Answers no buyer should get, the first of them.
    pub strange: Vec<String>,
    /// How many of those there were.
    pub strange_count: u64,
    /// Latest instant at which an accepted order is due.
    pub last_deadline: Option<Instant>,
}

/// Shared by all buyers.
pub struct Tally {
    told: Mutex<Told>,
    place: Mutex<Record>,
}

/// Strange answers that are kept in full.
const KEPT: usize = 10;

impl Tally {
    /// Nothing told yet.
    pub fn new() -> Self {
        Self { told: Mutex::default(), place: Mutex::new(Record::new()) }
    }

    /// To note something; hold it shortly.
    pub fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long orders took.
    pub fn place(&self) -> MutexGuard<'_, Record> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an answer no buyer should get.
    pub fn strange(&self, what: String) {
        let mut told = self.told();
        told.strange_count += 1;
        if told.strange.len() < KEPT {
            told.strange.push(what);
        }
    }
}
