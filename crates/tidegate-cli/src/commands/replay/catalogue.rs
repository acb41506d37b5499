//! The SKUs of a replay: created with their stock, and their prices set again when an invoice shows another.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Method;
use serde_json::json;
use tidegate::core::{Currency, Map, SkuId};

use super::invoice::Invoice;
use super::plan::Sold;
use crate::failure::{Failure, Result};
use crate::load::pool::Pool;
use crate::load::shapes::{Batch, BatchItem};

/// Most SKUs of one call.
const BATCH: usize = 1_000;

/// How much stock a SKU gets.
#[derive(Debug, Clone, Copy)]
pub enum Stock {
    /// This many units each.
    Each(i64),
    /// This share of what the files sell of it, rounded down.
    OfTotal(f64),
}

impl Stock {
    /// Units for a SKU.
    pub fn units(self, sold: &Sold) -> i64 {
        match self {
            Stock::Each(units) => units,
            Stock::OfTotal(ratio) => (sold.units as f64 * ratio).floor() as i64,
        }
    }
}

/// The prices the server has.
pub struct Catalogue {
    pool: Pool,
    currency: Currency,
    prices: Map<SkuId, i64>,
    /// SKUs that were there before with another stock, which they keep.
    pub kept_stock: u64,
    /// Prices that were set again.
    pub price_changes: u64,
}

impl Catalogue {
    /// Creates every SKU.
    ///
    /// # Errors
    /// [`Failure::Unreachable`]; [`Failure::Work`] when the server will not have one.
    pub async fn create(pool: Pool, currency: Currency, skus: &[Sold], stock: Stock) -> Result<Self> {
        let mut catalogue = Self { pool, currency, prices: Map::default(), kept_stock: 0, price_changes: 0 };
        for chunk in skus.chunks(BATCH) {
            let put = |sold: &Sold, on_hand: Option<i64>| {
                let price = json!({"amount": sold.price, "currency": currency.code()});
                match on_hand {
                    Some(on_hand) => json!({"sku": sold.sku.as_str(), "price": price, "on_hand": on_hand}),
                    None => json!({"sku": sold.sku.as_str(), "price": price}),
                }
            };
            let bodies: Vec<_> = chunk.iter().map(|sold| put(sold, Some(stock.units(sold)))).collect();
            let mut kept = Vec::new();
            for (sold, item) in chunk.iter().zip(catalogue.put(bodies).await?) {
                match item.problem.as_ref().map(|p| p.code.as_str()) {
                    None => {}
                    Some("stock-exists") => kept.push(put(sold, None)),
                    Some(_) => return Err(refused(&sold.sku, &item)),
                }
                catalogue.prices.insert(sold.sku.clone(), sold.price);
            }
            catalogue.kept_stock += kept.len() as u64;
            catalogue.all(kept).await?;
        }
        Ok(catalogue)
    }

    /// Sets the prices that `invoice` shows, where they differ from those the server has.
    ///
    /// # Errors
    /// As [`Catalogue::create`].
    pub async fn price(&mut self, invoice: &Invoice) -> Result {
        let differ = invoice.lines.iter().filter(|line| self.prices.get(&line.sku) != Some(&line.price));
        let changes: BTreeMap<SkuId, i64> = differ.map(|line| (line.sku.clone(), line.price)).collect();
        if changes.is_empty() {
            return Ok(());
        }
        let code = self.currency.code();
        let bodies: Vec<_> = changes
            .iter()
            .map(|(sku, price)| json!({"sku": sku.as_str(), "price": {"amount": price, "currency": code}}))
            .collect();
        self.price_changes += bodies.len() as u64;
        self.all(bodies).await?;
        self.prices.extend(changes);
        Ok(())
    }

    async fn all(&self, bodies: Vec<serde_json::Value>) -> Result {
        for (body, item) in bodies.iter().zip(self.put(bodies.clone()).await?) {
            if item.problem.is_some() {
                let sku = body["sku"].as_str().unwrap_or_default();
                return Err(refused(sku, &item));
            }
        }
        Ok(())
    }

    async fn put(&self, bodies: Vec<serde_json::Value>) -> Result<Vec<BatchItem>> {
        if bodies.is_empty() {
            return Ok(Vec::new());
        }
        let count = bodies.len();
        let body = Bytes::from(json!({"skus": bodies}).to_string());
        let answer = self.pool.send(Method::POST, "/v1/skus:batch", Some(body)).await?;
        let told = || {
            Failure::Work(format!(
                "POST /v1/skus:batch answered {}: {}",
                answer.status,
                String::from_utf8_lossy(&answer.body)
            ))
        };
        if matches!(answer.status, 401 | 403) {
            return Err(Failure::Usage(format!(
                "the server wants a token with the role ops to set SKUs ({}); give it with --token or TIDEGATE_TOKEN",
                answer.status
            )));
        }
        let batch: Batch = answer.json().map_err(|_| told())?;
        if batch.results.len() == count { Ok(batch.results) } else { Err(told()) }
    }
}

fn refused(sku: &(impl std::fmt::Display + ?Sized), item: &BatchItem) -> Failure {
    let why = item.problem.as_ref().map(|p| format!("{}: {}", p.code, p.detail)).unwrap_or_default();
    Failure::Work(format!("the server would not have SKU {sku}: {} {why}", item.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stock() {
        let sold = Sold { sku: SkuId::parse("A").unwrap(), units: 7, price: 1 };
        for (stock, want) in [
            (Stock::Each(3), 3),
            (Stock::OfTotal(1.0), 7),
            (Stock::OfTotal(0.5), 3),
            (Stock::OfTotal(0.0), 0),
            (Stock::OfTotal(2.0), 14),
        ] {
            assert_eq!(stock.units(&sold), want);
        }
    }
}
