//! The one place that prints: results on stdout, everything else on stderr.

use std::io::{self, Write};

use serde::Serialize;

use crate::failure::{Failure, Result};

/// Writes `text` and a line break to stdout and flushes it.
pub fn line(text: impl AsRef<str>) -> Result {
    let mut out = io::stdout().lock();
    written(out.write_all(text.as_ref().as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()))
}

/// Writes one JSON document on one line to stdout.
pub fn json(value: &impl Serialize) -> Result {
    line(serde_json::to_string(value).map_err(|e| Failure::Work(format!("cannot write the answer as JSON: {e}")))?)
}

/// Writes `text` as it is to stdout.
pub fn raw(text: impl AsRef<[u8]>) -> Result {
    let mut out = io::stdout().lock();
    written(out.write_all(text.as_ref()).and_then(|()| out.flush()))
}

/// Tells the person at the terminal something, on stderr. Nobody there is no failure.
pub fn note(text: impl AsRef<str>) {
    // One write, so that lines of two threads do not mix; it never fails.
    let _ = Stderr.write(format!("{}\n", text.as_ref()).as_bytes());
}

/// Stderr for notes and for the log: what cannot be written (a full disk, a pipe nobody reads) has nowhere else to go
/// and is dropped, so that a lost line ends nothing.
#[derive(Debug, Clone, Copy)]
pub struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().lock().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A failed write to stdout as a failure of the command.
fn written<T>(result: io::Result<T>) -> Result<T> {
    result.map_err(|e| match e.kind() {
        io::ErrorKind::BrokenPipe => Failure::ReaderGone,
        _ => Failure::Work(format!("cannot write to stdout: {e}")),
    })
}

/// `1 order`, `2 orders`.
pub fn count(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// Names of invariants in the order of their numbers: `I2` before `I10`.
pub fn invariants<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<_> = names.collect();
    names.sort_unstable_by_key(|name| (name.len(), *name));
    names.join(" ")
}

/// Rows as a table with aligned columns; the first row is its head. Numbers are set to the right.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let is_number = |cell: &str| {
        cell.starts_with(|c: char| c.is_ascii_digit() || c == '-') && cell.len() > usize::from(cell.starts_with('-'))
    };
    let numeric: Vec<bool> = (0..columns)
        .map(|c| {
            rows.len() > 1
                && rows.iter().skip(1).filter_map(|r| r.get(c)).all(|cell| cell.is_empty() || is_number(cell))
        })
        .collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(c, cell)| {
            let pad = " ".repeat(widths[c].saturating_sub(cell.chars().count()));
            if numeric[c] { format!("{pad}{cell}") } else { format!("{cell}{pad}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_invariants_read_well() {
        assert_eq!([0, 1, 2].map(|n| count(n, "SKU")), ["0 SKUs", "1 SKU", "2 SKUs"]);
        assert_eq!(invariants(["I1", "I10", "I2", "I9"].into_iter()), "I1 I2 I9 I10");
    }

    #[test]
    fn tables_align() {
        let rows = [["sku", "units"], ["mug", "5"], ["teapot", "1200"]].map(|r| r.map(str::to_owned).to_vec());
        assert_eq!(table(&rows), "sku     units\nmug         5\nteapot   1200\n");
    }
}
