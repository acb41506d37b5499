//! What could not be used: counted by reason, a bounded number listed, all of it written to a file if one is named.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::reason::{Place, Reason};
use crate::failure::{Failure, Result};

/// Rows of each reason a report lists.
const LISTED: usize = 5;

/// Collects what could not be used.
pub struct Unusable {
    files: Vec<PathBuf>,
    counts: BTreeMap<Reason, u64>,
    listed: BTreeMap<Reason, Vec<Place>>,
    all: Option<(PathBuf, BufWriter<File>)>,
}

#[derive(Serialize)]
struct Line<'a> {
    file: std::borrow::Cow<'a, str>,
    line: u64,
    reason: Reason,
}

impl Unusable {
    /// Nothing yet. `all` is a file that gets every row as NDJSON.
    ///
    /// # Errors
    /// [`Failure::Usage`] when that file cannot be made.
    pub fn new(files: &[PathBuf], all: Option<&Path>) -> Result<Self> {
        let all = match all {
            None => None,
            Some(path) => {
                let file = File::create(path)
                    .map_err(|e| Failure::Usage(format!("--unusable {}: cannot be made: {e}", path.display())))?;
                Some((path.to_owned(), BufWriter::new(file)))
            }
        };
        Ok(Self { files: files.to_vec(), counts: BTreeMap::new(), listed: BTreeMap::new(), all })
    }

    /// Notes a row.
    ///
    /// # Errors
    /// When the file of all rows cannot be written.
    pub fn add(&mut self, place: Place, reason: Reason) -> Result {
        *self.counts.entry(reason).or_default() += 1;
        let listed = self.listed.entry(reason).or_default();
        if listed.len() < LISTED {
            listed.push(place);
        }
        if let Some((path, writer)) = &mut self.all {
            let file = self.files.get(place.file as usize).map(|f| f.to_string_lossy()).unwrap_or_default();
            let written = serde_json::to_writer(&mut *writer, &Line { file, line: place.line, reason });
            written
                .map_err(std::io::Error::from)
                .and_then(|()| writer.write_all(b"\n"))
                .map_err(|e| cannot_write(path, &e))?;
        }
        Ok(())
    }

    /// Rows by reason.
    pub fn counts(&self) -> &BTreeMap<Reason, u64> {
        &self.counts
    }

    /// Rows in all.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// `file:line` of the first rows of each reason, for people.
    pub fn listed(&self, reason: Reason) -> String {
        let places = self.listed.get(&reason).map(Vec::as_slice).unwrap_or_default();
        let shown: Vec<String> = places.iter().map(|p| format!("{}:{}", self.name(p.file), p.line)).collect();
        let more = self.counts.get(&reason).copied().unwrap_or(0).saturating_sub(shown.len() as u64);
        let more = if more == 0 { String::new() } else { format!(", {more} more") };
        format!("{}{more}", shown.join(", "))
    }

    fn name(&self, file: u32) -> String {
        let path = self.files.get(file as usize).map(PathBuf::as_path).unwrap_or(Path::new("?"));
        path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
    }

    /// Finishes the file of all rows.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(&mut self) -> Result {
        match &mut self.all {
            Some((path, writer)) => writer.flush().map_err(|e| cannot_write(path, &e)),
            None => Ok(()),
        }
    }
}

fn cannot_write(path: &Path, e: &std::io::Error) -> Failure {
    Failure::Work(format!("--unusable {}: cannot be written: {e}", path.display()))
}
