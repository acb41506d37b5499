//! A message: version, node, number, what is there (a bit each), newest event, clock, then each copy: SKU (length first),
//! what is there, instants and counts. Numbers are big-endian.

use tidegate_backend::Notice;
use tidegate_core::gate::Copy;
use tidegate_core::{Millis, SkuId};

/// Messages of another version are not understood; whoever hears one reads the ledger by itself soon enough.
const VERSION: u8 = 1;

const NEWEST: u8 = 1;
const CLOCK: u8 = 2;
const GAP: u8 = 4;

const ARCHIVED: u8 = 1;
const ON_SALE_FROM: u8 = 2;
const MAX_PER_ORDER: u8 = 4;

fn bit(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

pub(super) fn encode(node: [u8; 8], number: u64, notice: &Notice) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + notice.copies.len() * 48);
    out.push(VERSION);
    out.extend(node);
    out.extend(number.to_be_bytes());
    let Notice { copies, newest_event, clock, gap } = notice;
    out.push(bit(newest_event.is_some(), NEWEST) | bit(clock.is_some(), CLOCK) | bit(*gap, GAP));
    let numbers = [*newest_event, clock.map(|at| at.0)];
    out.extend(numbers.into_iter().flatten().flat_map(i64::to_be_bytes));
    for (sku, copy) in copies {
        let name = sku.as_str().as_bytes();
        out.push(u8::try_from(name.len()).expect("a SKU has at most 128 bytes"));
        out.extend(name);
        let there = bit(copy.archived, ARCHIVED)
            | bit(copy.on_sale_from.is_some(), ON_SALE_FROM)
            | bit(copy.max_per_order.is_some(), MAX_PER_ORDER);
        out.push(there);
        let numbers = [copy.on_sale_from.map(|at| at.0), copy.max_per_order];
        out.extend(numbers.into_iter().flatten().flat_map(i64::to_be_bytes));
        out.extend([copy.available, copy.stock_version].into_iter().flat_map(i64::to_be_bytes));
    }
    out
}

/// `None` for what is no message of this version.
pub(super) fn decode(bytes: &[u8]) -> Option<([u8; 8], u64, Notice)> {
    let mut rest = bytes;
    if byte(&mut rest)? != VERSION {
        return None;
    }
    let node = eight(&mut rest)?;
    let sequence = u64::from_be_bytes(eight(&mut rest)?);
    let there = byte(&mut rest)?;
    let mut notice = Notice { gap: there & GAP != 0, ..Notice::default() };
    if there & NEWEST != 0 {
        notice.newest_event = Some(number(&mut rest)?);
    }
    if there & CLOCK != 0 {
        notice.clock = Some(Millis(number(&mut rest)?));
    }
    while !rest.is_empty() {
        notice.copies.push(copy(&mut rest)?);
    }
    Some((node, sequence, notice))
}

fn copy(rest: &mut &[u8]) -> Option<(SkuId, Copy)> {
    let length = byte(rest)?;
    let (name, after) = rest.split_at_checked(usize::from(length))?;
    *rest = after;
    let sku = SkuId::parse(std::str::from_utf8(name).ok()?).ok()?;
    let there = byte(rest)?;
    let on_sale_from = if there & ON_SALE_FROM != 0 { Some(Millis(number(rest)?)) } else { None };
    let max_per_order = if there & MAX_PER_ORDER != 0 { Some(number(rest)?) } else { None };
    let archived = there & ARCHIVED != 0;
    let copy = Copy { archived, on_sale_from, max_per_order, available: number(rest)?, stock_version: number(rest)? };
    Some((sku, copy))
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    let (first, after) = rest.split_first()?;
    *rest = after;
    Some(*first)
}

fn eight(rest: &mut &[u8]) -> Option<[u8; 8]> {
    let (first, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*first)
}

fn number(rest: &mut &[u8]) -> Option<i64> {
    eight(rest).map(i64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy_of(archived: bool, on_sale_from: Option<i64>, max_per_order: Option<i64>) -> Copy {
        let on_sale_from = on_sale_from.map(Millis);
        Copy { archived, on_sale_from, max_per_order, available: -1, stock_version: i64::MAX }
    }

    #[test]
    fn what_is_told_is_heard() {
        let sku = |text: &str| SkuId::parse(text).unwrap();
        let copies = vec![
            (sku("É"), copy_of(true, None, Some(3))),
            (sku(&"x".repeat(128)), copy_of(false, Some(i64::MIN), None)),
        ];
        for notice in [
            Notice::default(),
            Notice { copies, newest_event: Some(7), clock: Some(Millis(-9)), gap: true },
            Notice { clock: Some(Millis(0)), ..Notice::default() },
        ] {
            let bytes = encode(*b"12345678", 42, &notice);
            assert_eq!(decode(&bytes), Some((*b"12345678", 42, notice.clone())));
            for cut in 0..18 {
                assert_eq!(decode(&bytes[..cut]), None);
            }
        }
        assert_eq!(decode(b"\x02 another version"), None);
    }
}
