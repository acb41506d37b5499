//! Cursors of the lists of a queue and of findings: which list they belong to, a place in it, check digits. Opaque to callers.

use tidegate::core::Millis;
use tidegate::queue::{Place, TaskId};

/// Check digits over the list, the queue and the place (FNV-1a).
fn check(list: char, scope: &str, at: i64, id: &str) -> u16 {
    let place = at.to_be_bytes();
    let parts = [&[list as u8][..], scope.as_bytes(), &[0], &place, id.as_bytes()];
    let mixed = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let hash = parts.into_iter().flatten().fold(0xcbf2_9ce4_8422_2325, mixed);
    (hash >> 48) as u16
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<String> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).ok();
    String::from_utf8((0..text.len()).step_by(2).map(byte).collect::<Option<_>>()?).ok()
}

/// The cursor of a place in `list` of the queue `scope`.
fn encode(list: char, scope: &str, at: i64, id: &str) -> String {
    format!("{list}{:016x}{:04x}{}", at as u64, check(list, scope, at, id), hex(id))
}

fn decode(list: char, scope: &str, cursor: &str) -> Option<(i64, String)> {
    let rest = cursor.strip_prefix(list).filter(|rest| rest.is_ascii() && rest.len() >= 20)?;
    let at = u64::from_str_radix(&rest[..16], 16).ok()? as i64;
    let id = unhex(&rest[20..])?;
    (encode(list, scope, at, &id) == cursor).then_some((at, id))
}

/// What a cursor that no list gave out is told.
const FORGED: &str = "is not a cursor that this list gave out; begin without one";

/// The cursor of a place among tasks.
pub(crate) fn of_place(list: char, queue: &str, place: &Place) -> String {
    encode(list, queue, place.0.0, place.1.as_str())
}

/// The place of a cursor.
///
/// # Errors
/// For every text that [`of_place`] did not give.
pub(crate) fn place(list: char, queue: &str, cursor: &str) -> Result<Place, &'static str> {
    let (at, id) = decode(list, queue, cursor).ok_or(FORGED)?;
    Ok((Millis(at), TaskId::parse(&id).map_err(|_| FORGED)?))
}

/// The cursor of a point of time and a name in `list`.
pub(crate) fn of_point(list: char, at: Millis, name: &str) -> String {
    encode(list, "", at.0, name)
}

/// The point of time and the name of a cursor.
///
/// # Errors
/// For every text that [`of_point`] did not give for this list.
pub(crate) fn point(list: char, cursor: &str) -> Result<(Millis, String), &'static str> {
    decode(list, "", cursor).map(|(at, name)| (Millis(at), name)).ok_or(FORGED)
}

/// The cursor after a name.
pub(crate) fn of_name(name: &str) -> String {
    encode('n', "", 0, name)
}

/// The name of a cursor.
///
/// # Errors
/// For every text that [`of_name`] did not give.
pub(crate) fn name(cursor: &str) -> Result<String, &'static str> {
    decode('n', "", cursor).map(|(_, name)| name).ok_or(FORGED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_given_out_is_taken_back() {
        for at in [i64::MIN, -1, 0, 1_795_964_890_000, i64::MAX] {
            let there = (Millis(at), TaskId::parse("é/1").expect("an id"));
            let cursor = of_place('l', "mail", &there);
            assert_eq!(place('l', "mail", &cursor), Ok(there));
            assert!(place('d', "mail", &cursor).is_err() && place('l', "other", &cursor).is_err());
        }
        let there = (Millis(7), "save-failing-7".to_owned());
        let cursor = of_point('o', there.0, &there.1);
        assert_eq!(point('o', &cursor), Ok(there));
        assert!(point('c', &cursor).is_err());
        assert_eq!(name(&of_name("mail")), Ok("mail".to_owned()));
        let good = of_name("mail");
        for bad in ["", "n", "x", "né", "n0000000000000000000", &good[..good.len() - 1], &format!("{good}00")] {
            assert!(name(bad).is_err(), "{bad}");
        }
    }
}
