//! SKUs: create, change, archive; stock counted by hand.

use super::rows::KeyScope;
use super::work::Work;
use crate::command::{Adjust, Outcome, PutSku, Verdict};
use crate::sku::MAX_ON_HAND;
use crate::{Counts, Refusal, RefusalCode, Sku, SkuId, StockKind};

impl Work<'_> {
    pub(super) fn put_sku(&mut self, put: &PutSku) -> Verdict {
        let held = self.sku(&put.sku).cloned();
        if put.if_version.is_some_and(|version| held.as_ref().map(|sku| sku.version) != Some(version)) {
            let detail = "the SKU has changed since that version (or does not exist); GET it, look, and send its ETag as If-Match";
            return Err(Refusal::new(RefusalCode::Stale, detail).sku(&put.sku).into());
        }
        let Some(mut sku) = held else {
            return Ok(self.create(put));
        };
        if put.on_hand.is_some_and(|on_hand| on_hand != sku.counts.on_hand) {
            let detail = format!(
                "the SKU exists with {} units on hand; change them with POST /v1/skus/{{sku}}/adjustments",
                sku.counts.on_hand
            );
            return Err(Refusal {
                available: Some(sku.counts.available()),
                ..Refusal::new(RefusalCode::StockExists, detail).sku(&put.sku)
            }
            .into());
        }
        let revived = std::mem::take(&mut sku.archived);
        if self.patch(&mut sku, put) || revived {
            sku.version += 1;
            self.changes.skus.insert(put.sku.clone());
            self.changes.cards.insert(put.sku.clone());
            self.rows.skus.insert(put.sku.clone(), Some(sku.clone()));
        }
        Ok(Outcome::SkuPut { sku, created: false })
    }

    fn create(&mut self, put: &PutSku) -> Outcome {
        let mut sku = Sku::new(put.sku.clone());
        self.patch(&mut sku, put);
        sku.version = 1;
        self.rows.skus.insert(put.sku.clone(), Some(sku));
        self.changes.new_skus.push(put.sku.clone());
        self.changes.cards.insert(put.sku.clone());
        let delta = Counts { on_hand: put.on_hand.unwrap_or(0), ..Counts::default() };
        self.change_stock(&put.sku, StockKind::Created, delta, None, None);
        Outcome::SkuPut { sku: self.sku(&put.sku).expect("it was just created").clone(), created: true }
    }

    fn patch(&self, sku: &mut Sku, put: &PutSku) -> bool {
        let patch = &put.patch;
        let limit_changed = patch.max_per_buyer.apply(&mut sku.max_per_buyer);
        if limit_changed {
            sku.buyer_limit_since = sku.max_per_buyer.map(|_| self.now);
        }
        let changed = [
            patch.title.apply(&mut sku.title),
            patch.price.apply(&mut sku.price),
            patch.attributes.apply(&mut sku.attributes),
            patch.hold_seconds.apply(&mut sku.hold_seconds),
            patch.max_per_order.apply(&mut sku.max_per_order),
            patch.on_sale_from.apply(&mut sku.on_sale_from),
        ];
        limit_changed || changed.contains(&true)
    }

    pub(super) fn archive(&mut self, id: &SkuId) -> Verdict {
        let sku = self.rows.skus.get_mut(id).and_then(Option::as_mut).ok_or_else(|| Refusal::unknown_sku(id))?;
        if !sku.archived {
            sku.archived = true;
            sku.version += 1;
            self.changes.skus.insert(id.clone());
            self.changes.cards.insert(id.clone());
        }
        Ok(Outcome::Archived(sku.clone()))
    }

    pub(super) fn adjust(&mut self, adjust: &Adjust) -> Verdict {
        let command = canonical(&[adjust.sku.as_str(), &adjust.delta.to_string(), &adjust.reason]);
        if self.repeats(KeyScope::Adjust, &adjust.key, &command)? {
            let sku = self.sku(&adjust.sku).ok_or_else(|| Refusal::unknown_sku(&adjust.sku))?.clone();
            return Ok(Outcome::Adjusted { sku, replayed: true });
        }
        let sku = self.sku(&adjust.sku).ok_or_else(|| Refusal::unknown_sku(&adjust.sku))?;
        let counts = sku.counts;
        if counts.on_hand.saturating_add(adjust.delta) > MAX_ON_HAND {
            let mut refusal =
                Refusal::new(RefusalCode::Invalid, format!("a SKU has at most {MAX_ON_HAND} units on hand; add fewer"));
            refusal.pointer = Some("/delta".to_owned());
            return Err(refusal.into());
        }
        let delta = Counts { on_hand: adjust.delta, ..Counts::default() };
        if counts.checked_add(delta).is_none() {
            let detail = format!(
                "{} units are held or sold and {} available; take at most what is available, or cancel orders first",
                counts.held + counts.sold,
                counts.available()
            );
            let refusal = Refusal {
                available: Some(counts.available()),
                ..Refusal::new(RefusalCode::BelowCommitted, detail).sku(&adjust.sku)
            };
            return Err(refusal.into());
        }
        self.change_stock(&adjust.sku, StockKind::Adjusted, delta, None, Some(adjust.reason.clone()));
        self.bind(KeyScope::Adjust, &adjust.key, command);
        Ok(Outcome::Adjusted { sku: self.sku(&adjust.sku).expect("it was just found").clone(), replayed: false })
    }
}

/// A command as text that is equal only for equal commands.
pub(super) fn canonical(parts: &[&str]) -> String {
    serde_json::to_string(parts).expect("strings are JSON")
}
