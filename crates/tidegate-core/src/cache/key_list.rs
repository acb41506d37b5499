//! A list of byte strings as it is kept somewhere for later, such as the keys that are read most: what does not come back
//! as it was written is no list.

use xxhash_rust::xxh3::xxh3_64;

/// What a list begins with: its format's name and number.
const MAGIC: &[u8; 4] = b"TgL1";
/// Bytes of a checksum.
const SUM: usize = 8;

/// The list of as many of `items`, in order, as fit `most` bytes.
#[must_use]
pub fn write_list<'a>(items: impl IntoIterator<Item = &'a [u8]>, most: usize) -> Vec<u8> {
    let mut list = MAGIC.to_vec();
    for item in items {
        let Ok(length) = u32::try_from(item.len()) else { break };
        if list.len() + 4 + item.len() + SUM > most {
            break;
        }
        list.extend(length.to_be_bytes());
        list.extend(item);
    }
    list.extend(xxh3_64(&list).to_be_bytes());
    list
}

/// The items of a list; `None`: the bytes are none, or not all of one.
#[must_use]
pub fn read_list(list: &[u8]) -> Option<Vec<&[u8]>> {
    let (body, sum) = list.split_last_chunk::<SUM>()?;
    if xxh3_64(body) != u64::from_be_bytes(*sum) {
        return None;
    }
    let mut rest = body.strip_prefix(MAGIC)?;
    let mut items = Vec::new();
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (item, after) = after.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        items.push(item);
        rest = after;
    }
    Some(items)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_list_is_bounded() {
        let items: Vec<Vec<u8>> = (0..100).map(|n| vec![n; 10]).collect();
        let list = write_list(items.iter().map(Vec::as_slice), 100);
        assert!(list.len() <= 100);
        assert_eq!(read_list(&list).map(|items| items.len()), Some(6));
        assert_eq!(read_list(&write_list([], 0)), Some(Vec::new()), "an empty list is one");
    }

    proptest! {
        #[test]
        fn a_list_comes_back_and_a_damaged_one_does_not(
            items in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..20), at in any::<prop::sample::Index>(),
            bit in 0..8_u8,
        ) {
            let mut list = write_list(items.iter().map(Vec::as_slice), usize::MAX);
            prop_assert_eq!(read_list(&list), Some(items.iter().map(Vec::as_slice).collect()));
            prop_assert_eq!(read_list(&list[..at.index(list.len())]), None);
            let at = at.index(list.len());
            list[at] ^= 1 << bit;
            prop_assert_eq!(read_list(&list), None);
        }
    }
}
