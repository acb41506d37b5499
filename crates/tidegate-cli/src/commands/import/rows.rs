//! Rows of a file: CSV or NDJSON, one thing a row, each with its line number. A row that cannot be read is a row with a
//! reason; the next one is read all the same.

use std::io::{BufRead, BufReader, Read};

use super::Format;
use crate::config::keys::nearest;
use csv::StringRecord;
use serde_json::{Map, Value, json};

/// Longest line of NDJSON, in bytes.
const MAX_LINE: u64 = 1 << 20;

/// What a file holds.
pub struct Layout {
    /// Columns of CSV.
    pub columns: &'static [&'static str],
    /// Columns and fields of an export that are read only: passed over.
    pub read_only: &'static [&'static str],
    /// The column that no file is without.
    pub required: &'static str,
    /// The body of a row of CSV, given its cells that are not empty.
    pub from_cells: fn(&Cells<'_>) -> Result<Map<String, Value>, String>,
}

/// The cells of a row of CSV by their columns' names; none is empty.
pub struct Cells<'a> {
    columns: &'a [String],
    record: &'a StringRecord,
}

impl<'a> Cells<'a> {
    /// The cell of a column, if it is not empty.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        let at = self.columns.iter().position(|column| column == name)?;
        self.record.get(at).filter(|text| !text.is_empty())
    }

    /// These cells as texts.
    pub fn texts(&self, names: &[&str]) -> Map<String, Value> {
        names.iter().filter_map(|name| Some(((*name).to_owned(), json!(self.get(name)?)))).collect()
    }
}

/// One row.
pub struct Row {
    /// Its line in the file, from 1.
    pub line: u64,
    /// What it says; or why it cannot be read.
    pub body: Result<Map<String, Value>, String>,
    /// About how long it is, in bytes.
    pub bytes: usize,
}

type Input = BufReader<Box<dyn Read + Send>>;

/// The rows of a file.
pub struct Rows {
    layout: &'static Layout,
    text: Text,
}

enum Text {
    /// CSV, with the columns of its header.
    Csv(Box<csv::Reader<Input>>, Vec<String>),
    /// NDJSON, with the number of the line before.
    Ndjson(Input, u64),
}

impl Rows {
    /// Looks at the first character (unless `format` is given) and reads the header.
    ///
    /// # Errors
    /// What is wrong with the header.
    pub fn open(mut input: Input, format: Option<Format>, layout: &'static Layout) -> Result<Self, String> {
        let start = input.fill_buf().map_err(|e| format!("cannot be read: {e}"))?;
        if start.starts_with(b"\xef\xbb\xbf") {
            input.consume(3);
        }
        let start = input.fill_buf().map_err(|e| format!("cannot be read: {e}"))?;
        let first = start.iter().find(|b| !b.is_ascii_whitespace());
        let text = match format.unwrap_or(if first == Some(&b'{') { Format::Ndjson } else { Format::Csv }) {
            Format::Ndjson => Text::Ndjson(input, 0),
            Format::Csv => {
                let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(input);
                let header = reader.headers().map_err(|e| format!("the header cannot be read: {e}"))?;
                let columns: Vec<String> = header.iter().map(|name| name.trim().to_owned()).collect();
                check_header(&columns, layout)?;
                Text::Csv(Box::new(reader), columns)
            }
        };
        Ok(Self { layout, text })
    }
}

fn check_header(columns: &[String], layout: &Layout) -> Result<(), String> {
    for (i, name) in columns.iter().enumerate() {
        if columns[..i].contains(name) {
            return Err(format!("the header names column {name:?} twice"));
        }
        let known = || layout.columns.iter().chain(layout.read_only).copied();
        if !known().any(|column| column == name) {
            let hint = nearest(name, known()).map_or_else(
                || format!("the columns are {}", layout.columns.join(", ")),
                |near| format!("did you mean {near:?}?"),
            );
            return Err(format!("unknown column {name:?} in the header; {hint}"));
        }
    }
    let required = layout.required;
    if !columns.iter().any(|name| name == required) {
        return Err(format!("the header has no column {required:?}; the first line of a CSV file names its columns"));
    }
    Ok(())
}

