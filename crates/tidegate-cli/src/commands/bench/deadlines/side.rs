//! The sides of the comparison: a private store each, which can be killed and started again.

use std::path::{Path, PathBuf};

use super::way::Kind;
use crate::commands::bench::private::{self, Private, find, folder, free_port};
use crate::commands::bench::server::Server;
use crate::failure::{Failure, Result};

/// What a build without the client of the broker says.
pub const NO_RABBIT: &str = "this build has no client of RabbitMQ; build it with --features rabbitmq";

/// How often a server is started on another port.
const STARTS: usize = 5;

/// The name under which keys lie.
const NAME: &str = "tidegate_bench_side";

/// A side: what it is called, and its store.
pub struct Side {
    /// In the table.
    pub name: &'static str,
    store: Store,
}

enum Store {
    /// A file that ends with the process which has it.
    File(PathBuf),
    Redis(Server, fn(String, String) -> Kind),
    Program {
        program: Private,
        kind: Kind,
        data: PathBuf,
        ready: Ready,
        _others: Vec<Private>,
    },
}

type Ready = Box<dyn Fn(&Private) -> bool>;

impl Side {
    /// Our queue in a SQLite file.
    pub fn embedded(parent: &Path) -> Result<Self> {
        Ok(Self { name: "embedded", store: Store::File(parent.join("queues.db")) })
    }

    /// Our queue on a Redis that writes every command to its log before it answers, and syncs the log once a second.
    pub fn redis(parent: &Path) -> Result<Self> {
        let kind = |url, name| Kind::Redis { url, name };
        Self::on_redis("redis, AOF everysec", parent, "redis", &["--appendonly", "yes"], kind)
    }

    /// Our queue on a Redis that keeps nothing.
    pub fn redis_in_memory(parent: &Path) -> Result<Self> {
        let kind = |url, name| Kind::Redis { url, name };
        Self::on_redis("redis, no persistence", parent, "redis-memory", &[], kind)
    }

    /// The loop that many teams write, on a Redis that keeps what it keeps for us.
    pub fn naive(parent: &Path) -> Result<Self> {
        let kind = |url, name| Kind::Naive { url, name };
        Self::on_redis("naive loop on redis, AOF everysec", parent, "naive", &["--appendonly", "yes"], kind)
    }

    fn on_redis(
        name: &'static str,
        parent: &Path,
        below: &str,
        options: &[&str],
        kind: fn(String, String) -> Kind,
    ) -> Result<Self> {
        let own = folder(parent, below)?;
        Ok(Self { name, store: Store::Redis(Server::start_with(&own, options)?, kind) })
    }

    /// Our queue on MariaDB, every commit on the disk.
    pub fn mariadb(parent: &Path) -> Result<Self> {
        Self::mariadb_with(parent, &[])
    }

    /// The same with options of its own, such as `--innodb-buffer-pool-size=1G`.
    pub fn mariadb_with(parent: &Path, options: &[&str]) -> Result<Self> {
        let package = "mariadb-server";
        let own = folder(parent, "mariadb")?;
        let data = own.join("data");
        let mut install = private::command(&find("mariadb-install-db", package)?, &own)?;
        install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        private::run(install.arg(format!("--datadir={}", data.display())))?;
        let first = own.join("first.sql");
        let user = "tidegate@'127.0.0.1'";
        private::write(
            &first,
            &format!(
                "CREATE DATABASE IF NOT EXISTS bench CHARACTER SET utf8mb4;\n\
                 CREATE USER IF NOT EXISTS {user} IDENTIFIED BY 'tidegate';\nGRANT ALL ON bench.* TO {user};\n"
            ),
        )?;
        let path = |option: &str, name: &str| format!("--{option}={}", own.join(name).display());
        let program = find("mariadbd", package)?;
        let arguments = |port: u16| {
            [
                "--no-defaults".to_owned(),
                "--bind-address=127.0.0.1".to_owned(),
                "--skip-name-resolve".to_owned(),
                "--skip-log-bin".to_owned(),
                path("datadir", "data"),
                path("socket", "socket"),
                path("pid-file", "pid"),
                path("init-file", "first.sql"),
                format!("--port={port}"),
                "--innodb-flush-log-at-trx-commit=1".to_owned(),
            ]
        };
        on_a_free_port(|port| {
            let arguments = arguments(port).iter().map(Into::into).chain(options.iter().map(Into::into)).collect();
            let program = Private::start(program.clone(), arguments, Vec::new(), &own)?;
            let url = format!("mysql://tidegate:tidegate@127.0.0.1:{port}/bench");
            let state = own.join("pid");
            // Whoever greets is not it if another has the port: it writes its number once the port is its own.
            let ready: Ready = Box::new(move |program| {
                let file = std::fs::read_to_string(&state).unwrap_or_default();
                file.trim() == program.id().to_string() && greets(port)
            });
            Self::of("sql, MariaDB", program, Kind::Sql { url }, data.join("bench"), ready, Vec::new())
        })
    }

