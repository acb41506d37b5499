//! Money in minor units.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Largest amount, in minor units: what a JSON number holds exactly (2^53 - 1).
pub const MAX_AMOUNT: i64 = 9_007_199_254_740_991;

/// A currency of ISO 4217, three letters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Currency([u8; 3]);

impl Currency {
    /// The currency with this alphabetic code (upper case), if ISO 4217 lists it.
    #[must_use]
    pub fn parse(code: &str) -> Option<Self> {
        let bytes: [u8; 3] = code.as_bytes().try_into().ok()?;
        let listed = bytes.iter().all(u8::is_ascii_uppercase) && iso_currency::Currency::from_code(code).is_some();
        listed.then_some(Self(bytes))
    }

    /// The three letters.
    #[must_use]
    pub fn code(&self) -> &str {
        std::str::from_utf8(&self.0).expect("three ASCII letters by construction")
    }

    /// Digits after the decimal point (2 for EUR, 0 for JPY, 3 for KWD).
    #[must_use]
    pub fn minor_digits(&self) -> u32 {
        iso_currency::Currency::from_code(self.code()).and_then(|c| c.exponent()).map_or(0, u32::from)
    }
}

impl TryFrom<String> for Currency {
    type Error = String;
    fn try_from(code: String) -> Result<Self, String> {
        Self::parse(&code).ok_or_else(|| format!("{code:?} is no currency code of ISO 4217, such as \"EUR\""))
    }
}

impl From<Currency> for String {
    fn from(c: Currency) -> String {
        c.code().to_owned()
    }
}

impl FromStr for Currency {
    type Err = String;
    fn from_str(code: &str) -> Result<Self, String> {
        Self::try_from(code.to_owned())
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// An amount of one currency, in minor units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Money {
    /// Minor units (cents for EUR), `0..=`[`MAX_AMOUNT`].
    pub amount: i64,
    /// The currency.
    pub currency: Currency,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn currencies() {
        for (code, digits) in [
            ("EUR", Some(2)),
            ("GBP", Some(2)),
            ("JPY", Some(0)),
            ("KWD", Some(3)),
            ("eur", None),
            ("EURO", None),
            ("QQQ", None),
            ("", None),
        ] {
            assert_eq!(Currency::parse(code).map(|c| c.minor_digits()), digits, "{code}");
        }
    }
}
