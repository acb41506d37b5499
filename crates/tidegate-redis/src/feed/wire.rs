//! Copies as Redis holds them.
//!
//! - A set's member: eight bytes of the instant that sort as it does, the post, and NUL and the root of a repost. So members
//!   are ordered as places are, whatever is behind the NUL: a UUID is 16 bytes there, so that the sets of most authors stay
//!   below the 64 bytes a member up to which Redis packs them. The first member is NUL and the head.
//! - A head: `K`, version, from, oldest, newest; a floor: `F`, version.
//! - Ties: `K`, 16 digits of the version, 10 of the longest length; then names, each behind what was done and before a
//!   newline, which no name has.
//! - A repost: instant, visibility, post.

use std::fmt::Write as _;

use redis::Value;
use tidegate_backend::Result;
use tidegate_core::Millis;
use tidegate_core::feed::{
    AuthorSet, Edge, Entry, Head, Order, Place, PostId, Repost, Ties, UserId, Version, Visibility,
};

use crate::reply;

/// Begins a root that is 16 bytes of a UUID.
const PACKED: u8 = 2;
const TIES_HEADER: usize = 27;

fn instant(at: Millis) -> [u8; 8] {
    (at.0 ^ i64::MIN).to_be_bytes()
}

/// A place: what its members begin with.
pub(super) fn place(place: &Place) -> Vec<u8> {
    [&instant(place.at)[..], place.post.as_str().as_bytes()].concat()
}

pub(super) fn member(entry: &Entry) -> Vec<u8> {
    let mut member = place(&entry.place);
    if let Some(root) = &entry.root {
        member.push(0);
        match packed(root) {
            Some(uuid) => member.extend_from_slice(&[&[PACKED], &uuid[..]].concat()),
            None => member.extend_from_slice(root.as_str().as_bytes()),
        }
    }
    member
}

/// A name that is a UUID as it is mostly written.
fn packed(name: &PostId) -> Option<[u8; 16]> {
    let uuid = uuid::Uuid::try_parse(name.as_str()).ok()?;
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    (uuid.hyphenated().encode_lower(&mut text) == name.as_str()).then(|| uuid.into_bytes())
}

fn unpacked(bytes: &[u8]) -> Option<PostId> {
    match bytes.split_first() {
        Some((&PACKED, uuid)) => {
            let uuid = uuid::Uuid::from_bytes(uuid.try_into().ok()?);
            let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
            PostId::parse(uuid.hyphenated().encode_lower(&mut text)).ok()
        }
        _ => post_of(bytes),
    }
}

pub(super) fn entry(value: &Value) -> Result<Entry> {
    let parsed = || {
        let (at, rest) = reply::bytes(value).ok()?.split_first_chunk::<8>()?;
        let (post, root) = match rest.iter().position(|byte| *byte == 0) {
            Some(end) => (&rest[..end], Some(&rest[end + 1..])),
            None => (rest, None),
        };
        let place = Place { at: Millis(i64::from_be_bytes(*at) ^ i64::MIN), post: post_of(post)? };
        let root = match root {
            Some(root) => Some(unpacked(root)?),
            None => None,
        };
        Some(Entry { place, root })
    };
    parsed().ok_or_else(|| reply::strange(value))
}

fn post_of(bytes: &[u8]) -> Option<PostId> {
    PostId::parse(std::str::from_utf8(bytes).ok()?).ok()
}

fn user_of(bytes: &[u8]) -> Option<UserId> {
    UserId::parse(std::str::from_utf8(bytes).ok()?).ok()
}

/// An edge as ZRANGE takes it.
pub(super) fn bound(order: Order, edge: &Edge) -> Vec<u8> {
    // Below it, or from it on.
    let mut bound = vec![if order == Order::Newest { b'(' } else { b'[' }];
    match edge {
        Edge::Instant(at) => bound.extend_from_slice(&instant(*at)),
        Edge::Before(before) => bound.extend_from_slice(&place(before)),
        Edge::After(after) => {
            bound.extend_from_slice(&place(after));
            // Behind the place, as a repost or not, and before every longer name.
            bound.push(1);
        }
    }
    bound
}

fn or_nothing(at: Option<Millis>) -> String {
    at.map_or_else(String::new, |at| at.0.to_string())
}

pub(super) fn head(set: &AuthorSet) -> Vec<u8> {
    let Head { version, from, newest, oldest } = set.head();
    format!("K{version} {} {} {}", from.0, or_nothing(oldest), or_nothing(newest)).into_bytes()
}

