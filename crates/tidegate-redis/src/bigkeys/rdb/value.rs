//! The values of a snapshot: each type and encoding is read past, and weighed.

use std::io::Read;

use super::super::weight::{Model, Weight};
use super::radix::Grower;
use super::reader::{Reader, Text};
use super::{Kind, RdbError, RdbResult};

/// Bytes of the head of a value in one piece.
const HEAD: usize = 16;
/// A count of this many in a head means that nobody counted.
const UNCOUNTED: u64 = 0xffff;
/// Bytes of a stream's id.
const ID: usize = 16;

/// What a value comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) kind: Kind,
    pub(super) encoding: &'static str,
    /// `None`: the value does not say.
    pub(super) elements: Option<u64>,
    /// With its key; `None`: a module's value.
    pub(super) weight: Option<Weight>,
}

/// How the head of a value in one piece says how many elements it has.
#[derive(Clone, Copy)]
enum Form {
    Ziplist,
    Listpack,
    Intset,
    Zipmap,
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Form::Ziplist => "ziplist",
            Form::Listpack => "listpack",
            Form::Intset => "intset",
            Form::Zipmap => "zipmap",
        }
    }

    /// How many elements; `Ok(None)`: it does not say. `Err`: it is none of this form.
    fn count(self, head: &[u8], length: u64) -> Result<Option<u64>, ()> {
        let u32_at = |at: usize| head.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes).ok_or(());
        let u16_at = |at: usize| head.get(at..at + 2).and_then(|b| b.try_into().ok()).map(u16::from_le_bytes).ok_or(());
        let counted = |count: u16| Some(u64::from(count)).filter(|count| *count != UNCOUNTED);
        let is_whole = |is: bool| if is { Ok(()) } else { Err(()) };
        // The least that an element takes.
        let (count, least) = match self {
            Form::Ziplist => {
                is_whole(u64::from(u32_at(0)?) == length && length >= 11)?;
                (counted(u16_at(8)?), 2)
            }
            Form::Listpack => {
                is_whole(u64::from(u32_at(0)?) == length && length >= 7)?;
                (counted(u16_at(4)?), 2)
            }
            Form::Intset => {
                let (width, count) = (u64::from(u32_at(0)?), u64::from(u32_at(4)?));
                is_whole(
                    matches!(width, 2 | 4 | 8)
                        && count.checked_mul(width).and_then(|n| n.checked_add(8)) == Some(length),
                )?;
                (Some(count), 2)
            }
            Form::Zipmap => {
                let count = u64::from(*head.first().ok_or(())?);
                is_whole(length >= 2)?;
                // Pairs; two elements each, like in the other forms.
                (Some(count * 2).filter(|_| count < 254), 2)
            }
        };
        is_whole(count.unwrap_or(0) * least <= length)?;
        Ok(count)
    }
}

/// Where a value stands: what is known before it is read.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) model: &'a Model,
    pub(super) key: u64,
    pub(super) has_end: bool,
    pub(super) is_valkey: bool,
}

impl Place<'_> {
    fn value(&self, kind: Kind, encoding: &'static str, elements: Option<u64>, weight: Weight) -> RdbResult<Value> {
        let weight = Some(self.model.shell(self.key, self.has_end).and(weight));
        Ok(Value { kind, encoding, elements, weight })
    }
}

/// Reads the value of type `code`.
pub(super) fn read<R: Read>(r: &mut Reader<R>, code: u8, place: Place<'_>, scratch: &mut Vec<u8>) -> RdbResult<Value> {
    match code {
        0 => string(r, place),
        1 => list(r, place),
        2 => set(r, place),
        3 | 5 => sorted(r, code, place),
        4 => hash(r, place, Ends::None),
        7 => module(r),
        9 => blob(r, place, Kind::Hash, Form::Zipmap, scratch),
        10 => blob(r, place, Kind::List, Form::Ziplist, scratch),
        11 => blob(r, place, Kind::Set, Form::Intset, scratch),
        12 => blob(r, place, Kind::SortedSet, Form::Ziplist, scratch),
        13 => blob(r, place, Kind::Hash, Form::Ziplist, scratch),
        14 | 18 => quicklist(r, code, place, scratch),
        15 | 19 | 21 => stream(r, code, place),
        16 => blob(r, place, Kind::Hash, Form::Listpack, scratch),
        17 => blob(r, place, Kind::SortedSet, Form::Listpack, scratch),
        20 => blob(r, place, Kind::Set, Form::Listpack, scratch),
        22 if place.is_valkey => hash(r, place, Ends::Behind),
        22 => hash(r, place, Ends::Before),
        23 if !place.is_valkey => with_ends(r, place, scratch),
        24 if !place.is_valkey => {
            r.bytes::<8>()?;
            hash(r, place, Ends::Before)
        }
        25 if !place.is_valkey => {
            r.bytes::<8>()?;
            with_ends(r, place, scratch)
        }
        _ => Err(RdbError::UnsupportedType { code, at: r.position() }),
    }
}

