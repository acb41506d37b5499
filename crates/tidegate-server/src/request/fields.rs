//! Bodies as tables of fields: one table decodes a body, refuses what does not fit, and describes it in the OpenAPI document.

use tidegate::core::{Millis, Patch};

use super::decode;
use super::json::Node;
use super::{Faults, Pointer};

/// Most fields of one shape.
const MAX_FIELDS: usize = 10;

/// An object a client sends.
pub(crate) struct Shape {
    /// Its name in the OpenAPI document.
    pub(crate) name: &'static str,
    /// What it asks for.
    pub(crate) doc: &'static str,
    /// An example, as JSON.
    pub(crate) example: &'static str,
    /// At most [`MAX_FIELDS`].
    pub(crate) fields: &'static [Field],
}

/// A field of a [`Shape`].
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) required: bool,
    /// Whether `null` has a meaning of its own (it clears the field). Elsewhere an optional field may be null: left out.
    pub(crate) clearable: bool,
    pub(crate) doc: &'static str,
}

/// What a field holds. Ranges are checked by the library; they are here to be told and described.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Text of at most this many bytes.
    Text(usize),
    /// A SKU, buyer or payment id.
    Label,
    /// An order id.
    OrderId,
    /// A currency code.
    Currency,
    /// A whole number in this range.
    Integer(i64, i64),
    /// True or false.
    Flag,
    /// An instant of RFC 3339.
    Instant,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Any JSON value of the caller's, kept as it is, of at most this many bytes.
    Json(usize),
    /// A JSON object of the caller's, of at most this many bytes.
    JsonObject(usize),
    /// An object of ours.
    Object(&'static Shape),
    /// A list of this many objects of ours.
    List(&'static Shape, usize, usize),
}

impl Kind {
    /// What a value must be, for a fault.
    pub(crate) fn wanted(self) -> String {
        match self {
            Kind::Text(_) => "must be a text".to_owned(),
            Kind::Label => "must be a text of 1 to 128 bytes".to_owned(),
            Kind::OrderId => {
                "must be a text of 1 to 64 of A-Z a-z 0-9 . _ : - that starts with a letter or digit".to_owned()
            }
            Kind::Currency => "must be a currency code of ISO 4217, such as \"EUR\"".to_owned(),
            Kind::Integer(min, max) => format!("must be a whole number from {min} to {max}"),
            Kind::Flag => "must be true or false".to_owned(),
            Kind::Instant => "must be an instant of RFC 3339, such as \"2026-11-29T15:08:10.000Z\"".to_owned(),
            Kind::Choice(words) => format!("must be one of {}", words.join(", ")),
            Kind::Json(max) => format!("must be a JSON value of at most {max} bytes"),
            Kind::JsonObject(max) => format!("must be a JSON object of at most {max} bytes"),
            Kind::Object(_) => "must be a JSON object".to_owned(),
            Kind::List(..) => "must be a list".to_owned(),
        }
    }
}

impl Field {
    /// A field that may be left out.
    pub(crate) const fn optional(name: &'static str, kind: Kind, doc: &'static str) -> Self {
        Self { name, kind, required: false, clearable: false, doc }
    }

    /// A field that must be there.
    pub(crate) const fn required(name: &'static str, kind: Kind, doc: &'static str) -> Self {
        Self { name, kind, required: true, clearable: false, doc }
    }

    /// A field of a partial update: left out it is unchanged, null clears it.
    pub(crate) const fn patch(name: &'static str, kind: Kind, doc: &'static str) -> Self {
        Self { name, kind, required: false, clearable: true, doc }
    }
}

/// The fields of one object, matched against its [`Shape`]. What does not fit has been noted when this exists.
pub(crate) struct Fields<'n, 'a, 'p> {
    shape: &'static Shape,
    pointer: &'p Pointer<'p>,
    members: [Option<&'n Node<'a>>; MAX_FIELDS],
}

impl<'n, 'a, 'p> Fields<'n, 'a, 'p> {
    /// Matches `node` against `shape`: it must be an object, without unknown fields or duplicates, with all required ones.
    pub(crate) fn open(
        node: &'n Node<'a>,
        shape: &'static Shape,
        pointer: &'p Pointer<'p>,
        faults: &mut Faults,
    ) -> Self {
        let mut fields = Self { shape, pointer, members: [None; MAX_FIELDS] };
        let Node::Object(members) = node else {
            faults.add(pointer, "must be a JSON object");
            return fields;
        };
        for (name, value) in members {
            match shape.fields.iter().position(|field| field.name == name) {
                None => faults.add(pointer.member(name), unknown(shape, name)),
                Some(i) if fields.members[i].is_some() => {
                    faults.add(pointer.member(name), "appears twice; send it once")
                }
                Some(i) => fields.members[i] = Some(value),
            }
        }
        for (i, field) in shape.fields.iter().enumerate() {
            if field.required && fields.members[i].is_none() {
                faults.add(pointer.member(field.name), format!("is required and {}", field.kind.wanted()));
            }
        }
        fields
    }