/// What a head says; `None`: the set is not known.
pub(super) fn read_head(text: &[u8]) -> Option<Head> {
    let mut fields = std::str::from_utf8(text).ok()?.strip_prefix('K')?.split(' ');
    let version = fields.next()?.parse().ok()?;
    let mut next = || match fields.next()? {
        "" => Some(None),
        at => Some(Some(Millis(at.parse().ok()?))),
    };
    Some(Head { version, from: next()??, oldest: next()?, newest: next()? })
}

/// The head in a set, if this member is it.
pub(super) fn marker(member: &[u8]) -> Option<&[u8]> {
    member.strip_prefix(b"\0")
}

/// Names behind what was done.
pub(super) fn names<'a>(lists: impl IntoIterator<Item = (char, &'a [UserId])>) -> String {
    let mut text = String::new();
    for (done, users) in lists {
        for user in users {
            text.push(done);
            text.push_str(user.as_str());
            text.push('\n');
        }
    }
    text
}

pub(super) fn ties(ties: &Ties) -> Vec<u8> {
    let names = names([('f', &ties.follows[..]), ('h', &ties.hidden[..])]);
    // Once it is longer, it is read anew from the ledger.
    format!("K{:016}{:010}{names}", ties.version, 4_096 + 2 * names.len()).into_bytes()
}

/// What ties say; `None`: they are not known.
pub(super) fn read_ties(bytes: &[u8]) -> Option<Ties> {
    let text = std::str::from_utf8(bytes).ok()?;
    let version = text.strip_prefix('K')?.get(..16)?.parse().ok()?;
    let (mut follows, mut hidden) = (Names::default(), Names::default());
    for name in text.get(TIES_HEADER..)?.split_terminator('\n') {
        match name.split_at_checked(1)? {
            ("f", name) => follows.note(name, true),
            ("u", name) => follows.note(name, false),
            ("h", name) => hidden.note(name, true),
            ("s", name) => hidden.note(name, false),
            _ => return None,
        }
    }
    Some(Ties { version, follows: follows.list()?, hidden: hidden.list()? })
}

/// A list of names, and what was done to it since it was filled.
#[derive(Default)]
struct Names<'a> {
    first: Vec<&'a str>,
    later: Vec<(&'a str, bool)>,
}

impl<'a> Names<'a> {
    fn note(&mut self, name: &'a str, is_in: bool) {
        if is_in && self.later.is_empty() && self.first.last().is_none_or(|last| *last < name) {
            self.first.push(name);
        } else {
            self.later.push((name, is_in));
        }
    }

    fn list(self) -> Option<Vec<UserId>> {
        let mut later = self.later;
        // What was done last to a name comes last of it.
        later.sort_by_key(|(name, _)| *name);
        let mut names = Vec::with_capacity(self.first.len() + later.len());
        let mut first = self.first.into_iter().peekable();
        for (at, (name, is_in)) in later.iter().enumerate() {
            if later.get(at + 1).is_some_and(|(next, _)| next == name) {
                continue;
            }
            while let Some(before) = first.next_if(|first| first < name) {
                names.push(before);
            }
            first.next_if(|first| first == name);
            if *is_in {
                names.push(name);
            }
        }
        names.extend(first);
        names.into_iter().map(|name| UserId::parse(name).ok()).collect()
    }
}

pub(super) fn repost(repost: &Repost) -> Vec<u8> {
    let seen = match repost.visibility {
        Visibility::Public => 'p',
        Visibility::Private => 'o',
        Visibility::Hidden => 'h',
    };
    format!("{} {seen} {}", repost.at.0, repost.post).into_bytes()
}

pub(super) fn read_repost(user: &UserId, value: &Value) -> Result<Repost> {
    let parsed = || {
        let mut fields = std::str::from_utf8(reply::bytes(value).ok()?).ok()?.split(' ');
        let at = Millis(fields.next()?.parse().ok()?);
        let visibility = match fields.next()? {
            "p" => Visibility::Public,
            "o" => Visibility::Private,
            "h" => Visibility::Hidden,
            _ => return None,
        };
        Some(Repost { user: user.clone(), at, post: PostId::parse(fields.next()?).ok()?, visibility })
    };
    parsed().ok_or_else(|| reply::strange(value))
}

/// Fields and values of a root's reposts, without the version.
pub(super) fn read_reposts(fields: &[Value]) -> Result<Vec<Repost>> {
    let mut reposts = Vec::with_capacity(fields.len() / 2);
    for pair in fields.chunks_exact(2) {
        let user = reply::bytes(&pair[0])?;
        if !user.is_empty() {
            let user = user_of(user).ok_or_else(|| reply::strange(&pair[0]))?;
            reposts.push(read_repost(&user, &pair[1])?);
        }
    }
    Ok(reposts)
}