fn string<R: Read>(r: &mut Reader<R>, place: Place<'_>) -> RdbResult<Value> {
    let (weight, encoding, length) = match r.skip_text()? {
        text @ Text::Number(_) => (place.model.number(place.key, place.has_end), "int", text.length()),
        Text::Bytes(length) => {
            let (weight, encoding) = place.model.string(place.key, place.has_end, length);
            (weight, encoding, length)
        }
    };
    Ok(Value { kind: Kind::String, encoding, elements: Some(length), weight: Some(weight) })
}

/// Elements that stand one by one, from before Redis 3.2; a server keeps them in nodes of 8 KiB.
fn list<R: Read>(r: &mut Reader<R>, place: Place<'_>) -> RdbResult<Value> {
    const NODE: u64 = 8 << 10;
    let count = r.length()?;
    let mut bytes: u64 = 0;
    for _ in 0..count {
        bytes = bytes.saturating_add(r.skip_text()?.length()).saturating_add(3);
    }
    let nodes = bytes.div_ceil(NODE);
    let mut weight = place.model.quicklist();
    let node = place.model.quicklist_node(bytes.checked_div(nodes).unwrap_or(0));
    weight.bytes = weight.bytes.saturating_add(node.bytes.saturating_mul(nodes));
    weight.pieces = weight.pieces.saturating_add(node.pieces.saturating_mul(nodes));
    place.value(Kind::List, "quicklist", Some(count), weight)
}

fn set<R: Read>(r: &mut Reader<R>, place: Place<'_>) -> RdbResult<Value> {
    let count = r.length()?;
    let mut weight = place.model.set(count);
    for _ in 0..count {
        weight = weight.and(place.model.member(r.skip_text()?.length()));
    }
    place.value(Kind::Set, "hashtable", Some(count), weight)
}

fn sorted<R: Read>(r: &mut Reader<R>, code: u8, place: Place<'_>) -> RdbResult<Value> {
    let count = r.length()?;
    let mut weight = place.model.sorted(count);
    for _ in 0..count {
        weight = weight.and(place.model.scored(r.skip_text()?.length()));
        if code == 5 {
            r.bytes::<8>()?;
        } else {
            // A score in characters, or one of three that are no number.
            match r.byte()? {
                253..=255 => {}
                length => r.skip(u64::from(length))?,
            }
        }
    }
    place.value(Kind::SortedSet, "skiplist", Some(count), weight)
}

/// Where the ends of a hash's fields stand.
#[derive(Clone, Copy, PartialEq)]
enum Ends {
    None,
    /// Redis: a number before each field.
    Before,
    /// Valkey: an instant behind each value.
    Behind,
}

fn hash<R: Read>(r: &mut Reader<R>, place: Place<'_>, ends: Ends) -> RdbResult<Value> {
    let count = r.length()?;
    let (mut weight, mut ending) = (place.model.table(count), 0);
    for _ in 0..count {
        let before = if ends == Ends::Before { r.length()? } else { 0 };
        let (field, value) = (r.skip_text()?.length(), r.skip_text()?.length());
        let behind = if ends == Ends::Behind { i64::from_le_bytes(r.bytes()?) } else { -1 };
        let has_end = before > 0 || behind >= 0;
        ending += u64::from(has_end);
        weight = weight.and(place.model.field(field, value, has_end));
    }
    weight = weight.and(place.model.ends(ending));
    place.value(Kind::Hash, "hashtable", Some(count), weight)
}

/// A value in one piece: its length, and how many elements it says it has.
fn piece<R: Read>(r: &mut Reader<R>, form: Form, scratch: &mut Vec<u8>) -> RdbResult<(u64, Option<u64>)> {
    let Text::Bytes(length) = r.text(scratch, HEAD)? else {
        return r.corrupt("a number where a value in one piece must be");
    };
    match form.count(scratch, length) {
        Ok(count) => Ok((length, count)),
        Err(()) => r.corrupt("a value in one piece whose head does not fit it"),
    }
}

