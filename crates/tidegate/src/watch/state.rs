//! What must outlive the process: which findings are open, and what is known of each server.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// For as long as it lives, nobody else uses what it claims.
pub type Claim = Box<dyn Send>;

/// Keeps a text. Its calls may wait for a disk: they are made where that stops nobody.
pub trait StateKeeper: Send + Sync + 'static {
    /// Takes it for a watch, before anything is read: two that keep in one place would overwrite each other.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: another watch has it. Else: nothing can be kept there. The text says what to do.
    fn claim(&self) -> io::Result<Claim> {
        Ok(Box::new(()))
    }

    /// The text that was kept last; `None` before the first.
    ///
    /// # Errors
    /// It cannot be read; [`io::ErrorKind::InvalidData`]: it is no text.
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
    /// [`io::ErrorKind::Unsupported`]: it is not meant to, and who starts the watch is told. Else: it cannot, and is where it was.
    fn set_aside(&self) -> io::Result<String> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Links that are followed on the way to a state file.
const MOST_LINKS: usize = 32;

/// A file. A new text is written beside it and takes its place at once; a lock on `FILE.lock`, which ends with the process however
/// that ends, keeps a second watch away.
#[derive(Debug, Clone)]
pub struct StateFile {
    path: PathBuf,
    sets_aside: bool,
}

impl StateFile {
    /// The file at `path`, or the one that a link there leads to; it is made with the first text. One that is damaged stops the start
    /// of a watch.
    #[must_use]
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self { path: followed(path.as_ref()), sets_aside: false }
    }

    /// A file that is damaged is kept as `FILE.damaged`, which is logged as an error, and the watch begins anew.
    #[must_use]
    pub fn set_aside_if_damaged(self) -> Self {
        Self { sets_aside: true, ..self }
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(ending);
        self.path.with_file_name(name)
    }
}

/// Where the links at `path` lead, also to a file that is not there yet: a new text takes the place of the file, not of the link, and
/// the lock is one for all of its names.
fn followed(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(to) = fs::read_link(&path) else { break };
        path = path.with_file_name("").join(to);
    }
    path
}

/// Opening a pipe waits for whoever is at its other end, and what took the place of a device would be none.
fn must_be_file(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(is) if !is.is_file() => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "{} is no regular file but a folder, a pipe or a device; name another state file (--state-file, watch.state_file)",
                path.display()
            ),
        )),
        _ => Ok(()),
    }
}

impl StateKeeper for StateFile {
    fn claim(&self) -> io::Result<Claim> {
        let path = self.path.display();
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            let why = format!(
                "the folder {0} of the state file {path} does not exist; create it: mkdir -p {0}",
                folder.display()
            );
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        let beside = self.beside(".lock");
        for path in [&self.path, &beside, &self.beside(".new")] {
            must_be_file(path)?;
        }
        let failed = |e: io::Error| {
            let why = format!(
                "{} cannot be locked: {e}; make its folder writable for this user, or name another state file",
                beside.display()
            );
            io::Error::new(e.kind(), why)
        };
        let lock = fs::File::options().create(true).write(true).truncate(false).open(&beside).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Box::new(lock)),
            Err(fs::TryLockError::WouldBlock) => Err(io::Error::new(
                io::ErrorKind::WouldBlock,
                format!(
                    "another watch (`tidegate watch`, or a `tidegate serve`) keeps its state in {path}; end that one, or give \
                     each a state file of its own (--state-file, watch.state_file)"
                ),
            )),
            Err(fs::TryLockError::Error(e)) => Err(failed(e)),
        }
    }

    fn load(&self) -> io::Result<Option<String>> {
        match fs::read_to_string(&self.path) {
            Ok(text) => Ok(Some(text)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(io::Error::new(e.kind(), format!("{}: {e}", self.path.display()))),
        }
    }

    fn save(&self, text: &str) -> io::Result<()> {
        let beside = self.beside(".new");
        let mut file = fs::File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &self.path)
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn set_aside(&self) -> io::Result<String> {
        if !self.sets_aside {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let damaged = self.beside(".damaged");
        fs::rename(&self.path, &damaged)?;
        Ok(damaged.display().to_string())
    }
}
