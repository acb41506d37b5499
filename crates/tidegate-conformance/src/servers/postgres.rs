//! A PostgreSQL server.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::process::Signal;

use super::folder::copy_of_template;
use super::process::{Process, command, find, free_port, run, wait_until};
use super::{Folder, folder};

const PACKAGE: &str = "postgresql";
/// Starts on ports that another program took in between.
const MAX_STARTS: usize = 5;
/// Settings for a start after a kill, beside `postgresql.conf`.
const AFTER_A_KILL: &str = "after-a-kill.conf";

/// A private server; its user `tidegate` may do all. Dropped, it ends.
#[derive(Debug)]
pub struct Postgres {
    // Ends before its folder is deleted.
    process: Mutex<Option<Process>>,
    folder: Folder,
    port: u16,
    settings: Vec<String>,
    databases: AtomicU32,
}

static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());

impl Postgres {
    /// A fresh server with `fsync` on.
    ///
    /// # Panics
    /// When it cannot be started; the message names the package that is missing or has the server's words.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with settings of `postgresql.conf`, such as `("fsync", "off")` or `("timezone", "Asia/Kathmandu")`.
    ///
    /// # Panics
    /// As [`Postgres::start`].
    #[must_use]
    pub fn start_with(settings: &[(&str, &str)]) -> Self {
        let folder = Folder::new();
        let data = folder.path().join("data");
        copy_of_template(&format!("postgres-{}", version()), &data, initdb);
        let mut conf = fs::File::options().append(true).open(data.join("postgresql.conf")).expect("initdb makes it");
        writeln!(conf, "include_if_exists = '{AFTER_A_KILL}'").expect("the server's folder can be written");
        Self::serving(folder, settings.iter().map(|(name, value)| format!("{name}={value}")).collect())
    }

    /// The server of a folder that holds its data.
    fn serving(folder: Folder, settings: Vec<String>) -> Self {
        let mut server = Self { process: Mutex::new(None), folder, port: 0, settings, databases: AtomicU32::new(0) };
        for _ in 0..MAX_STARTS {
            server.port = free_port();
            if server.run(false) {
                return server;
            }
        }
        panic!("no port was free in {MAX_STARTS} starts of PostgreSQL");
    }

    /// A standby of this server, which streams through `port` (its own, or a [`super::Proxy`]'s before it). When this returns,
    /// this server acknowledges no commit that the standby has not on disk.
    ///
    /// # Panics
    /// As [`Postgres::start`].
    #[must_use]
    pub fn synchronous_standby(&self, port: u16) -> Self {
        let folder = Folder::new();
        let data = folder.path().join("data");
        let mut backup = command(&find("pg_basebackup", PACKAGE));
        backup.args(["--host=127.0.0.1", "--port", &self.port.to_string(), "--username=tidegate", "--checkpoint=fast"]);
        run(backup.args(["--wal-method=stream", "--no-sync", "--pgdata"]).arg(&data));
        fs::write(data.join("standby.signal"), "").expect("a new folder can be written");
        folder::own(&data.join("standby.signal"));
        let from = format!("primary_conninfo=host=127.0.0.1 port={port} user=tidegate application_name=standby");
        let standby = Self::serving(folder, vec![from]);
        self.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = standby");
        self.sql("postgres", "SELECT pg_reload_conf()");
        let state = "SELECT sync_state FROM pg_stat_replication WHERE application_name = 'standby'";
        wait_until("the standby to be synchronous", || self.sql("postgres", state).trim() == "sync");
        standby
    }

    /// Makes a standby a server of its own, when it has applied all it received; returns when it takes writes.
    ///
    /// # Panics
    /// When it does not answer, or is no standby.
    pub fn promote(&self) {
        let promoted = self.sql("postgres", "SELECT pg_promote(wait_seconds => 60)");
        assert_eq!(promoted.trim(), "t", "the standby was not promoted");
    }

