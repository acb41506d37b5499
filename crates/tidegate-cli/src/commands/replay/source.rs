//! A CSV file, record by record, each with the line it really begins on and a mark to come back to.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use csv::{ByteRecord, Position, StringRecord, Terminator};

use super::columns::{Columns, Names};
use crate::failure::{Failure, Result};

/// What a file is read through: a real file, or a test's bytes.
pub trait Input: Read + Seek {}
impl<T: Read + Seek> Input for T {}

/// One file of a replay.
pub struct Source<R> {
    reader: csv::Reader<R>,
    columns: Columns,
    record: ByteRecord,
    /// Where the last line ends without a line break, if it does.
    open_end: Option<u64>,
}

/// Where a record begins, so that it can be read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Offset in bytes.
    pub byte: u64,
    /// Lines before it, as the reader counts them.
    line: u64,
}

/// A record.
pub struct Record {
    /// The line it begins on, from 1.
    pub line: u64,
    /// Where to seek to read it again.
    pub mark: Mark,
    /// Its fields; `None` when they are not UTF-8.
    pub fields: Option<StringRecord>,
}

/// Opens `path`.
///
/// # Errors
/// [`Failure::Usage`] when it cannot be opened or its header does not have the columns.
pub fn open(path: &Path, names: &Names) -> Result<Source<File>> {
    let wrong = |why: String| Failure::Usage(format!("{}: {why}", path.display()));
    let file = File::open(path).map_err(|e| wrong(format!("cannot be opened: {e}")))?;
    Source::new(file, names).map_err(wrong)
}

impl<R: Input> Source<R> {
    /// Reads the header of `input`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(mut input: R, names: &Names) -> std::result::Result<Self, String> {
        let open_end = open_end(&mut input).map_err(|e| format!("cannot be read: {e}"))?;
        // Only a line feed ends a record: the reader's own handling of CR LF miscounts lines. The CR is taken off here.
        let mut reader = csv::ReaderBuilder::new().flexible(true).terminator(Terminator::Any(b'\n')).from_reader(input);
        let header = reader.byte_headers().map_err(|e| format!("cannot be read: {e}"))?.clone();
        let header = StringRecord::from_byte_record(without_return(&header))
            .map_err(|_| "the header is not UTF-8".to_owned())?;
        let columns = names.find(&header)?;
        Ok(Self { reader, columns, record: ByteRecord::new(), open_end })
    }

    /// Where the columns are.
    pub fn columns(&self) -> Columns {
        self.columns
    }

    /// The next record; blank lines are none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn next(&mut self) -> io::Result<Option<Record>> {
        loop {
            let before = self.reader.position().clone();
            if !self.reader.read_byte_record(&mut self.record).map_err(io::Error::other)? {
                return Ok(None);
            }
            let after = self.reader.position();
            let inner: u64 = self.record.iter().flatten().filter(|b| **b == b'\n').count() as u64;
            let own_break = u64::from(self.open_end != Some(after.byte()));
            let line = after.line().saturating_sub(inner + own_break);
            let fields = without_return(&self.record);
            if fields.len() == 1 && fields[0].is_empty() {
                continue;
            }
            let mark = Mark { byte: before.byte(), line: before.line() };
            return Ok(Some(Record { line, mark, fields: StringRecord::from_byte_record(fields).ok() }));
        }
    }

    /// Goes back to a record. Where the reader already is costs nothing.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn seek(&mut self, mark: Mark) -> io::Result<()> {
        if self.reader.position().byte() == mark.byte {
            return Ok(());
        }
        let mut position = Position::new();
        position.set_byte(mark.byte).set_line(mark.line);
        self.reader.seek(position).map_err(io::Error::other)
    }
}

fn open_end(input: &mut (impl Read + Seek)) -> io::Result<Option<u64>> {
    let length = input.seek(SeekFrom::End(0))?;
    let mut last = [b'\n'];
    if length > 0 {
        input.seek(SeekFrom::End(-1))?;
        input.read_exact(&mut last)?;
    }
    input.seek(SeekFrom::Start(0))?;
    Ok((last != [b'\n']).then_some(length))
}

/// The record without the carriage return of its line break.
fn without_return(record: &ByteRecord) -> ByteRecord {
    match record.len().checked_sub(1).map(|last| (last, record[last].strip_suffix(b"\r"))) {
        Some((last, Some(stripped))) => {
            let mut without = ByteRecord::with_capacity(record.as_slice().len(), record.len());
            record.iter().take(last).for_each(|field| without.push_field(field));
            without.push_field(stripped);
            without
        }
        _ => record.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID";

    fn lines(text: &str) -> Vec<(u64, Option<usize>)> {
        let mut source = Source::new(io::Cursor::new(text.to_owned()), &Names::default()).unwrap();
        let mut got = Vec::new();
        while let Some(record) = source.next().unwrap() {
            got.push((record.line, record.fields.map(|f| f.len())));
        }
        got
    }

    #[test]
    fn lines_are_true() {
        let row = "1,2,\"a,\"\"b\"\"\",4,5,6,7";
        for (text, want) in [
            (format!("{HEADER}\n{row}\n{row}\n"), vec![(2, Some(7)), (3, Some(7))]),
            (format!("{HEADER}\r\n{row}\r\n\r\n{row}\r\n"), vec![(2, Some(7)), (4, Some(7))]),
            (
                format!("\u{feff}{HEADER}\n\n\n{row}\n1,2,\"x\ny\",4,5,6,7\n{row}"),
                vec![(4, Some(7)), (5, Some(7)), (7, Some(7))],
            ),
            (format!("{HEADER}\n1,2\n{row},8"), vec![(2, Some(2)), (3, Some(8))]),
            (HEADER.to_owned(), vec![]),
        ] {
            assert_eq!(lines(&text), want, "{text:?}");
        }
    }

    #[test]
    fn marks_lead_back() {
        let text = format!("{HEADER}\r\n\r\na,,,,,,\r\nb,,,,,,\r\nc,,,,,,x");
        let mut source = Source::new(io::Cursor::new(text), &Names::default()).unwrap();
        let mut seen = Vec::new();
        while let Some(record) = source.next().unwrap() {
            seen.push((record.mark, record.line, record.fields.unwrap()));
        }
        for (mark, line, fields) in seen.iter().rev() {
            source.seek(*mark).unwrap();
            let again = source.next().unwrap().unwrap();
            assert_eq!((again.line, again.fields.as_ref()), (*line, Some(fields)));
        }
    }

    #[test]
    fn what_is_not_utf8_is_told() {
        let mut bytes = format!("{HEADER}\n").into_bytes();
        bytes.extend_from_slice(b"1,2,\xa3,4,5,6,7\n");
        let mut source = Source::new(io::Cursor::new(bytes), &Names::default()).unwrap();
        assert!(source.next().unwrap().unwrap().fields.is_none());
    }
}
