//! Query strings: each route declares its parameters once; unknown, repeated and wrong ones are refused.

use std::borrow::Cow;

use tidegate::PageRequest;

use super::{Faults, path};
use crate::problem::{self, Problem};

/// Items of a page when the caller names no number.
pub(crate) const DEFAULT_LIMIT: usize = 50;
/// Most items of a page.
pub(crate) const MAX_LIMIT: usize = 500;

/// A query parameter a route knows.
pub(crate) struct Param {
    pub(crate) name: &'static str,
    pub(crate) kind: ParamKind,
    pub(crate) doc: &'static str,
}

/// What a query parameter holds.
pub(crate) enum ParamKind {
    /// Items of a page, `1..=`[`MAX_LIMIT`].
    Limit,
    /// A whole number from 1, of things.
    Number {
        /// The largest.
        max: usize,
        /// What it is when it is left out.
        default: usize,
    },
    /// Where a page goes on.
    Cursor,
    /// An event's cursor, >= 0.
    After,
    /// An id or a name from a list; checked by the route.
    Text,
    /// One of these.
    Choice(&'static [&'static str]),
}

/// Parameters of a list.
pub(crate) const LIMIT: Param = Param { name: "limit", kind: ParamKind::Limit, doc: "Most items of the page." };
/// Where a page goes on.
pub(crate) const CURSOR: Param =
    Param { name: "cursor", kind: ParamKind::Cursor, doc: "`next_cursor` of the page before; leave it out to begin." };

/// The parameters of one request, as sent.
pub(crate) struct Query<'q> {
    values: Vec<(&'static str, Cow<'q, str>)>,
    pub(crate) faults: Faults,
}

impl<'q> Query<'q> {
    /// Reads a query string against what the route knows.
    pub(crate) fn read(raw: Option<&'q str>, params: &'static [Param]) -> Result<Self, Problem> {
        let mut query = Self { values: Vec::new(), faults: Faults::default() };
        for pair in raw.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), Some(value)) = (form_decode(name), form_decode(value)) else {
                return Err(problem::malformed(
                    "The query is not percent-encoded UTF-8; encode each value and send it again.",
                ));
            };
            match params.iter().find(|param| param.name == name) {
                None => query.faults.add(format_args!("/{}", super::pointer::escape(&name)), unknown(params)),
                Some(param) if query.values.iter().any(|(known, _)| *known == param.name) => {
                    query.faults.add(format_args!("/{}", param.name), "appears twice; send it once");
                }
                Some(param) => query.values.push((param.name, value)),
            }
        }
        Ok(query)
    }

    /// The text of a parameter, if it was sent.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(known, _)| *known == name).map(|(_, value)| &**value)
    }

    /// A parameter through `parse`; its fault is noted.
    pub(crate) fn parsed<T, E: std::fmt::Display>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let parsed = parse(self.text(name)?);
        self.faults.take(format_args!("/{name}"), parsed)
    }

    /// A whole number, `1..=max`, if it was sent.
    pub(crate) fn number(&mut self, name: &str, max: usize) -> Option<usize> {
        let parse = |text: &str| match text.parse() {
            Ok(number) if (1..=max).contains(&number) && text.bytes().all(|b| b.is_ascii_digit()) => Ok(number),
            _ => Err(format!("must be a whole number from 1 to {max}")),
        };
        self.parsed(name, parse)
    }

    /// `limit`, or the default.
    pub(crate) fn limit(&mut self) -> usize {
        self.number("limit", MAX_LIMIT).unwrap_or(DEFAULT_LIMIT)
    }

    /// `limit` and `cursor`.
    pub(crate) fn page(&mut self) -> PageRequest {
        let limit = self.limit();
        let cursor = self.text("cursor").map(str::to_owned);
        PageRequest { cursor, limit }
    }

    /// An event's cursor in `after`; 0 when it is left out.
    pub(crate) fn after(&mut self) -> i64 {
        self.parsed("after", event_cursor).unwrap_or(0)
    }
}

/// An event's cursor as text.
pub(crate) fn event_cursor(text: &str) -> Result<i64, &'static str> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(after) if digits => Ok(after),
        _ => Err("must be the cursor of an event: a whole number from 0"),
    }
}

fn form_decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('+') {
        return path::decode(text);
    }
    path::decode(&text.replace('+', " ")).map(|decoded| Cow::Owned(decoded.into_owned()))
}

fn unknown(params: &[Param]) -> String {
    if params.is_empty() {
        return "is not a parameter of this call, which has none".to_owned();
    }
    let known: Vec<&str> = params.iter().map(|param| param.name).collect();
    format!("is not a parameter of this call; it has {}", known.join(", "))
}
