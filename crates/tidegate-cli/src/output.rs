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
    let mut err = io::stderr().lock();
    // A note that cannot be written has nowhere else to go.
    let _ = err.write_all(text.as_ref().as_bytes()).and_then(|()| err.write_all(b"\n"));
}

/// A failed write to stdout as a failure of the command.
fn written<T>(result: io::Result<T>) -> Result<T> {
    result.map_err(|e| match e.kind() {
        io::ErrorKind::BrokenPipe => Failure::ReaderGone,
        _ => Failure::Work(format!("cannot write to stdout: {e}")),
    })
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
    fn tables_align() {
        let rows = [["sku", "units"], ["mug", "5"], ["teapot", "1200"]].map(|r| r.map(str::to_owned).to_vec());
        assert_eq!(table(&rows), "sku     units\nmug         5\nteapot   1200\n");
    }
}
