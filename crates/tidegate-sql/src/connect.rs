//! An address becomes a connection with its session settings.

use std::str::FromStr;
use std::time::Duration;

use sqlx::ConnectOptions;
use tidegate_backend::{Error, ErrorKind};

use crate::dialect::Dialect;
use crate::fault::{Class, Fault, Result};
use crate::session::{Link, Session};

/// Longest wait for a connection, its greeting and its settings each.
pub(crate) const CONNECT_BOUND: Duration = Duration::from_secs(5);
/// Statements a connection keeps prepared; with sets and bulks of every size they are below that.
const STATEMENTS: usize = 512;
/// Seconds a writer may stay inside a transaction without a statement: a frozen node loses its locks then. Its batches that
/// wait for one row get it one after the other, so others may wait this long for each of its writers.
const IDLE_SECONDS: u64 = 1;
/// The same for a relay: longer than a delivery takes, and nobody waits for its rows.
const RELAY_IDLE_SECONDS: u64 = tidegate_backend::outbox::DELIVERY_BOUND.as_secs() + 1;
/// Seconds to wait for a lock. Longer than a frozen node keeps one, so that waiters go on.
const LOCK_SECONDS: u64 = 4;
/// How long a statement may take.
pub(crate) const STATEMENT_BOUND: Duration = Duration::from_secs(STATEMENT_SECONDS);
const STATEMENT_SECONDS: u64 = 5;
/// Seconds a statement of an audit may take, and its snapshot may wait for the auditor.
const AUDIT_SECONDS: u64 = 600;
/// Largest statement, bytes, whatever the server would take.
const LARGEST_STATEMENT: usize = 1 << 20;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Commits.
    Writer,
    /// Reads.
    Reader,
    /// A long read.
    Audit,
    /// A relay of the outbox: it keeps rows locked while it delivers what they say.
    Relay,
    /// Steps of queues: short writes, each planned for its own values.
    Queue,
}

/// A parsed address.
#[derive(Clone)]
pub(crate) enum Address {
    #[cfg(feature = "mysql")]
    MySql(sqlx::mysql::MySqlConnectOptions),
    #[cfg(feature = "postgres")]
    Postgres(sqlx::postgres::PgConnectOptions),
}

fn bad_address(why: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::Configuration,
        format!(
            "the database's address cannot be used: {why}; give postgres://user:password@host/database or mysql://user:password@host/database"
        ),
    )
}

/// The host as the resolver takes it: a URL has an IPv6 address in brackets, and the drivers leave them there.
fn without_brackets(host: &str) -> String {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).to_owned()
}

impl Address {
    /// Parses `url`.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]; the message repeats no password.
    pub(crate) fn parse(url: &str) -> std::result::Result<Self, Error> {
        let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        match scheme.as_deref() {
            #[cfg(feature = "mysql")]
            Some("mysql" | "mariadb") => {
                let options = sqlx::mysql::MySqlConnectOptions::from_str(url).map_err(bad_address)?;
                if options.get_database().is_none_or(str::is_empty) {
                    return Err(bad_address("it names no database"));
                }
                let host = without_brackets(options.get_host());
                let options = options.host(&host);
                let options = options.statement_cache_capacity(STATEMENTS).charset("utf8mb4").collation("utf8mb4_bin");
                let options = options.pipes_as_concat(false).no_engine_substitution(false).timezone(None);
                Ok(Self::MySql(options.disable_statement_logging()))
            }
            #[cfg(feature = "postgres")]
            Some("postgres" | "postgresql") => {
                let options = sqlx::postgres::PgConnectOptions::from_str(url).map_err(bad_address)?;
                // The driver would take the database that is named like the user.
                if options.get_database().is_none_or(str::is_empty) {
                    return Err(bad_address("it names no database"));
                }
                let host = without_brackets(options.get_host());
                let options = options.host(&host);
                let options = options.statement_cache_capacity(STATEMENTS).application_name("tidegate");
                Ok(Self::Postgres(options.disable_statement_logging()))
            }
            Some(other) => Err(bad_address(format!("{other}:// is not known to this build"))),
            None => Err(bad_address("it has no scheme")),
        }
    }

