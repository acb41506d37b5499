//! Folders that a server may own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{Gid, Uid};

/// The user and group of servers that a test running as root starts: Debian's `nobody`.
pub(super) const NOBODY: u32 = 65_534;

const PREFIX: &str = "tidegate-server-";
/// A folder this young may belong to a test that has not locked it yet.
const YOUNG: Duration = Duration::from_secs(60);

/// A folder in the system's temporary folder, deleted when it is dropped. Its path is short, as sockets need.
#[derive(Debug)]
pub struct Folder {
    // Before the folder, so that nobody takes it for a leftover while it is being deleted.
    dir: tempfile::TempDir,
    _lock: File,
}

impl Folder {
    /// A new, empty folder that the servers' user owns. Folders that killed tests left behind are deleted first.
    ///
    /// # Panics
    /// When the temporary folder cannot be written.
    #[must_use]
    pub fn new() -> Self {
        delete_leftovers();
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir().expect("the temporary folder can be written");
        let lock = File::create(dir.path().join("lock")).expect("a new folder can be written");
        lock.lock().expect("a new file can be locked");
        own(dir.path());
        Self { dir, _lock: lock }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

/// Gives `path` to the servers' user when this process is root.
pub(super) fn own(path: &Path) {
    if rustix::process::geteuid().is_root() {
        let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        rustix::fs::chown(path, Some(user), Some(group)).expect("root can give a folder away");
    }
}

fn delete_leftovers() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let old = entry.metadata().and_then(|m| m.modified()).is_ok_and(|at| at.elapsed().is_ok_and(|age| age > YOUNG));
        if ours && old && File::open(entry.path().join("lock")).is_ok_and(|lock| lock.try_lock().is_ok()) {
            super::postgres::give_back_memory(&entry.path().join("data"));
            // Another test may be deleting it too.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A copy of the template `name`, which `make` fills once for this build's target folder; it is made again whenever the
/// name changes. `make` gets an empty folder that the servers' user owns.
pub(super) fn copy_of_template(name: &str, to: &Path, make: impl FnOnce(&Path)) {
    let templates = templates();
    fs::create_dir_all(&templates).expect("the target folder can be written");
    let lock = File::create(templates.join(format!("{name}.lock"))).expect("the target folder can be written");
    lock.lock().expect("a file can be locked");
    let template = templates.join(name);
    if !template.exists() {
        // Made in a folder that the servers' user can reach, then copied under another name: a half copy is no template.
        let folder = Folder::new();
        let made = folder.path().join("made");
        fs::create_dir(&made).expect("a new folder can be written");
        own(&made);
        make(&made);
        let half = templates.join(format!("{name}.half"));
        let _ = fs::remove_dir_all(&half);
        copy(&made, &half);
        fs::rename(&half, &template).expect("a folder can be renamed in its folder");
    }
    copy(&template, to);
}

fn copy(from: &Path, to: &Path) {
    super::run(Command::new("cp").args(["--archive", "--reflink=auto"]).args([from, to]));
}

/// `target/tmp`, found from where the test's program lies.
fn templates() -> PathBuf {
    let program = std::env::current_exe().expect("a test knows its program");
    let target = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
    target.map_or_else(std::env::temp_dir, Path::to_owned).join("tmp")
}