    /// A server that all who hold it at once in this process share; for tests that leave it as it is.
    ///
    /// # Panics
    /// As [`Postgres::start`].
    #[must_use]
    pub fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::start());
            *shared = Arc::downgrade(&server);
            server
        })
    }

    /// The URL of an empty database that nobody else was given: the first is there from the start, more are made.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn database(&self) -> String {
        match self.databases.fetch_add(1, Ordering::Relaxed) {
            0 => self.url("postgres"),
            n => {
                self.sql("postgres", &format!("CREATE DATABASE t{n}"));
                self.url(&format!("t{n}"))
            }
        }
    }

    /// The URL of a database.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://tidegate:tidegate@127.0.0.1:{}/{database}", self.port)
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs `sql` in `database` beside whatever else is connected; returns the rows, fields with a tab between them.
    ///
    /// # Panics
    /// When it fails.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let mut psql = Command::new(find("psql", PACKAGE));
        psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--field-separator=\t"]);
        psql.args(["--set=ON_ERROR_STOP=1", "--dbname", &self.url(database), "--command", sql]);
        // A server that is read-only for others must still be told to be so no longer.
        run(psql.env("PGOPTIONS", "-c default_transaction_read_only=off"))
    }

    /// SIGKILL, as a machine that loses its power.
    pub fn kill(&self) {
        if let Some(mut process) = self.process().take() {
            process.kill();
        }
    }

    /// Starts it again on its port, after a fast stop when it runs.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn restart(&self) {
        let running = self.process().take();
        let killed = running.is_none() && !self.settings.iter().any(|setting| setting.starts_with("fsync="));
        running.into_iter().for_each(|mut process| process.end(Signal::INT));
        wait_until("the port of a server that is started again", || self.run(killed));
    }

    /// SIGSTOP to all of it: connections stay open and nothing answers.
    pub fn freeze(&self) {
        self.process().iter_mut().for_each(Process::freeze);
    }

    /// SIGCONT to all of it.
    pub fn thaw(&self) {
        self.process().iter_mut().for_each(Process::thaw);
    }

    /// Whether transactions that begin from now on can write nothing, as on a server that became a replica.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn set_read_only(&self, read_only: bool) {
        self.sql("postgres", &format!("ALTER SYSTEM SET default_transaction_read_only = {read_only}"));
        self.sql("postgres", "SELECT pg_reload_conf()");
        let want = if read_only { "on" } else { "off" };
        // Read from the server's file, since this session's own value is set by its options.
        let now = "SELECT reset_val FROM pg_settings WHERE name = 'default_transaction_read_only'";
        let mut psql = Command::new(find("psql", PACKAGE));
        psql.args(["--no-psqlrc", "--tuples-only", "--no-align", "--dbname", &self.url("postgres"), "--command", now]);
        wait_until("the server to take its new settings", || run(&mut psql).trim() == want);
    }

    /// Ends every client's connection from the server's side.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn kill_connections(&self) {
        let all = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
            WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        self.sql("postgres", all);
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts it and waits until it serves; false when its port is taken.
    ///
    /// After a kill a server syncs each of its thousand files before it recovers, against a loss of power. There was
    /// none: what it wrote is with the system. So it syncs nothing until it serves, and then all it commits.
    fn run(&self, killed: bool) -> bool {
        let (data, log) = (self.folder.path().join("data"), self.folder.path().join("log"));
        let no_sync = data.join(AFTER_A_KILL);
        if killed {
            fs::write(&no_sync, "fsync = off\n").expect("the server's folder can be written");
        }
        let mut command = command(&find("postgres", PACKAGE));
        command.arg("-D").arg(&data).args(["-p", &self.port.to_string(), "-k"]).arg(self.folder.path());
        command.args(["-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200", "-c", "shared_buffers=64MB"]);
        command.args(self.settings.iter().flat_map(|setting| ["-c", setting]));
        let output = fs::File::create(&log).expect("the server's folder can be written");
        command.stdout(output.try_clone().expect("a file can be opened twice")).stderr(output);
        let mut process = Process::start(command);
        let mut serves = false;
        wait_until("PostgreSQL to start", || {
            serves = is_ready(&data, process.id());
            serves || !process.is_running()
        });
        if !serves {
            let words = fs::read_to_string(&log).unwrap_or_default();
            assert!(words.contains("Address already in use"), "PostgreSQL did not start: {words}");
            return false;
        }
        if killed {
            fs::remove_file(&no_sync).expect("the server's folder can be written");
            process.tell(Signal::HUP);
            let told = |log| fs::read_to_string(log).is_ok_and(|words| words.contains("parameter \"fsync\""));
            wait_until("PostgreSQL to take its settings", || told(&log));
        }
        *self.process() = Some(process);
        true
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // An immediate stop: no checkpoint, but it gives back the shared memory that a SIGKILL would leave to the system.
        if let Some(mut process) = self.process().take() {
            process.end(Signal::QUIT);
        }
    }
}

fn version() -> String {
    let words = run(Command::new(find("postgres", PACKAGE)).arg("--version"));
    words.split_whitespace().nth(2).expect("`postgres (PostgreSQL) VERSION`").to_owned()
}

fn initdb(data: &Path) {
    let mut initdb = command(&find("initdb", PACKAGE));
    initdb.args(["--username=tidegate", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
    run(initdb.args(["--wal-segsize=4", "--no-instructions", "--pgdata"]).arg(data));
    folder::own(data);
}

/// Gives back the piece of shared memory by which a server claims its data folder: one that was killed leaves it to the
/// system, which has few. Does nothing for a folder that is of no server, or of one that ended by itself.
pub(super) fn give_back_memory(data: &Path) {
    let file = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    // The seventh line: its key and its id.
    if let Some(id) = file.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
        // Gone already is as good.
        let _ = Command::new("ipcrm").args(["--shmem-id", id]).output();
    }
}

/// Whether the server with this process id has written that it is ready.
fn is_ready(data: &Path, id: u32) -> bool {
    let file = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    let mut lines = file.lines();
    lines.next() == Some(&id.to_string()) && lines.nth(6).is_some_and(|status| status.trim() == "ready")
}
