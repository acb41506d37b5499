//! The first reading: which invoice stands where, and which rows cannot be used on their own account.
//!
//! Rows are not kept. Memory grows with the number of invoices (about a hundred bytes each), not of rows.

use std::io;

use tidegate::core::Map;

use super::reason::{Place, Reason};
use super::row::Row;
use super::source::{Input, Mark, Source};

/// Rows of one invoice that follow each other in one file.
#[derive(Debug, Clone, Copy)]
pub struct Stretch {
    /// Index of the file.
    pub file: u32,
    /// Where it begins.
    pub mark: Mark,
    /// Rows.
    pub rows: u32,
}

/// An invoice: its number, when, and where its rows are.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The invoice number.
    pub number: Box<str>,
    /// Its first usable row, milliseconds since 1970.
    pub at: i64,
    /// Its rows; nearly always one stretch.
    pub stretches: Vec<Stretch>,
}

/// All invoices.
#[derive(Debug, Default)]
pub struct Index {
    entries: Vec<Entry>,
    by_number: Map<Box<str>, u32>,
    /// Rows read so far.
    pub rows: u64,
}

impl Index {
    /// Reads a whole file. `unusable` is told of each row that cannot be used on its own account.
    ///
    /// # Errors
    /// When the file cannot be read, or `unusable` says so.
    pub fn add<R: Input, E: From<io::Error>>(
        &mut self,
        file: u32,
        source: &mut Source<R>,
        digits: u32,
        mut unusable: impl FnMut(Place, Reason) -> Result<(), E>,
    ) -> Result<(), E> {
        let columns = source.columns();
        let mut last: Option<u32> = None;
        while let Some(record) = source.next()? {
            self.rows += 1;
            let place = Place { file, line: record.line };
            let Some(text) = record.fields else {
                unusable(place, Reason::BadText)?;
                last = None;
                continue;
            };
            let Some(fields) = columns.fields(&text) else {
                unusable(place, Reason::WrongColumns)?;
                last = None;
                continue;
            };
            let read = Row::read(&fields, digits);
            let at = self.stretch(fields.invoice, &mut last, Stretch { file, mark: record.mark, rows: 1 });
            match read {
                Ok(row) => self.entries[at].at = self.entries[at].at.min(row.at),
                Err(reason) => unusable(place, reason)?,
            }
        }
        Ok(())
    }

    /// Adds a row to its invoice: to its last stretch if the row before was of it, else as a new one.
    fn stretch(&mut self, number: &str, last: &mut Option<u32>, row: Stretch) -> usize {
        if let Some(open) = *last
            && let entry = &mut self.entries[open as usize]
            && &*entry.number == number
            && let Some(stretch) = entry.stretches.last_mut()
        {
            stretch.rows += 1;
            return open as usize;
        }
        let at = match self.by_number.get(number) {
            Some(&at) => at,
            None => {
                let at = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
                self.entries.push(Entry { number: number.into(), at: i64::MAX, stretches: Vec::with_capacity(1) });
                self.by_number.insert(number.into(), at);
                at
            }
        };
        self.entries[at as usize].stretches.push(row);
        *last = Some(at);
        at as usize
    }

    /// The invoices with at least one usable row, by time; those of the same instant in the order of the files.
    pub fn in_time_order(self) -> Vec<Entry> {
        let mut entries = self.entries;
        entries.retain(|entry| entry.at != i64::MAX);
        entries.sort_by_key(|entry| entry.at);
        entries
    }
}