impl Iterator for Rows {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        let layout = self.layout;
        match &mut self.text {
            Text::Csv(reader, columns) => {
                let mut record = StringRecord::new();
                let line = reader.position().line();
                match reader.read_record(&mut record) {
                    Ok(false) => None,
                    Ok(true) => {
                        let line = record.position().map_or(line, csv::Position::line);
                        let body = from_csv(columns, &record, layout);
                        Some(Row { line, body, bytes: record.as_slice().len() + 200 })
                    }
                    Err(e) => {
                        // A broken file gives no further rows; a broken row does.
                        let line = e.position().map_or(line, csv::Position::line);
                        let more = matches!(e.kind(), csv::ErrorKind::Utf8 { .. });
                        let row = Row { line, body: Err(e.to_string()), bytes: 0 };
                        if !more {
                            self.text = Text::Ndjson(BufReader::new(Box::new(std::io::empty())), 0);
                        }
                        Some(row)
                    }
                }
            }
            Text::Ndjson(input, line) => next_json(input, line, layout),
        }
    }
}

fn next_json(input: &mut Input, line: &mut u64, layout: &Layout) -> Option<Row> {
    loop {
        let mut bytes = Vec::new();
        let read = input.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut bytes);
        *line += 1;
        let refused = |why: String| Some(Row { line: *line, body: Err(why), bytes: 0 });
        match read {
            Err(e) => {
                *input = BufReader::new(Box::new(std::io::empty()));
                return refused(format!("the file cannot be read further: {e}"));
            }
            Ok(0) => return None,
            Ok(n) if n as u64 > MAX_LINE => {
                // Passes over what is left of the line.
                while !bytes.ends_with(b"\n") {
                    bytes.clear();
                    if input.by_ref().take(MAX_LINE).read_until(b'\n', &mut bytes).is_ok_and(|n| n == 0)
                        || bytes.is_empty()
                    {
                        break;
                    }
                }
                return refused(format!("the line is longer than {MAX_LINE} bytes"));
            }
            Ok(_) if bytes.trim_ascii().is_empty() => {}
            Ok(n) => return Some(Row { line: *line, body: from_json(&bytes, layout), bytes: n }),
        }
    }
}

/// JSON, unless it holds a whole number that would lose digits on the way.
pub fn json_of(bytes: &[u8]) -> Result<Value, String> {
    let value = serde_json::from_slice(bytes).map_err(|e| format!("is not JSON: {e}"))?;
    match too_large(bytes) {
        None => Ok(value),
        Some(digits) => Err(format!("has the number {digits}, which does not fit in 64 bits; write it as a string")),
    }
}

