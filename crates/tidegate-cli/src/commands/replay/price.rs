//! Prices as they stand in a file: decimals, read without ever touching a float.

use tidegate::core::money::MAX_AMOUNT;

/// What is wrong with a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriceFault {
    /// Not a plain decimal, more digits than the currency has minor units, or too large.
    Bad,
    /// Below zero.
    Negative,
    /// Zero.
    Zero,
}

/// `text` in minor units of a currency with `digits` digits after the point: `2.5` with two is 250.
///
/// A plain decimal only: digits, optionally a point and digits, optionally a `-` in front. No blank, no exponent, no
/// thousands separator is guessed at.
///
/// # Errors
/// [`PriceFault`].
pub fn minor_units(text: &str, digits: u32) -> Result<i64, PriceFault> {
    let (negative, plain) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, fraction) = match plain.split_once('.') {
        Some((_, "")) => return Err(PriceFault::Bad),
        Some((whole, fraction)) => (whole, fraction),
        None => (plain, ""),
    };
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) {
        return Err(PriceFault::Bad);
    }
    if fraction.len() > digits as usize {
        return Err(if negative { PriceFault::Negative } else { PriceFault::Bad });
    }
    let padding = std::iter::repeat_n(b'0', digits as usize - fraction.len());
    let amount = whole
        .bytes()
        .chain(fraction.bytes())
        .chain(padding)
        .try_fold(0_i64, |sum, digit| sum.checked_mul(10)?.checked_add(i64::from(digit - b'0')));
    match amount {
        Some(0) => Err(PriceFault::Zero),
        Some(_) if negative => Err(PriceFault::Negative),
        Some(amount) if amount <= MAX_AMOUNT => Ok(amount),
        _ => Err(PriceFault::Bad),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals() {
        use PriceFault::{Bad, Negative, Zero};
        for (text, digits, want) in [
            ("2.55", 2, Ok(255)),
            ("2.5", 2, Ok(250)),
            ("2", 2, Ok(200)),
            ("0.07", 2, Ok(7)),
            ("007", 0, Ok(7)),
            ("1.234", 3, Ok(1_234)),
            ("90071992547409.91", 2, Ok(MAX_AMOUNT)),
            ("90071992547409.92", 2, Err(Bad)),
            ("99999999999999999999", 2, Err(Bad)),
            ("2.555", 2, Err(Bad)),
            ("2.550", 2, Err(Bad)),
            ("1.5", 0, Err(Bad)),
            ("1e3", 2, Err(Bad)),
            ("1,000", 2, Err(Bad)),
            ("+1", 2, Err(Bad)),
            (" 1", 2, Err(Bad)),
            ("1 ", 2, Err(Bad)),
            (".5", 2, Err(Bad)),
            ("5.", 2, Err(Bad)),
            ("1.2.3", 2, Err(Bad)),
            ("", 2, Err(Bad)),
            ("-", 2, Err(Bad)),
            ("--1", 2, Err(Bad)),
            ("NaN", 2, Err(Bad)),
            ("£1", 2, Err(Bad)),
            ("٣", 2, Err(Bad)),
            ("-11062.06", 2, Err(Negative)),
            ("0", 2, Err(Zero)),
            ("0.0", 2, Err(Zero)),
            ("-0.00", 2, Err(Zero)),
        ] {
            assert_eq!(minor_units(text, digits), want, "{text:?} with {digits}");
        }
    }
}