    /// The dialect of the server there.
    pub(crate) fn dialect(&self) -> Dialect {
        match self {
            #[cfg(feature = "mysql")]
            Self::MySql(_) => Dialect::MySql,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Opens a connection and settles its session.
    pub(crate) async fn connect(&self, role: Role) -> Result<Session> {
        match self {
            #[cfg(feature = "mysql")]
            Self::MySql(options) => {
                let conn = bounded(self.dialect(), options.connect()).await?;
                let mut session = Session::new(Link::MySql(conn), LARGEST_STATEMENT);
                let largest = settle_mysql(&mut session, role).await?;
                session.send_at_most(largest);
                Ok(session)
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(options) => {
                let conn = bounded(self.dialect(), options.connect()).await?;
                let mut session = Session::new(Link::Postgres(conn), LARGEST_STATEMENT);
                session.script_within(CONNECT_BOUND, &postgres_settings(role)).await?;
                Ok(session)
            }
        }
    }
}

async fn bounded<T>(
    dialect: Dialect,
    connecting: impl Future<Output = std::result::Result<T, sqlx::Error>>,
) -> Result<T> {
    match tokio::time::timeout(CONNECT_BOUND, connecting).await {
        Ok(Ok(conn)) => Ok(conn),
        Ok(Err(e)) => {
            let fault = Fault::from_driver(e);
            Err(if fault.class == Class::Lost { fault.while_doing("the database cannot be reached") } else { fault })
        }
        Err(_) => {
            // A PostgreSQL server waits for a client that speaks first, as a MySQL client waits for the server.
            let why = dialect.pick(
                "the database cannot be reached: no answer within 5 s; if a PostgreSQL server is there, write postgres://",
                "the database cannot be reached: no answer within 5 s",
            );
            Err(Fault::new(Class::Lost, why))
        }
    }
}

fn seconds(role: Role) -> (u64, u64) {
    match role {
        Role::Writer | Role::Queue => (STATEMENT_SECONDS, IDLE_SECONDS),
        Role::Reader => (STATEMENT_SECONDS, 2 * STATEMENT_SECONDS),
        Role::Audit => (AUDIT_SECONDS, AUDIT_SECONDS),
        Role::Relay => (STATEMENT_SECONDS, RELAY_IDLE_SECONDS),
    }
}

/// Sequential scans are off: every statement is by a key or an index, and a plan that was made while a table was small
/// must not stay one that reads it whole. Reads are planned for their own values each time (one plan for all guesses that
/// a `LIMIT` takes a tenth of the table, and walks it), in the order of an index and joined row by row: of a table without
/// statistics it guesses that few rows match, and would sort or join a million.
#[cfg(feature = "postgres")]
fn postgres_settings(role: Role) -> String {
    let (statement, idle) = seconds(role);
    let plan = match role {
        Role::Writer => "",
        Role::Reader | Role::Audit | Role::Relay | Role::Queue => {
            "SET plan_cache_mode = force_custom_plan; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;"
        }
    };
    format!(
        "SET statement_timeout = '{statement}s'; SET lock_timeout = '{LOCK_SECONDS}s';
        SET idle_in_transaction_session_timeout = '{idle}s';
        SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED;
        SET jit = off; SET client_min_messages = warning; SET enable_seqscan = off; {plan}
        SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
    )
}

/// Settles a MySQL or MariaDB session; gives the largest statement to send.
#[cfg(feature = "mysql")]
async fn settle_mysql(session: &mut Session, role: Role) -> Result<usize> {
    let row = session.one("SELECT VERSION(), CAST(@@max_allowed_packet AS SIGNED)", &[]).await?;
    let row = row.ok_or_else(|| Fault::corrupt("the server does not tell its version"))?;
    let mariadb = row.text(0)?.contains("MariaDB");
    let packet = usize::try_from(row.int(1)?).unwrap_or(0);
    let (statement, idle) = seconds(role);
    let own = match (mariadb, role) {
        (true, _) => format!("max_statement_time = {statement}, idle_transaction_timeout = {idle}"),
        // MySQL cannot end idle transactions only: a connection that is idle for a second longer is closed, and the pool
        // opens another.
        (false, Role::Writer | Role::Relay | Role::Queue) => {
            format!("max_execution_time = {}, wait_timeout = {}", statement * 1_000, idle + 1)
        }
        (false, _) => format!("max_execution_time = {}", statement * 1_000),
    };
    let text = format!(
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', innodb_lock_wait_timeout = {LOCK_SECONDS},
        net_read_timeout = {STATEMENT_SECONDS}, autocommit = 1, foreign_key_checks = 1, unique_checks = 1, time_zone = '+00:00', {own};
        SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
    );
    session.script_within(CONNECT_BOUND, &text).await?;
    Ok(LARGEST_STATEMENT.min(packet / 2).max(1 << 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_used_says_what_to_give() {
        for bad in [
            "",
            "ledger.db",
            "sqlite://x",
            "postgres://h:port/x",
            "mysql://root@localhost",
            "mysql://root@localhost/",
            "postgres://anna@h",
            "postgres://anna@h/",
        ] {
            let error = Address::parse(bad).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Configuration, "{bad}");
            assert!(error.to_string().contains("postgres://user"), "{error}");
        }
        let error = Address::parse("postgres://anna:secret@host:bad/x").err().unwrap();
        assert!(!error.to_string().contains("secret"), "{error}");
        assert_eq!(Address::parse("mariadb://u:p@h/db").ok().map(|a| a.dialect()), Some(Dialect::MySql));
        assert_eq!(Address::parse("postgresql://u:p@h/db").ok().map(|a| a.dialect()), Some(Dialect::Postgres));
    }

    #[cfg(all(feature = "mysql", feature = "postgres"))]
    #[test]
    fn an_ipv6_address_loses_its_brackets() {
        for host in ["[::1]", "[2001:db8::7]", "db.example", "127.0.0.1"] {
            let bare = host.trim_matches(['[', ']']);
            for scheme in ["mysql", "postgres"] {
                match Address::parse(&format!("{scheme}://u:p@{host}:7000/shop")).unwrap() {
                    Address::MySql(options) => assert_eq!((options.get_host(), options.get_port()), (bare, 7_000)),
                    Address::Postgres(options) => assert_eq!((options.get_host(), options.get_port()), (bare, 7_000)),
                }
            }
        }
    }
}
