//! Instants on the wire: RFC 3339, UTC, milliseconds.

use serde::{Serialize, Serializer};
use tidegate::core::Millis;
use utoipa::openapi::{KnownFormat, ObjectBuilder, RefOr, SchemaFormat, Type, schema::Schema};
use utoipa::{PartialSchema, ToSchema};

/// An instant as `2026-11-29T15:08:10.000Z`, formatted without an allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Instant(pub(crate) Millis);

/// Bytes of a formatted instant.
const LENGTH: usize = 24;

impl Instant {
    fn format(self) -> [u8; LENGTH] {
        let ms = self.0.clamp(Millis::MIN, Millis::MAX).0;
        let (days, of_day) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
        let (year, month, day) = civil(days);
        let mut text = *b"0000-00-00T00:00:00.000Z";
        put(&mut text[0..4], year);
        put(&mut text[5..7], month);
        put(&mut text[8..10], day);
        put(&mut text[11..13], of_day / 3_600_000);
        put(&mut text[14..16], of_day / 60_000 % 60);
        put(&mut text[17..19], of_day / 1_000 % 60);
        put(&mut text[20..23], of_day % 1_000);
        text
    }
}

fn put(digits: &mut [u8], mut value: i64) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(value % 10).unwrap_or(0);
        value /= 10;
    }
}

/// Year, month and day of a day counted from 1970-01-01 (after Howard Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

impl std::fmt::Display for Instant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(std::str::from_utf8(&self.format()).map_err(|_| std::fmt::Error)?)
    }
}

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let text = self.format();
        to.serialize_str(std::str::from_utf8(&text).map_err(serde::ser::Error::custom)?)
    }
}

impl PartialSchema for Instant {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .description(Some("RFC 3339, UTC, milliseconds."))
            .examples(["2026-11-29T15:08:10.000Z"])
            .into()
    }
}
impl ToSchema for Instant {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_jiff() {
        for ms in [
            0,
            -1,
            1_795_964_890_000,
            951_782_400_123,
            951_868_799_999,
            4_107_542_400_000,
            Millis::MIN.0,
            253_402_207_200_000,
            -62_000_000_000_001,
        ] {
            let want = jiff::Timestamp::from_millisecond(ms).expect("in range");
            assert_eq!(Instant(Millis(ms)).to_string(), format!("{want:.3}"), "{ms}");
        }
        assert_eq!(Instant(Millis::MAX).to_string(), "9999-12-31T23:59:59.999Z");
    }
}
