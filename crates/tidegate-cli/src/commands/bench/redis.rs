//! The Redis under test as an operator sees it, and the client by itself: what is measured stands beside it.

use std::time::Duration;

use tidegate::bare_redis::{BareAnswer, BareClient};
use tidegate::blocks::{Connector, RedisOptions};

use crate::config::value::without_password;
use crate::failure::{Failure, Result};

/// How long a server that was just started may take to be connected to.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an answer of megabytes may take when several are asked for at once.
const LONG_ANSWER: Duration = Duration::from_secs(30);

pub fn broken(e: impl std::fmt::Display) -> Failure {
    Failure::Work(format!("Redis: {e}"))
}

/// A connection under a name of its own.
///
/// # Errors
/// [`Failure::Usage`]: the URL is none. [`Failure::Unreachable`].
pub async fn connect(url: &str, name: &str) -> Result<Connector> {
    connect_with(url, name, |options| options).await
}

/// The same with options of its own.
async fn connect_with(url: &str, name: &str, more: impl FnOnce(RedisOptions) -> RedisOptions) -> Result<Connector> {
    let options = RedisOptions::parse(url).and_then(|options| options.name(name));
    let options = options.map_err(|e| Failure::Usage(format!("--redis {}: {e}", without_password(url))))?;
    let options = more(options);
    let connector = Connector::start(options).await.map_err(broken)?;
    let began = std::time::Instant::now();
    while let Some(why) = connector.trouble() {
        if began.elapsed() > PATIENCE {
            return Err(Failure::Unreachable(why));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(connector)
}

/// One server.
pub struct Redis {
    connector: Connector,
    /// The client by itself, on this connection.
    pub bare: BareClient,
}

impl Redis {
    /// Connects.
    ///
    /// # Errors
    /// As [`connect`].
    pub async fn open(url: &str, name: &str) -> Result<Self> {
        Self::of(connect(url, name).await?)
    }

    /// The same for answers that take long.
    ///
    /// # Errors
    /// As [`connect`].
    pub async fn open_patiently(url: &str, name: &str) -> Result<Self> {
        Self::of(connect_with(url, name, |options| options.response_timeout(LONG_ANSWER)).await?)
    }

    fn of(connector: Connector) -> Result<Self> {
        let bare = connector.bare_client().map_err(broken)?;
        Ok(Self { connector, bare })
    }

    /// The connection.
    pub fn connector(&self) -> &Connector {
        &self.connector
    }

    /// Asks.
    ///
    /// # Errors
    /// [`Failure::Work`].
    pub async fn ask(&self, parts: &[&str]) -> Result<BareAnswer> {
        let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
        self.bare.ask(&parts).await.map_err(broken)
    }

    /// A number of `INFO`; 0 if there is none.
    ///
    /// # Errors
    /// [`Failure::Work`].
    pub async fn info(&self, section: &str, field: &str) -> Result<u64> {
        let text = self.ask(&["INFO", section]).await?.text();
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        Ok(line.and_then(|value| value.trim().parse().ok()).unwrap_or(0))
    }

    /// Bytes it uses.
    ///
    /// # Errors
    /// [`Failure::Work`].
    pub async fn used_memory(&self) -> Result<u64> {
        self.info("memory", "used_memory").await
    }

    /// Ends.
    pub async fn close(self) {
        self.connector.close().await;
    }
}
