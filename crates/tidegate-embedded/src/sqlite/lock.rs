//! One process owns a file: an advisory lock on a file beside it, which the kernel drops when the owner dies.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tidegate_backend::{Error, ErrorKind, Result};

/// An owner that was just killed keeps the lock while the kernel takes it apart: a restart waits this long for it.
const GRACE: Duration = Duration::from_millis(500);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// The lock, held until it is dropped. The file stays: removing it would let two owners hold two files of one name.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// The lock's path for the file at `path`.
pub(super) fn path_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// Takes the lock of the file at `path`, which is a `what`.
///
/// # Errors
/// [`ErrorKind::Owned`] names the process that has it.
pub(super) fn take(path: &Path, what: &str) -> Result<Lock> {
    let path = path_of(path);
    let cannot = |e: std::io::Error| {
        Error::new(ErrorKind::Unavailable, format!("the lock file {} cannot be written", path.display())).because(e)
    };
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(cannot)?;
    let begun = Instant::now();
    let mut locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
    while locked == Err(Errno::WOULDBLOCK) && begun.elapsed() < GRACE {
        std::thread::sleep(PAUSE);
        locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
    }
    match locked {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            let owner =
                if pid.trim().is_empty() { "another process".to_owned() } else { format!("process {}", pid.trim()) };
            let context = format!("the {what} is in use by {owner} ({} is locked); stop it first", path.display());
            return Err(Error::new(ErrorKind::Owned, context));
        }
        Err(e) => return Err(cannot(e.into())),
    }
    let mut write_pid = || {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    write_pid().map_err(cannot)?;
    Ok(Lock { _file: file })
}