fn blob<R: Read>(
    r: &mut Reader<R>,
    place: Place<'_>,
    kind: Kind,
    form: Form,
    scratch: &mut Vec<u8>,
) -> RdbResult<Value> {
    let (length, count) = piece(r, form, scratch)?;
    let each = if matches!(kind, Kind::Hash | Kind::SortedSet) { 2 } else { 1 };
    place.value(kind, form.name(), count.map(|count| count / each), place.model.blob(length))
}

/// A hash in one piece with the ends of its fields: three elements each.
fn with_ends<R: Read>(r: &mut Reader<R>, place: Place<'_>, scratch: &mut Vec<u8>) -> RdbResult<Value> {
    let (length, count) = piece(r, Form::Listpack, scratch)?;
    place.value(Kind::Hash, "listpackex", count.map(|count| count / 3), place.model.blob(length))
}

fn quicklist<R: Read>(r: &mut Reader<R>, code: u8, place: Place<'_>, scratch: &mut Vec<u8>) -> RdbResult<Value> {
    let nodes = r.length()?;
    let mut elements = Some(0_u64);
    let mut weight = place.model.quicklist();
    let mut only = None;
    for _ in 0..nodes {
        // A node is an element by itself, or a piece of many.
        let is_plain = code == 18
            && match r.length()? {
                1 => true,
                2 => false,
                _ => return r.corrupt("a node of a list of an unknown form"),
            };
        let (length, count) = if is_plain {
            (r.skip_text()?.length(), Some(1))
        } else {
            piece(r, if code == 18 { Form::Listpack } else { Form::Ziplist }, scratch)?
        };
        only = (!is_plain && nodes == 1).then_some(length);
        elements = elements.zip(count).map(|(all, count)| all.saturating_add(count));
        weight = weight.and(place.model.quicklist_node(length));
    }
    match only {
        // Lists of one node are kept without the rest since Redis 7.2.
        Some(length) if place.model.has_small_lists() => {
            place.value(Kind::List, "listpack", elements, place.model.blob(length))
        }
        _ => place.value(Kind::List, "quicklist", elements, weight),
    }
}

fn stream<R: Read>(r: &mut Reader<R>, code: u8, place: Place<'_>) -> RdbResult<Value> {
    let m = place.model;
    let nodes = r.length()?;
    let (mut packs, mut tree, mut id) = (Weight::default(), Grower::default(), Vec::new());
    let mut last = 0;
    for _ in 0..nodes {
        r.text(&mut id, ID)?;
        match id[..].try_into() {
            Ok(id) => tree.add(id),
            Err(_) => return r.corrupt("a stream's id of an unknown length"),
        }
        last = r.skip_text()?.length();
        packs = packs.and(m.blob(last));
    }
    let count = r.length()?;
    // The last id; the first, the largest that was deleted, and how many were ever added.
    for _ in 0..if code >= 19 { 7 } else { 2 } {
        r.length()?;
    }
    let mut weight = m.stream(tree.done(), packs, last);
    let groups = r.length()?;
    for _ in 0..groups {
        r.skip_text()?;
        for _ in 0..if code >= 19 { 3 } else { 2 } {
            r.length()?;
        }
        let (pending, mut tree) = (r.length()?, Grower::default());
        for _ in 0..pending {
            tree.add(r.bytes()?);
            r.bytes::<8>()?;
            r.length()?;
        }
        weight = weight.and(m.group(tree.done()));
        let consumers = r.length()?;
        for _ in 0..consumers {
            r.skip_text()?;
            r.skip(if code >= 21 { 16 } else { 8 })?;
            let (owned, mut tree) = (r.length()?, Grower::default());
            for _ in 0..owned {
                tree.add(r.bytes()?);
            }
            weight = weight.and(m.consumer(tree.done()));
        }
    }
    place.value(Kind::Stream, "stream", Some(count), weight)
}

/// A module's value: how much it takes only the module knows.
fn module<R: Read>(r: &mut Reader<R>) -> RdbResult<Value> {
    r.length()?;
    skip_module(r)?;
    Ok(Value { kind: Kind::Module, encoding: "module", elements: None, weight: None })
}

/// Reads past what a module wrote, up to its end.
pub(super) fn skip_module<R: Read>(r: &mut Reader<R>) -> RdbResult<()> {
    loop {
        match r.length()? {
            0 => return Ok(()),
            1 | 2 => {
                r.length()?;
            }
            3 => r.skip(4)?,
            4 => r.skip(8)?,
            5 => {
                r.skip_text()?;
            }
            _ => return r.corrupt("a module's value of an unknown form"),
        }
    }
}
