//! Programs of other people's as private servers: they run as nobody when this process is root, and end with it.

use std::ffi::OsString;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::failure::{Failure, Result};

/// Debian's nobody, as whom servers run that refuse to be root.
const NOBODY: u32 = 65_534;
/// How long a server may take to start; far above what a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long one may take to end when it is asked to.
const LAST: Duration = Duration::from_secs(2);
/// Between two looks.
const GLANCE: Duration = Duration::from_millis(20);

/// Where `program` is: in `PATH`, or in one of the folders that Debian uses for servers.
///
/// # Errors
/// [`Failure::Usage`] names Debian's package.
pub fn find(program: &str, package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/lib/rabbitmq/bin", "/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    folders.extend(versions.map(|version| version.path().join("bin")));
    let found = folders.into_iter().map(|folder| folder.join(program)).find(|file| file.is_file());
    found.ok_or_else(|| Failure::Usage(format!("{program} is not installed; install Debian's package {package}")))
}

/// A port of the loopback that is free now, below the range from which the system picks ports for outgoing connections.
///
/// # Errors
/// [`Failure::Work`].
pub fn free_port() -> Result<u16> {
    let free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let found = (0..1_000).map(|_| rand::random_range(10_000..22_000)).find(free);
    found.ok_or_else(|| Failure::Work("no port of the loopback is free".to_owned()))
}

/// A folder below `parent` that a private server may write to.
///
/// # Errors
/// [`Failure::Work`].
pub fn folder(parent: &Path, name: &str) -> Result<PathBuf> {
    let folder = parent.join(name);
    std::fs::create_dir_all(&folder).map_err(|e| made(&folder, &e))?;
    own(&folder)?;
    // Whoever it is must be able to get there.
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(parent, std::fs::Permissions::from_mode(0o755)).map_err(|e| made(parent, &e))?;
    Ok(folder)
}

/// Writes a file that a private server may read.
///
/// # Errors
/// [`Failure::Work`].
pub fn write(file: &Path, text: &str) -> Result {
    std::fs::write(file, text).map_err(|e| made(file, &e))?;
    own(file)
}

fn made(path: &Path, e: &std::io::Error) -> Failure {
    Failure::Work(format!("cannot make {}: {e}", path.display()))
}

fn own(path: &Path) -> Result {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    chown(path, Some(NOBODY), Some(NOBODY)).map_err(|e| made(path, &e))
}

/// A command for `program` that ends with this process even if that is killed, and runs as nobody when this one is root.
///
/// # Errors
/// [`Failure::Usage`]: `setpriv` is missing.
pub fn command(program: &Path, folder: &Path) -> Result<Command> {
    let mut command = Command::new(find("setpriv", "util-linux")?);
    // A group of its own: what it starts is killed with it.
    command.process_group(0);
    command.args(["--pdeathsig", "KILL"]);
    if rustix::process::geteuid().is_root() {
        command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".to_owned()]);
    }
    command.arg("--").arg(program).stdin(Stdio::null()).env("LC_ALL", "C").env("HOME", folder).current_dir(folder);
    Ok(command)
}

/// Runs `command` to its end.
///
/// # Errors
/// [`Failure::Work`] has what it printed.
pub fn run(command: &mut Command) -> Result {
    let output = command.output().map_err(|e| Failure::Work(format!("{command:?}: {e}")))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(Failure::Work(format!("{command:?} ended with {}: {}", output.status, words.trim())))
}

/// A running program, and how to start it once more.
pub struct Private {
    program: PathBuf,
    arguments: Vec<OsString>,
    variables: Vec<(&'static str, OsString)>,
    folder: PathBuf,
    child: Option<Child>,
}

impl Private {
    /// Starts it; its files are in `folder`.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn start(
        program: PathBuf,
        arguments: Vec<OsString>,
        variables: Vec<(&'static str, OsString)>,
        folder: &Path,
    ) -> Result<Self> {
        let mut private = Self { program, arguments, variables, folder: folder.to_owned(), child: None };
        private.restart()?;
        Ok(private)
    }

    /// Starts it again after [`Private::kill`].
    ///
    /// # Errors
    /// [`Failure`].
    pub fn restart(&mut self) -> Result {
        let name = self.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let log = self.folder.join(format!("{name}.log"));
        let output = std::fs::File::create(&log).map_err(|e| made(&log, &e))?;
        let again = output.try_clone().map_err(|e| made(&log, &e))?;
        let mut command = command(&self.program, &self.folder)?;
        command.args(&self.arguments).envs(self.variables.iter().map(|(name, value)| (name, value)));
        let child = command.stdout(output).stderr(again).spawn();
        self.child = Some(child.map_err(|e| Failure::Work(format!("cannot start {name}: {e}")))?);
        Ok(())
    }

    /// Waits until `ready`.
    ///
    /// # Errors
    /// As [`Private::check`].
    pub fn wait(&mut self, ready: impl Fn(&Self) -> bool) -> Result {
        let began = Instant::now();
        while !ready(self) {
            if self.is_held_up() && began.elapsed() <= PATIENCE {
                self.restart()?;
            } else {
                self.check(began)?;
            }
            std::thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// Whether it ended since processes of its last run, which are groups of their own, were still ending: PostgreSQL's.
    fn is_held_up(&mut self) -> bool {
        let has_ended = self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(Some(_))));
        has_ended && self.log().contains("pre-existing shared memory block")
    }

    /// What it has printed since it was started.
    fn log(&self) -> String {
        let name = self.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Nothing is shown of a log that cannot be read; it may end in the middle of a character.
        let log = std::fs::read(self.folder.join(format!("{name}.log"))).unwrap_or_default();
        String::from_utf8_lossy(&log).replace('\0', "")
    }

    /// Whether it may still get ready.
    ///
    /// # Errors
    /// [`Failure::Work`] with the end of its log: it has ended, or a minute and a half has passed since `began`.
    fn check(&mut self, began: Instant) -> Result {
        let runs = self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        if runs && began.elapsed() <= PATIENCE {
            return Ok(());
        }
        let name = self.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let log = self.log();
        let tail: Vec<&str> = log.lines().rev().take(5).collect();
        let tail = tail.into_iter().rev().collect::<Vec<_>>().join(" | ");
        Err(Failure::Work(format!("{name} did not get ready: {tail}")))
    }

    /// SIGKILL to it and to what it has started, as a machine that loses its power.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended already.
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Asks it to end at once, and kills it if it does not: so it gives back what a SIGKILL would leave to the system.
    fn end(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = kill_process(Pid::from_child(child), Signal::QUIT);
            let began = Instant::now();
            while matches!(child.try_wait(), Ok(None)) && began.elapsed() < LAST {
                std::thread::sleep(GLANCE);
            }
        }
        self.kill();
    }

    /// Its number; 0 while it does not run.
    pub fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        if self.program.ends_with("postgres") { self.end() } else { self.kill() }
    }
}