/// The first whole number of valid JSON that does not fit 64 bits: it would be read as a float, which is another number.
fn too_large(json: &[u8]) -> Option<String> {
    let (mut at, mut in_text) = (0, false);
    while let Some(byte) = json.get(at) {
        match byte {
            b'\\' if in_text => at += 1,
            b'"' => in_text = !in_text,
            b'-' | b'0'..=b'9' if !in_text => {
                let rest = &json[at..];
                let end = rest.iter().position(|b| !matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
                let digits = String::from_utf8_lossy(&rest[..end.unwrap_or(rest.len())]);
                let is_whole = !digits.contains(['.', 'e', 'E']);
                if is_whole && digits.parse::<i64>().is_err() && digits.parse::<u64>().is_err() {
                    return Some(digits.into_owned());
                }
                at += digits.len() - 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

fn from_json(bytes: &[u8], layout: &Layout) -> Result<Map<String, Value>, String> {
    match json_of(bytes) {
        Ok(Value::Object(mut body)) => {
            layout.read_only.iter().for_each(|field| drop(body.remove(*field)));
            // An export writes what does not apply as null; a new thing has none of it.
            body.retain(|_, value| !value.is_null());
            Ok(body)
        }
        Ok(_) => Err("the line is no JSON object".to_owned()),
        Err(why) => Err(format!("the line {why}")),
    }
}

fn from_csv(columns: &[String], record: &StringRecord, layout: &Layout) -> Result<Map<String, Value>, String> {
    if record.len() != columns.len() {
        return Err(format!(
            "the row has {} fields, but the header has {}; quote fields that hold commas",
            record.len(),
            columns.len()
        ));
    }
    (layout.from_cells)(&Cells { columns, record })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &'static str) -> Vec<(u64, Result<String, String>)> {
        let rows = Rows::open(BufReader::new(Box::new(text.as_bytes())), None, &super::super::skus::LAYOUT).unwrap();
        rows.map(|row| (row.line, row.body.map(|body| Value::Object(body).to_string()))).collect()
    }

    #[test]
    fn numbers_that_would_lose_digits_are_found() {
        for (json, want) in [
            (r#"{"a":[1,-2,1.5e300,18446744073709551615,-9223372036854775808]}"#, None),
            (r#"{"12345678901234567891234":"\"12345678901234567891234"}"#, None),
            (r#"{"a":{"b":12345678901234567891234}}"#, Some("12345678901234567891234")),
            ("[1,-9223372036854775809]", Some("-9223372036854775809")),
            ("18446744073709551616", Some("18446744073709551616")),
        ] {
            assert_eq!(too_large(json.as_bytes()).as_deref(), want, "{json}");
        }
    }

    #[test]
    fn csv_rows() {
        let read = rows(
            "\u{feff}sku,title,price,currency,on_hand,held\na,\"A, B\",12.5,EUR,5,9\nb,,,,x,\nc,,7,JPY,,\nd,,1.234,EUR,,\ne\n\"f\ng\",,,,1,\nh,,1,XXQ,,\n",
        );
        let want: [(u64, Result<&str, &str>); 7] = [
            (2, Ok(r#"{"on_hand":5,"price":{"amount":1250,"currency":"EUR"},"sku":"a","title":"A, B"}"#)),
            (3, Err("on_hand is \"x\"")),
            (4, Ok(r#"{"price":{"amount":7,"currency":"JPY"},"sku":"c"}"#)),
            (5, Err("price is \"1.234\"")),
            (6, Err("the row has 1 fields")),
            (7, Ok(r#"{"on_hand":1,"sku":"f\ng"}"#)),
            (9, Err("\"XXQ\" is no currency")),
        ];
        assert_eq!(read.len(), want.len(), "{read:?}");
        for ((line, row), (want_line, want)) in read.into_iter().zip(want) {
            let same = match (&row, want) {
                (Ok(row), Ok(want)) => row == want,
                (Err(why), Err(want)) => why.starts_with(want),
                _ => false,
            };
            assert!(same && line == want_line, "line {line}: {row:?}, wanted line {want_line}: {want:?}");
        }
    }

    #[test]
    fn ndjson_rows() {
        let read = rows("{\"sku\":\"a\",\"held\":1,\"title\":null}\n\n[1]\n{\n{\"sku\":\"b\"}");
        assert_eq!(read.len(), 4, "{read:?}");
        assert_eq!(read[0], (1, Ok("{\"sku\":\"a\"}".to_owned())));
        assert!(read[1].0 == 3 && read[1].1.as_ref().is_err_and(|why| why.contains("no JSON object")), "{read:?}");
        assert!(read[2].0 == 4 && read[2].1.as_ref().is_err_and(|why| why.contains("not JSON")), "{read:?}");
        assert_eq!(read[3], (5, Ok("{\"sku\":\"b\"}".to_owned())));
    }

    #[test]
    fn headers_are_checked() {
        for (text, want) in
            [("titel,sku\n", "did you mean \"title\"?"), ("title\n", "no column \"sku\""), ("sku,sku\n", "twice")]
        {
            let why =
                Rows::open(BufReader::new(Box::new(text.as_bytes())), None, &super::super::skus::LAYOUT).err().unwrap();
            assert!(why.contains(want), "{why}");
        }
    }
}
