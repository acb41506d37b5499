//! Deadlines as Redis holds them.
//!
//! A member is the order number and the instant, 8 bytes each, big-endian with the sign bit turned, so that bytes compare
//! as numbers do. A score is a double: exact below 2^53 milliseconds (the year 287,396). Beyond, what must not be early is
//! rounded up, and the present is rounded down.

use tidegate_core::{Millis, OrderNo};

const MEMBER_BYTES: usize = 16;

pub(super) fn sortable(n: i64) -> [u8; 8] {
    (n as u64 ^ (1 << 63)).to_be_bytes()
}

fn from_sortable(bytes: [u8; 8]) -> i64 {
    (u64::from_be_bytes(bytes) ^ (1 << 63)) as i64
}

pub(super) fn member(order: OrderNo, at: Millis) -> Vec<u8> {
    [sortable(order.0), sortable(at.0)].concat()
}

pub(super) fn from_member(bytes: &[u8]) -> Option<(OrderNo, Millis)> {
    let bytes: &[u8; MEMBER_BYTES] = bytes.try_into().ok()?;
    let (order, at) = (bytes.first_chunk()?, bytes.last_chunk()?);
    Some((OrderNo(from_sortable(*order)), Millis(from_sortable(*at))))
}

/// The score of something that must not be visible before `at`.
pub(super) fn not_before(at: Millis) -> Vec<u8> {
    let mut score = at.0 as f64;
    if (score as i128) < i128::from(at.0) {
        score = score.next_up();
    }
    score.to_string().into_bytes()
}

/// The highest score that is due at `now`.
pub(super) fn due_until(now: Millis) -> Vec<u8> {
    if now.0 == i64::MAX {
        return b"+inf".to_vec();
    }
    let mut score = now.0 as f64;
    if (score as i128) > i128::from(now.0) {
        score = score.next_down();
    }
    score.to_string().into_bytes()
}

/// The instant of a score. Casting keeps within the range of 64 bits.
pub(super) fn instant(score: f64) -> Millis {
    Millis(score as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_sort_as_orders_do() {
        let numbers = [i64::MIN, -2, -1, 0, 1, 255, 256, i64::MAX];
        for pair in numbers.windows(2) {
            assert!(sortable(pair[0]) < sortable(pair[1]));
        }
        for n in numbers {
            assert_eq!(from_member(&member(OrderNo(n), Millis(!n))), Some((OrderNo(n), Millis(!n))));
        }
        assert_eq!(from_member(b"short"), None);
    }

    #[test]
    fn scores_are_never_early() {
        let parse = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().parse::<f64>().unwrap();
        for n in
            [0, -1, 1_764_448_000_123, (1 << 53) + 1, -(1 << 53) - 1, i64::MAX, i64::MAX - 1, i64::MIN, i64::MIN + 1]
        {
            let (score, until) = (parse(not_before(Millis(n))), parse(due_until(Millis(n))));
            assert!(score as i128 >= i128::from(n), "{n}");
            assert!(n == i64::MAX || until as i128 <= i128::from(n), "{n}");
        }
        assert_eq!(not_before(Millis(1_764_448_000_123)), b"1764448000123");
        assert_eq!(instant(f64::MAX), Millis(i64::MAX));
    }
}
