//! Where an export goes: stdout, or a file that is written beside its name and put in place when it is whole. Beside the
//! unfinished file stands a note of how far it is, so that the next run goes on from there.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::output;

/// An export under way.
pub struct Sink {
    out: BufWriter<Box<dyn Write + Send>>,
    place: Option<Place>,
    /// What is written to, in words.
    name: String,
    label: String,
    cursor: String,
    bytes: u64,
    rows: u64,
}

/// The files of an export with `--output`.
struct Place {
    whole: PathBuf,
    partial: PathBuf,
    state: PathBuf,
    new_state: PathBuf,
}

impl Sink {
    /// Opens `output` (stdout if there is none) and gives the cursor to go on from, if an export with the same `label`
    /// was interrupted there.
    ///
    /// # Errors
    /// [`Failure::Usage`] when the file cannot be written.
    pub fn open(output: Option<&Path>, label: &str) -> Result<(Self, Option<String>)> {
        let name = output.map_or_else(|| "stdout".to_owned(), |path| path.display().to_string());
        let new = |out, place| Self {
            out: BufWriter::new(out),
            place,
            name: name.clone(),
            label: label.to_owned(),
            cursor: String::new(),
            bytes: 0,
            rows: 0,
        };
        let Some(whole) = output.filter(|path| path.as_os_str() != "-") else {
            return Ok((new(Box::new(io::stdout()), None), None));
        };
        let unwritable =
            |path: &Path, e: io::Error| Failure::Usage(format!("--output: cannot write {}: {e}", path.display()));
        if whole.metadata().is_ok_and(|meta| !meta.is_file()) {
            // A pipe or a device: nothing to go on from, and nothing to put in place.
            let file = OpenOptions::new().write(true).open(whole).map_err(|e| unwritable(whole, e))?;
            return Ok((new(Box::new(file), None), None));
        }
        let place = Place::of(whole);
        let stopped = place.read(label);
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&place.partial)
            .map_err(|e| unwritable(&place.partial, e))?;
        let bytes = stopped.as_ref().map_or(0, |(_, bytes, _)| *bytes);
        file.set_len(bytes).and_then(|()| file.seek(SeekFrom::End(0))).map_err(|e| unwritable(&place.partial, e))?;
        let mut sink = new(Box::new(file), Some(place));
        let Some((cursor, bytes, rows)) = stopped else { return Ok((sink, None)) };
        output::note(format!("going on with the export that was interrupted after {}", output::count(rows, "row")));
        (sink.bytes, sink.rows) = (bytes, rows);
        Ok((sink, Some(cursor)))
    }

    /// Writes one line.
    ///
    /// # Errors
    /// [`Failure::ReaderGone`]; [`Failure::Work`] when it cannot be written.
    pub fn line(&mut self, text: &str) -> Result {
        self.rows += 1;
        self.write(text.as_bytes())?;
        self.write(b"\n")
    }

    /// Writes rows of CSV.
    ///
    /// # Errors
    /// [`Failure::ReaderGone`]; [`Failure::Work`] when it cannot be written.
    pub fn csv(&mut self, rows: impl IntoIterator<Item = Vec<String>>) -> Result {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for row in rows {
            self.rows += 1;
            writer.write_record(&row).map_err(|e| Failure::Work(format!("cannot write CSV: {e}")))?;
        }
        let bytes = writer.into_inner().map_err(|e| Failure::Work(format!("cannot write CSV: {e}")))?;
        self.write(&bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> Result {
        self.bytes += bytes.len() as u64;
        self.written(|out| out.write_all(bytes))
    }

    fn written(&mut self, write: impl FnOnce(&mut BufWriter<Box<dyn Write + Send>>) -> io::Result<()>) -> Result {
        write(&mut self.out).map_err(|e| match (&self.place, e.kind()) {
            (None, io::ErrorKind::BrokenPipe) => Failure::ReaderGone,
            (None, _) => Failure::Work(format!("cannot write to {}: {e}", self.name)),
            (Some(_), _) => Failure::Work(format!(
                "cannot write {}: {e}; free space and run the command again, it goes on where it stopped",
                self.name
            )),
        })
    }

    /// A page is written whole; the next one begins at `cursor`.
    ///
    /// # Errors
    /// As [`Sink::line`].
    pub fn page_done(&mut self, cursor: &str) -> Result {
        cursor.clone_into(&mut self.cursor);
        self.written(BufWriter::flush)?;
        let Some(place) = &self.place else { return Ok(()) };
        let state = json!({ "export": self.label, "cursor": cursor, "bytes": self.bytes, "rows": self.rows });
        // Put in place whole, so that whatever ends this process leaves the old note or the new one.
        let noted = std::fs::write(&place.new_state, state.to_string());
        noted
            .and_then(|()| std::fs::rename(&place.new_state, &place.state))
            .map_err(|e| Failure::Work(format!("cannot write {}: {e}", place.state.display())))
    }

    /// Where the next page begins.
    pub fn cursor(&self) -> &str {
        &self.cursor
    }

    /// All is written: puts the file in place. Gives how many rows it has, its header included.
    ///
    /// # Errors
    /// As [`Sink::line`].
    pub fn finish(mut self) -> Result<u64> {
        self.written(BufWriter::flush)?;
        if let Some(place) = &self.place {
            let synced = File::open(&place.partial)
                .and_then(|file| file.sync_all())
                .and_then(|()| std::fs::rename(&place.partial, &place.whole));
            synced.map_err(|e| Failure::Work(format!("cannot put {} in place: {e}", place.whole.display())))?;
            // It is of no more use; a stale one is overwritten by the next export.
            let _ = std::fs::remove_file(&place.state);
        }
        Ok(self.rows)
    }
}

impl Place {
    fn of(whole: &Path) -> Self {
        let beside = |end: &str| {
            let mut path = whole.as_os_str().to_owned();
            path.push(end);
            PathBuf::from(path)
        };
        Self {
            whole: whole.to_owned(),
            partial: beside(".partial"),
            state: beside(".partial.state"),
            new_state: beside(".partial.state.new"),
        }
    }

    /// `(cursor, bytes, rows)` of an interrupted export with this label.
    fn read(&self, label: &str) -> Option<(String, u64, u64)> {
        let state: Value = serde_json::from_str(&std::fs::read_to_string(&self.state).ok()?).ok()?;
        let (bytes, rows) = (state.get("bytes")?.as_u64()?, state.get("rows")?.as_u64()?);
        let whole = self.partial.metadata().ok()?.len() >= bytes;
        let same = state.get("export")?.as_str()? == label;
        (whole && same).then_some((state.get("cursor")?.as_str()?.to_owned(), bytes, rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_export_goes_on_after_its_last_whole_page() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.ndjson");
        {
            let (mut sink, from) = Sink::open(Some(&path), "a").unwrap();
            assert_eq!(from, None);
            sink.line("1").unwrap();
            sink.page_done("c1").unwrap();
            sink.line("half a page").unwrap();
        }
        assert!(!path.exists());
        assert_eq!(Sink::open(Some(&path), "b").unwrap().1, None, "another export begins anew");
        {
            let (mut sink, _) = Sink::open(Some(&path), "a").unwrap();
            sink.line("1").unwrap();
            sink.page_done("c1").unwrap();
            sink.line("half a page").unwrap();
        }
        let (mut sink, from) = Sink::open(Some(&path), "a").unwrap();
        assert_eq!(from.as_deref(), Some("c1"));
        sink.line("2").unwrap();
        assert_eq!(sink.finish().unwrap(), 2);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n2\n");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
