//! A MariaDB server.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustix::process::Signal;

use super::Folder;
use super::folder::copy_of_template;
use super::process::{Process, command, find, free_port, run, wait_until};

const PACKAGE: &str = "mariadb-server";
/// Starts on ports that another program took in between.
const MAX_STARTS: usize = 5;
/// As the template has it: another size would be made anew at each start.
const REDO: &str = "--innodb-log-file-size=32M";

/// A private server; its user `tidegate` may do all in databases whose names begin with `t`, and nothing beyond, so that
/// a read-only server refuses it. Dropped, it ends.
#[derive(Debug)]
pub struct MariaDb {
    // Ends before its folder is deleted.
    process: Mutex<Option<Process>>,
    folder: Folder,
    port: u16,
    options: Vec<String>,
    databases: AtomicU32,
}

static SHARED: Mutex<Weak<MariaDb>> = Mutex::new(Weak::new());

impl MariaDb {
    /// A fresh server that syncs its log at each commit.
    ///
    /// # Panics
    /// When it cannot be started; the message names the package that is missing or has the server's words.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with options of the server, such as `("innodb-flush-log-at-trx-commit", "0")` or
    /// `("default-time-zone", "+05:45")`.
    ///
    /// # Panics
    /// As [`MariaDb::start`].
    #[must_use]
    pub fn start_with(options: &[(&str, &str)]) -> Self {
        let folder = Folder::new();
        copy_of_template(&format!("mariadb-{}", version()), &folder.path().join("data"), install);
        let options = options.iter().map(|(name, value)| format!("--{name}={value}")).collect();
        let mut server = Self { process: Mutex::new(None), folder, port: 0, options, databases: AtomicU32::new(0) };
        for _ in 0..MAX_STARTS {
            server.port = free_port();
            if server.run() {
                server.make_user();
                return server;
            }
        }
        panic!("no port was free in {MAX_STARTS} starts of MariaDB");
    }

    /// A server that all who hold it at once in this process share; for tests that leave it as it is.
    ///
    /// # Panics
    /// As [`MariaDb::start`].
    #[must_use]
    pub fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::start());
            *shared = Arc::downgrade(&server);
            server
        })
    }

    /// Makes an empty database; returns its URL.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn database(&self) -> String {
        let name = format!("t{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("mysql", &format!("CREATE DATABASE {name} CHARACTER SET utf8mb4"));
        self.url(&name)
    }

    /// The URL of a database.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("mysql://tidegate:tidegate@127.0.0.1:{}/{database}", self.port)
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs `sql` in `database` as the server's root, beside whatever else is connected; returns the rows, fields with
    /// a tab between them.
    ///
    /// # Panics
    /// When it fails.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let socket = format!("--socket={}", self.folder.path().join("socket").display());
        let mut client = Command::new(find("mariadb", "mariadb-client"));
        client.args(["--no-defaults", "--user=root", &socket, "--batch", "--skip-column-names"]);
        run(client.args(["--execute", sql, database]))
    }

    /// SIGKILL, as a machine that loses its power.
    pub fn kill(&self) {
        if let Some(mut process) = self.process().take() {
            process.kill();
        }
    }

    /// Starts it again on its port, after an orderly stop when it runs.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn restart(&self) {
        if let Some(mut process) = self.process().take() {
            process.end(Signal::TERM);
        }
        wait_until("the port of a server that is started again", || self.run());
    }

    /// SIGSTOP: connections stay open and nothing answers.
    pub fn freeze(&self) {
        self.process().iter_mut().for_each(Process::freeze);
    }

    /// SIGCONT.
    pub fn thaw(&self) {
        self.process().iter_mut().for_each(Process::thaw);
    }

    /// Whether it refuses to write, as a server that became a replica.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn set_read_only(&self, read_only: bool) {
        self.sql("mysql", &format!("SET GLOBAL read_only = {read_only}"));
    }

    /// Ends every client's connection from the server's side.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn kill_connections(&self) {
        self.sql("mysql", "KILL CONNECTION USER tidegate");
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make_user(&self) {
        let user = "tidegate@'127.0.0.1'";
        let sql = format!("CREATE USER {user} IDENTIFIED BY 'tidegate'; GRANT ALL ON `t%`.* TO {user}");
        self.sql("mysql", &sql);
    }

    /// Starts it and waits until it serves; false when its port is taken.
    fn run(&self) -> bool {
        let (folder, log) = (self.folder.path(), self.folder.path().join("log"));
        let path = |option: &str, name: &str| format!("--{option}={}", folder.join(name).display());
        let mut command = command(&find("mariadbd", PACKAGE));
        command.args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve", "--skip-log-bin", REDO]);
        command.args([path("datadir", "data"), path("socket", "socket"), path("pid-file", "pid"), path("tmpdir", "")]);
        command.arg(format!("--port={}", self.port));
        command.args(["--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=64M", "--key-buffer-size=1M"]);
        command.args(["--performance-schema=OFF", "--max-connections=200"]);
        command.args(&self.options);
        let output = fs::File::create(&log).expect("the server's folder can be written");
        command.stdout(output.try_clone().expect("a file can be opened twice")).stderr(output);
        let mut process = Process::start(command);
        wait_until("MariaDB to start", || !process.is_running() || greets(self.port));
        if !process.is_running() {
            let words = fs::read_to_string(&log).unwrap_or_default();
            assert!(words.contains("Address already in use"), "MariaDB did not start: {words}");
            return false;
        }
        *self.process() = Some(process);
        true
    }
}

fn version() -> String {
    let words = run(Command::new(find("mariadbd", PACKAGE)).args(["--no-defaults", "--version"]));
    words.split_whitespace().nth(2).expect("`mariadbd Ver VERSION`").to_owned()
}

fn install(data: &Path) {
    let mut install = command(&find("mariadb-install-db", PACKAGE));
    install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", REDO]);
    run(install.arg(format!("--datadir={}", data.display())));
}

/// Whether a server greets on this port: it accepts before it can serve.
fn greets(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let patient = stream.set_read_timeout(Some(Duration::from_secs(1)));
    patient.is_ok() && stream.read(&mut [0; 4]).is_ok_and(|read| read > 0)
}