    fn find(&self, name: &str) -> (&'static Field, Option<&'n Node<'a>>) {
        let at = self
            .shape
            .fields
            .iter()
            .position(|field| field.name == name)
            .expect("a shape has the fields its decoder asks for");
        (&self.shape.fields[at], self.members[at])
    }

    fn read<T>(&self, name: &str, faults: &mut Faults, decode: impl FnOnce(&'n Node<'a>) -> Option<T>) -> Option<T> {
        let (field, node) = self.find(name);
        let node = node.filter(|node| field.required || !matches!(node, Node::Null))?;
        let value = decode(node);
        if value.is_none() {
            let detail = if *node == Node::LoneSurrogate {
                "must not contain a lone surrogate".to_owned()
            } else {
                field.kind.wanted()
            };
            faults.add(self.pointer.member(field.name), detail);
        }
        value
    }

    /// A text.
    pub(crate) fn text(&self, name: &str, faults: &mut Faults) -> Option<&'n str> {
        self.read(name, faults, decode::text)
    }

    /// A whole number.
    pub(crate) fn integer(&self, name: &str, faults: &mut Faults) -> Option<i64> {
        self.read(name, faults, decode::integer)
    }

    /// True or false.
    pub(crate) fn flag(&self, name: &str, faults: &mut Faults) -> Option<bool> {
        self.read(name, faults, decode::flag)
    }

    /// An instant.
    pub(crate) fn instant(&self, name: &str, faults: &mut Faults) -> Option<Millis> {
        self.read(name, faults, decode::instant)
    }

    /// A word from the list of its kind.
    pub(crate) fn choice(&self, name: &str, faults: &mut Faults) -> Option<&'n str> {
        let Kind::Choice(words) = self.find(name).0.kind else { return None };
        self.read(name, faults, |node| decode::text(node).filter(|text| words.contains(text)))
    }

    /// A whole number within the range of its kind.
    pub(crate) fn ranged(&self, name: &str, faults: &mut Faults) -> Option<i64> {
        let Kind::Integer(min, max) = self.find(name).0.kind else { return None };
        self.within(name, min, max, faults)
    }

    /// A whole number within a range of the server's own.
    pub(crate) fn within(&self, name: &str, min: i64, max: i64, faults: &mut Faults) -> Option<i64> {
        let number = self.integer(name, faults)?;
        if (min..=max).contains(&number) {
            return Some(number);
        }
        faults.add(self.pointer.member(name), Kind::Integer(min, max).wanted());
        None
    }

    /// A JSON value of the caller's as compact text; null is empty.
    pub(crate) fn json(&self, name: &str, faults: &mut Faults) -> String {
        let mut text = String::new();
        if let Some(node) = self.node(name) {
            decode::compact(node, &self.pointer.member(name), faults, &mut text);
        }
        text
    }

    /// Any node that is there and not null.
    pub(crate) fn node(&self, name: &str) -> Option<&'n Node<'a>> {
        let (field, node) = self.find(name);
        node.filter(|node| field.required || !matches!(node, Node::Null))
    }

    /// A list of the length its shape allows.
    pub(crate) fn list(&self, name: &str, faults: &mut Faults) -> Option<&'n [Node<'a>]> {
        let items = self.read(name, faults, |node| match node {
            Node::Array(items) => Some(items.as_slice()),
            _ => None,
        })?;
        let Kind::List(_, min, max) = self.find(name).0.kind else { return Some(items) };
        if (min..=max).contains(&items.len()) {
            return Some(items);
        }
        faults.add(self.pointer.member(name), format!("must have {min} to {max} items, not {}", items.len()));
        None
    }

    /// A field of a partial update.
    pub(crate) fn patch<T>(
        &self,
        name: &str,
        faults: &mut Faults,
        decode: impl FnOnce(&'n Node<'a>) -> Option<T>,
    ) -> Patch<T> {
        match self.find(name).1 {
            None => Patch::Keep,
            Some(Node::Null) => Patch::Clear,
            Some(_) => self.read(name, faults, decode).map_or(Patch::Keep, Patch::Set),
        }
    }

    /// The place of a member.
    pub(crate) fn at<'q>(&'q self, name: &'q str) -> Pointer<'q> {
        self.pointer.member(name)
    }
}

fn unknown(shape: &Shape, name: &str) -> String {
    let known: Vec<&str> = shape.fields.iter().map(|field| field.name).collect();
    if known.is_empty() {
        return "is not a field of this request, which has none".to_owned();
    }
    let folded = name.to_lowercase().replace('-', "_");
    match known.iter().find(|k| folded == **k || folded.replace('_', "") == k.replace('_', "")) {
        Some(meant) => format!("is not a field of this request; did you mean {meant}?"),
        None => format!("is not a field of this request; it has {}", known.join(", ")),
    }
}
