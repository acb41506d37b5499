//! Under what the pages of products are cached: one place for the ledger, which says what a commit makes old, and for
//! those that read and fill.

use super::entry::RowVersion;
use super::key::{Key, KeyWriter};
use crate::{Sku, SkuId};

/// The namespace of product pages.
pub const NAMESPACE: &str = "products";

/// The encoded key of a SKU's page.
#[must_use]
pub fn key(sku: &SkuId) -> KeyWriter {
    let mut to = KeyWriter::new();
    sku.write(&mut to);
    to
}

/// The version of the row that a page of this SKU is made from: that of its card. Counts are no part of a page.
#[must_use]
pub fn version(sku: &Sku) -> Option<RowVersion> {
    u64::try_from(sku.version).ok().and_then(RowVersion::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_key_that_a_cache_of_skus_gives_it() {
        let longest = "x".repeat(crate::id::MAX_LABEL_BYTES);
        for text in ["a", "a b/\u{e9}", longest.as_str()] {
            let sku = SkuId::parse(text).expect("a SKU");
            assert_eq!(key(&sku).as_bytes(), sku.encode().expect("short enough").as_bytes());
        }
    }
}
