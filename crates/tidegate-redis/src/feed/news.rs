//! The news: a stream of each partition, which `feed_apply.lua` appends to.
//!
//! A process keeps the last entry that it has read and asks for what stands from it on, so that the answer begins with that
//! entry. If it does not, the stream was trimmed, deleted, or belongs to a master that lacks the newest: some are lost. They are
//! lost, too, when a new connection may lead to another server, and when the stream ends before what this process has told.

use redis::Value;
use tidegate_backend::feed::{Event, EventKind};
use tidegate_backend::{Error, ErrorKind, Result};
use tidegate_core::Millis;
use tidegate_core::feed::{Change, PostId, Subject, UserId, What};
use xxhash_rust::xxh3::xxh3_64;

use crate::connect::Call;
use crate::reply;

/// Most entries of one answer.
pub(super) const MAX_READ: usize = 2_000;

/// An entry's id.
pub(super) type Id = (u64, u64);

/// The last entry that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) id: Id,
    /// Of what it says.
    hash: u64,
    /// Of which servers.
    pub(super) era: (u64, u64),
}

/// What became of a position.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// It moved on; whether there may be more.
    On(Position, bool),
    /// Entries are missing.
    Lost,
}

/// Asks for the entries from a position on.
pub(super) fn ask(stream: &[u8], position: &Position) -> Call {
    let from = format!("{}-{}", position.id.0, position.id.1);
    Call::plain("XRANGE", stream, &[from.as_bytes(), b"+", b"COUNT", MAX_READ.to_string().as_bytes()])
}

/// A position at the only entry of an answer; `None`: there is none.
pub(super) fn begin(answer: &Value, era: (u64, u64)) -> Result<Option<Position>> {
    if reply::list(answer)?.is_empty() {
        return Ok(None);
    }
    let [value] = reply::parts::<1>(answer)?;
    let (id, told) = entry(value)?;
    Ok(Some(Position { id, hash: xxh3_64(told), era }))
}

/// Takes the entries from a position on.
pub(super) fn follow(position: &Position, answer: &Value, events: &mut Vec<Event>) -> Result<Read> {
    let mut entries = reply::list(answer)?.iter();
    let Some(first) = entries.next() else { return Ok(Read::Lost) };
    let (id, told) = entry(first)?;
    if id != position.id || xxh3_64(told) != position.hash {
        return Ok(Read::Lost);
    }
    let (mut now, mut count) = (*position, 1);
    for value in entries {
        let (id, told) = entry(value)?;
        now = Position { id, hash: xxh3_64(told), ..now };
        count += 1;
        if told.first() != Some(&BEGUN) {
            events.push(read(told).ok_or_else(|| reply::strange(value))?);
        }
    }
    Ok(Read::On(now, count >= MAX_READ))
}

fn entry(value: &Value) -> Result<(Id, &[u8])> {
    let [at, fields] = reply::parts::<2>(value)?;
    let [_, told] = reply::parts::<2>(fields)?;
    Ok((id(at)?, reply::bytes(told)?))
}

pub(super) fn id(value: &Value) -> Result<Id> {
    let parse = |text: &[u8]| {
        let (ms, number) = std::str::from_utf8(text).ok()?.split_once('-')?;
        Some((ms.parse().ok()?, number.parse().ok()?))
    };
    parse(reply::bytes(value)?).ok_or_else(|| reply::strange(value))
}

/// Begins an entry that tells nothing, of a stream that was just made.
const BEGUN: u8 = b'B';

/// An entry that nobody else writes.
pub(super) fn begun() -> Vec<u8> {
    let mut told = vec![BEGUN];
    told.extend_from_slice(&uuid::Uuid::new_v4().into_bytes());
    told
}

/// What a change is for the script and in the news.
pub(super) fn kind(change: &Change) -> char {
    match &change.what {
        What::Posts { .. } => 'P',
        What::Ties { .. } => 'T',
        What::Reposts { .. } => 'R',
        What::Floor(Subject::Author(_)) => 'a',
        What::Floor(Subject::User(_)) => 'u',
        What::Floor(Subject::Root(_)) => 'r',
    }
}

/// The news of a change: lines, since no name has a newline.
pub(super) fn told(change: &Change) -> String {
    let Event { subject, prev, version, what } = Event::of(change);
    let name = match &subject {
        Subject::Author(user) | Subject::User(user) => user.as_str(),
        Subject::Root(root) => root.as_str(),
    };
    let mut text = format!("{}\n{prev}\n{version}\n{name}", kind(change));
    if let EventKind::Posts { added, removed, touched } = what {
        let (newest, oldest) =
            added.map_or((String::new(), String::new()), |(a, b)| (a.0.to_string(), b.0.to_string()));
        text.push_str(&format!("\n{newest}\n{oldest}\n{}", u8::from(removed)));
        for post in &touched {
            text.push('\n');
            text.push_str(post.as_str());
        }
    }
    text
}