/// The version of a root's reposts, as a field.
pub(super) fn reposts_version(version: Version) -> Vec<u8> {
    let mut text = String::from("K");
    let _ = write!(text, "{version}");
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(text: &str) -> PostId {
        PostId::parse(text).expect("a name")
    }

    fn user(text: &str) -> UserId {
        UserId::parse(text).expect("a name")
    }

    const UUID: &str = "0190f000-0000-7000-8000-0000000000ff";

    #[test]
    fn reposts_of_usual_names_are_packed() {
        let place = Place { at: Millis(1_800_000_000_000), post: post(UUID) };
        assert_eq!(member(&Entry { place, root: Some(post(UUID)) }).len(), 62);
        for name in [UUID.to_uppercase(), UUID.replace('-', ""), format!("urn:uuid:{UUID}")] {
            assert_eq!(packed(&post(&name)), None, "{name}");
        }
    }

    #[test]
    fn members_are_ordered_as_places_are() {
        let mut entries = Vec::new();
        for at in [-(1 << 50), -1, 0, 1, 255, 256, 1 << 31, 1 << 32, 1_800_000_000_000] {
            for name in ["a", "a-b", "ab", "b"] {
                for root in [None, Some(UUID), Some("0"), Some("0190F000-0000-7000-8000-0000000000ff"), Some("zz")] {
                    let place = Place { at: Millis(at), post: post(name) };
                    entries.push(Entry { place, root: root.map(post) });
                }
            }
        }
        let members: Vec<Vec<u8>> = entries.iter().map(member).collect();
        // Scripts take what is below for the head.
        assert!(members.is_sorted() && members[0][..] > b"\x01"[..]);
        for (one, bytes) in entries.iter().zip(&members) {
            assert_eq!(entry(&Value::BulkString(bytes.clone())).expect("it is one"), *one);
            for edge in &entries {
                for edge in
                    [Edge::Instant(edge.place.at), Edge::Before(edge.place.clone()), Edge::After(edge.place.clone())]
                {
                    let above = edge.is_above(&one.place);
                    assert_eq!(bytes[..] < bound(Order::Newest, &edge)[1..], above, "{one:?} {edge:?}");
                    assert_eq!(bytes[..] >= bound(Order::Oldest, &edge)[1..], !above, "{one:?} {edge:?}");
                }
            }
        }
        assert!(entry(&Value::BulkString(b"short".to_vec())).is_err());
    }

    #[test]
    fn heads_come_back() {
        for (oldest, entries) in [
            (None, vec![]),
            (Some(Millis(-3)), vec![Entry { place: Place { at: Millis(9), post: post("p") }, root: None }]),
        ] {
            let set = AuthorSet { version: (1 << 53) - 1, from: Millis(-5), oldest, entries };
            assert_eq!(read_head(&head(&set)), Some(set.head()));
        }
        assert_eq!((read_head(b"F12"), read_head(b""), read_head(b"K12")), (None, None, None));
    }

    #[test]
    fn ties_are_what_was_done_last() {
        let list = |names: &[&str]| names.iter().map(|name| user(name)).collect::<Vec<_>>();
        let all = Ties { version: 7, follows: list(&["b", "d", "e"]), hidden: list(&["a"]) };
        let mut bytes = ties(&all);
        assert_eq!(read_ties(&bytes), Some(all));
        bytes.extend_from_slice(
            b"ud\nfc\nha\nsa\nfz\nfa\nfd\nud\nfb\n\xc3\xa9"[..].split_last_chunk::<2>().expect("more").0,
        );
        let want = Ties { version: 7, follows: list(&["a", "b", "c", "e", "z"]), hidden: vec![] };
        assert_eq!(read_ties(&bytes), Some(want));
        assert_eq!((read_ties(b"F0000000000000007"), read_ties(b"")), (None, None));
    }

    #[test]
    fn reposts_come_back() {
        for visibility in [Visibility::Public, Visibility::Private, Visibility::Hidden] {
            let one = Repost { user: user("é b"), at: Millis(-4), post: post("p:1"), visibility };
            let value = Value::BulkString(repost(&one));
            assert_eq!(read_repost(&one.user, &value).expect("it is one"), one);
            let fields = [b"".to_vec(), b"K1".to_vec(), one.user.as_str().as_bytes().to_vec(), repost(&one)]
                .map(Value::BulkString);
            assert_eq!(read_reposts(&fields).expect("they are"), [one]);
        }
        assert!(read_repost(&user("a"), &Value::BulkString(b"1 x p".to_vec())).is_err());
    }
}
