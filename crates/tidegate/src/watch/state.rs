//! What must outlive the process: which findings are open, and what is known of each server.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Keeps a text. Its calls may wait for a disk: they are made where that stops nobody.
pub trait StateKeeper: Send + Sync + 'static {
    /// The text that was kept last; `None` before the first.
    ///
    /// # Errors
    /// It cannot be read.
    fn load(&self) -> io::Result<Option<String>>;

    /// Keeps `text` in place of the last: whole, or not at all.
    ///
    /// # Errors
    /// It cannot be written; the last is still there.
    fn save(&self, text: &str) -> io::Result<()>;

    /// Where it is kept, for whoever has to look at it.
    fn place(&self) -> String {
        "the kept state".to_owned()
    }

    /// Keeps a text that cannot be used elsewhere, for a look at it, so that the next begins anew; where.
    ///
    /// # Errors
    /// It cannot, and is where it was.
    fn set_aside(&self) -> io::Result<String> {
        Err(io::Error::other("it is kept in no file"))
    }
}

/// A file. A new text is written beside it and takes its place at once.
#[derive(Debug, Clone)]
pub struct StateFile(PathBuf);

impl StateFile {
    /// The file at `path`; it is made with the first text.
    #[must_use]
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self(path.as_ref().to_owned())
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.0.file_name().unwrap_or_default().to_owned();
        name.push(ending);
        self.0.with_file_name(name)
    }
}

impl StateKeeper for StateFile {
    fn load(&self) -> io::Result<Option<String>> {
        match fs::read_to_string(&self.0) {
            Ok(text) => Ok(Some(text)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(io::Error::new(e.kind(), format!("{}: {e}", self.0.display()))),
        }
    }

    fn save(&self, text: &str) -> io::Result<()> {
        let beside = self.beside(".new");
        let mut file = fs::File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &self.0)
    }

    fn place(&self) -> String {
        self.0.display().to_string()
    }

    fn set_aside(&self) -> io::Result<String> {
        let damaged = self.beside(".damaged");
        fs::rename(&self.0, &damaged)?;
        Ok(damaged.display().to_string())
    }
}