fn read(told: &[u8]) -> Option<Event> {
    let mut lines = std::str::from_utf8(told).ok()?.split('\n');
    let kind = lines.next()?;
    let (prev, version) = (lines.next()?.parse().ok()?, lines.next()?.parse().ok()?);
    let name = lines.next()?;
    let subject = match kind {
        "P" | "a" => Subject::Author(UserId::parse(name).ok()?),
        "T" | "u" => Subject::User(UserId::parse(name).ok()?),
        "R" | "r" => Subject::Root(PostId::parse(name).ok()?),
        _ => return None,
    };
    let what = match kind {
        "P" => {
            let instants = match (lines.next()?, lines.next()?) {
                ("", "") => None,
                (newest, oldest) => Some((Millis(newest.parse().ok()?), Millis(oldest.parse().ok()?))),
            };
            let removed = lines.next()? == "1";
            let touched = lines.map(|post| PostId::parse(post).ok()).collect::<Option<Vec<_>>>()?;
            EventKind::Posts { added: instants, removed, touched }
        }
        "T" | "R" => EventKind::Other,
        _ => EventKind::Floor,
    };
    Some(Event { subject, prev, version, what })
}

/// What is said when the news are lost at every attempt to read them.
pub(super) fn restless() -> Error {
    Error::new(ErrorKind::Unavailable, "the feed's news in Redis were lost at each attempt to read them")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::feed::{Entry, Place};

    fn stream(entries: &[(u64, &[u8])]) -> Value {
        let text = |text: &[u8]| Value::BulkString(text.to_vec());
        let entry = |(ms, told): &(u64, &[u8])| {
            let fields = Value::Array(vec![text(b"e"), text(told)]);
            Value::Array(vec![text(format!("{ms}-0").as_bytes()), fields])
        };
        Value::Array(entries.iter().map(entry).collect())
    }

    #[test]
    fn what_is_missing_shows() {
        let told = |n: u64| format!("T\n{n}\n{}\nann", n + 1).into_bytes();
        let (one, two, three) = (told(1), told(2), told(3));
        let at = begin(&stream(&[(10, &one)]), (4, 0)).expect("a stream").expect("a position");
        let mut events = Vec::new();
        let mut follow = |entries: &[(u64, &[u8])]| follow(&at, &stream(entries), &mut events).expect("entries");
        assert_eq!(follow(&[(10, &one)]), Read::On(at, false), "nothing new");
        let Read::On(next, false) = follow(&[(10, &one), (11, &two), (11, &three)]) else { panic!("two are new") };
        assert_eq!((next.id, next.era), ((11, 0), (4, 0)));
        assert_eq!(follow(&[]), Read::Lost, "deleted, or of a master without the newest");
        assert_eq!(follow(&[(11, &two)]), Read::Lost, "trimmed");
        assert_eq!(follow(&[(10, &two)]), Read::Lost, "written over");
        let versions: Vec<_> = events.iter().map(|event| event.version).collect();
        assert_eq!(versions, [3, 4]);
    }

    #[test]
    fn news_come_back() {
        let (user, post) = (|name: &str| UserId::parse(name).expect("a name"), PostId::parse("p:1").expect("a name"));
        let entry = |at: i64| Entry { place: Place { at: Millis(at), post: post.clone() }, root: None };
        let all = [
            What::Posts {
                author: user("\u{e9} b"),
                added: vec![entry(5), entry(-7)],
                removed: vec![],
                touched: vec![post.clone(), post.clone()],
            },
            What::Posts { author: user("a"), added: vec![], removed: vec![entry(3).place], touched: vec![] },
            What::Ties { user: user("a"), follow: vec![user("b")], unfollow: vec![], hide: vec![], show: vec![] },
            What::Reposts { root: post.clone(), set: vec![], unset: vec![user("b")] },
            What::Floor(Subject::Author(user("a"))),
            What::Floor(Subject::User(user("a"))),
            What::Floor(Subject::Root(post.clone())),
        ];
        for what in all {
            let change = Change { prev: 3, version: (1 << 53) - 1, what };
            assert_eq!(read(told(&change).as_bytes()), Some(Event::of(&change)));
        }
        assert_eq!(read(b"X\n1\n2\na"), None);
    }
}
