//! LZF, as far as a snapshot needs it: the beginning of a compressed string.

/// Reads at most `most` bytes of what `packed` stands for; `None`: it is no LZF. `packed` may be cut off: what it stands for is then,
/// too.
pub(super) fn unpack(packed: &[u8], most: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(most.min(packed.len().saturating_mul(2)));
    let mut rest = packed;
    while out.len() < most {
        let Some((control, more)) = rest.split_first() else { break };
        rest = more;
        let control = usize::from(*control);
        if control < 32 {
            let count = (control + 1).min(rest.len());
            out.extend_from_slice(&rest[..count]);
            rest = &rest[count..];
            continue;
        }
        let mut length = control >> 5;
        if length == 7 {
            let Some((more, after)) = rest.split_first() else { break };
            length += usize::from(*more);
            rest = after;
        }
        let Some((low, after)) = rest.split_first() else { break };
        rest = after;
        let back = ((control & 31) << 8 | usize::from(*low)) + 1;
        let begin = out.len().checked_sub(back)?;
        for place in begin..begin + length + 2 {
            out.push(out[place]);
        }
    }
    out.truncate(most);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_references() {
        // "a", then 9 more of it by a reference one byte back.
        assert_eq!(unpack(&[0, b'a', 0xe0, 0, 0], 100).as_deref(), Some(&b"aaaaaaaaaa"[..]));
        assert_eq!(unpack(&[2, b'a', b'b', b'c', 0x20, 2, 0, b'x'], 100).as_deref(), Some(&b"abcabcx"[..]));
        assert_eq!(unpack(&[2, b'a', b'b', b'c', 0x20, 2, 0, b'x'], 4).as_deref(), Some(&b"abca"[..]));
        assert_eq!(unpack(&[0x20, 0], 100), None);
        for cut in 0..8 {
            assert!(b"abcabcx".starts_with(&unpack(&[2, b'a', b'b', b'c', 0x20, 2, 0, b'x'][..cut], 100).unwrap()));
        }
    }
}