    /// Our queue on PostgreSQL, every commit on the disk.
    pub fn postgres(parent: &Path) -> Result<Self> {
        Self::postgres_with(parent, &[])
    }

    /// The same with settings of its own, such as `shared_buffers=1GB`.
    pub fn postgres_with(parent: &Path, settings: &[&str]) -> Result<Self> {
        let package = "postgresql";
        let own = folder(parent, "postgres")?;
        let data = own.join("data");
        let mut init = private::command(&find("initdb", package)?, &own)?;
        init.args(["--username=tidegate", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
        private::run(init.arg("--pgdata").arg(&data))?;
        let program = find("postgres", package)?;
        on_a_free_port(|port| {
            let mut arguments: Vec<std::ffi::OsString> = vec![
                "-D".into(),
                data.clone().into(),
                "-p".into(),
                port.to_string().into(),
                "-k".into(),
                own.clone().into(),
                "-c".into(),
                "listen_addresses=127.0.0.1".into(),
            ];
            arguments.extend(settings.iter().flat_map(|setting| ["-c".into(), setting.into()]));
            let program = Private::start(program.clone(), arguments, Vec::new(), &own)?;
            let url = format!("postgres://tidegate:tidegate@127.0.0.1:{port}/postgres");
            let state = data.join("postmaster.pid");
            let ready: Ready = Box::new(move |program| {
                let file = std::fs::read_to_string(&state).unwrap_or_default();
                let mut lines = file.lines();
                let ours = lines.next() == Some(&program.id().to_string());
                ours && lines.nth(6).is_some_and(|status| status.trim() == "ready")
            });
            Self::of("sql, PostgreSQL", program, Kind::Sql { url }, data.join("base"), ready, Vec::new())
        })
    }

    /// A broker with durable queues.
    pub fn rabbit(parent: &Path) -> Result<Self> {
        if !cfg!(feature = "rabbitmq") {
            return Err(Failure::Usage(NO_RABBIT.to_owned()));
        }
        let package = "rabbitmq-server";
        let own = folder(parent, "rabbitmq")?;
        let (port, names, between) = (free_port()?, free_port()?, free_port()?);
        let (settings, plugins) = (own.join("rabbitmq.conf"), own.join("plugins"));
        private::write(&settings, &format!("listeners.tcp.1 = 127.0.0.1:{port}\n"))?;
        private::write(&plugins, "[].\n")?;
        let shared: Vec<(&str, std::ffi::OsString)> =
            vec![("ERL_EPMD_PORT", names.to_string().into()), ("ERL_EPMD_ADDRESS", "127.0.0.1".into())];
        let mut registry = Private::start(find("epmd", "erlang-base")?, Vec::new(), shared.clone(), &own)?;
        registry.wait(|_| std::net::TcpStream::connect(("127.0.0.1", names)).is_ok())?;
        let mut variables = shared;
        variables.extend([
            // The script becomes the program, so that a signal to it is one to the broker.
            ("RUNNING_UNDER_SYSTEMD", "true".into()),
            ("RABBITMQ_NODENAME", format!("bench{port}@localhost").into()),
            ("RABBITMQ_DIST_PORT", between.to_string().into()),
            ("RABBITMQ_MNESIA_BASE", own.join("data").into()),
            ("RABBITMQ_LOG_BASE", own.join("log").into()),
            ("RABBITMQ_CONFIG_FILE", settings.into()),
            ("RABBITMQ_CONF_ENV_FILE", own.join("none").into()),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", plugins.into()),
        ]);
        // Debian's own in PATH changes the user.
        let debian = PathBuf::from("/usr/lib/rabbitmq/bin/rabbitmq-server");
        let program = if debian.is_file() { debian } else { find("rabbitmq-server", package)? };
        let program = Private::start(program, Vec::new(), variables, &own)?;
        let url = format!("amqp://guest:guest@127.0.0.1:{port}/%2f");
        let ready: Ready = Box::new(move |_| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self::of("RabbitMQ, durable", program, Kind::Rabbit { url }, own.join("data"), ready, vec![registry])
    }

    fn of(
        name: &'static str,
        mut program: Private,
        kind: Kind,
        data: PathBuf,
        ready: Ready,
        others: Vec<Private>,
    ) -> Result<Self> {
        program.wait(&ready)?;
        Ok(Self { name, store: Store::Program { program, kind, data, ready, _others: others } })
    }

    /// What a process is told to use it.
    pub fn kind(&self) -> Kind {
        match &self.store {
            Store::File(file) => Kind::Embedded { file: file.clone() },
            Store::Redis(server, kind) => kind(server.url(), NAME.to_owned()),
            Store::Program { kind, .. } => kind.clone(),
        }
    }

    /// Bytes that its tasks take, and of what.
    pub fn bytes(&self) -> Result<(u64, &'static str)> {
        Ok(match &self.store {
            Store::File(file) => {
                let sizes =
                    [file.clone(), with(file, "-wal")].map(|file| std::fs::metadata(file).map_or(0, |m| m.len()));
                (sizes.iter().sum(), "disk")
            }
            Store::Redis(server, _) => (server.used_memory()?, "memory"),
            Store::Program { program, kind: Kind::Rabbit { .. }, .. } => {
                (crate::commands::bench::process::resident_bytes(program.id()), "memory")
            }
            Store::Program { data, .. } => (size_of(data), "disk"),
        })
    }

    /// SIGKILL to its store, unless that is a process of this bench.
    pub fn kill(&mut self) {
        match &mut self.store {
            Store::File(_) => {}
            Store::Redis(server, _) => server.kill(),
            Store::Program { program, .. } => program.kill(),
        }
    }

    /// Starts its store again.
    ///
    /// # Errors
    /// [`Failure::Work`].
    pub fn restart(&mut self) -> Result {
        match &mut self.store {
            Store::File(_) => Ok(()),
            Store::Redis(server, _) => server.restart(),
            Store::Program { program, ready, .. } => {
                program.restart()?;
                program.wait(&*ready)
            }
        }
    }
}

/// Starts a store on a port that was free a moment ago; on another one if somebody else was quicker.
fn on_a_free_port(start: impl Fn(u16) -> Result<Side>) -> Result<Side> {
    for _ in 1..STARTS {
        match start(free_port()?) {
            Err(Failure::Work(why)) if is_taken(&why) => {}
            started => return started,
        }
    }
    start(free_port()?)
}

/// Whether a server's last words say that another has its port.
fn is_taken(words: &str) -> bool {
    words.to_lowercase().contains("address already in use")
}

fn with(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Bytes of all files in `folder`.
fn size_of(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => size_of(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}

/// Whether a server greets on this port: it accepts before it can serve.
fn greets(port: u16) -> bool {
    use std::io::Read;
    let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", port)) else { return false };
    let patient = stream.set_read_timeout(Some(std::time::Duration::from_secs(1)));
    patient.is_ok() && stream.read(&mut [0; 4]).is_ok_and(|read| read > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_another_took_is_left_to_it() {
        let words = "[ERROR] Can't start server: Bind on TCP/IP port: Address already in use | [ERROR] Aborting";
        let times = std::cell::Cell::new(0);
        let start = |why: &'static str| {
            times.set(0);
            let started = on_a_free_port(|_| {
                times.set(times.get() + 1);
                if times.get() == 3 { Side::embedded(Path::new("folder")) } else { Err(Failure::Work(why.to_owned())) }
            });
            (started.is_ok(), times.get())
        };
        assert_eq!(start(words), (true, 3));
        assert_eq!(start("no space left on device"), (false, 1));
    }
}
