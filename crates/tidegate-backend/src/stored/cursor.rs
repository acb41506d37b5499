//! Page cursors: which list they belong to, a number, and two check digits. Opaque to callers.

use crate::{Error, ErrorKind, Result};

/// The list a cursor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// Orders by number.
    Orders = b'o' as isize,
    /// Events of one order by `seq`.
    OrderEvents = b'e' as isize,
    /// Payments by number.
    Payments = b'p' as isize,
    /// Refunds by number.
    Refunds = b'r' as isize,
    /// The parked list by number.
    Parked = b'k' as isize,
    /// SKUs by number.
    Skus = b's' as isize,
    /// A stock ledger by version.
    StockChanges = b't' as isize,
}

fn check_digits(list: List, number: i64) -> u8 {
    let mixed = (number as u64 ^ list as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

/// The cursor after the item with `number`.
pub fn encode(list: List, number: i64) -> String {
    format!("{}{number:x}{:02x}", list as u8 as char, check_digits(list, number))
}

/// The number in a cursor of `list`.
///
/// # Errors
/// [`ErrorKind::BadCursor`] for every text that [`encode`] does not give.
pub fn decode(list: List, cursor: Option<&str>) -> Result<Option<i64>> {
    let Some(text) = cursor else { return Ok(None) };
    let number = text
        .strip_prefix(list as u8 as char)
        .and_then(|rest| rest.get(..rest.len().checked_sub(2)?))
        .and_then(|hex| i64::from_str_radix(hex, 16).ok())
        .filter(|n| *n >= 0 && encode(list, *n) == text);
    match number {
        Some(n) => Ok(Some(n)),
        None => Err(Error::new(ErrorKind::BadCursor, "this page cursor is none of this list; start again without one")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_given_out_is_taken_back() {
        for n in [0, 1, 15, 16, 255, 1_000_000, i64::MAX] {
            let text = encode(List::Orders, n);
            assert_eq!(decode(List::Orders, Some(&text)).unwrap(), Some(n));
            assert!(decode(List::Skus, Some(&text)).is_err());
        }
        assert_eq!(decode(List::Orders, None).unwrap(), None);
        for bad in
            ["", "o", "o1", "o12", "o-1ff", "o+1ff", "oé1", "x", "o00100", "o1é", "zzzz", "o123456789abcdef012345"]
        {
            let error = decode(List::Orders, Some(bad)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadCursor, "{bad}");
        }
    }
}
