//! Where the tools read from and write to: a running server, or a stopped ledger that is opened for the length of the
//! command. A ledger is served on the loopback address to this process alone, so both ways give the same answers.

use tidegate::{Embedded, Options};
use tidegate_server::{Role, Token, hash_token};

use crate::client::{Client, ServerArgs};
use crate::config::{Config, ConfigArgs};
use crate::failure::{Failure, Result};
use crate::local::LocalServer;

/// Flags of the tools.
#[derive(Debug, Clone, clap::Args)]
pub struct SourceArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Open this stopped ledger instead of talking to a server
    #[arg(long, value_name = "URL", conflicts_with = "to")]
    ledger: Option<String>,
}

/// An opened source. End it with [`Source::close`].
pub struct Source {
    /// Talks to it.
    pub client: Client,
    /// What it is, in words that stay the same from run to run.
    pub label: String,
    local: Option<LocalServer>,
}

impl SourceArgs {
    /// Opens it. A ledger that is not there is made only with `create`.
    ///
    /// # Errors
    /// [`Failure::Usage`] for a ledger that cannot be opened. A server is not asked yet.
    pub async fn open(&self, create: bool) -> Result<Source> {
        match &self.ledger {
            None => {
                let client = self.server.client()?;
                Ok(Source { label: client.base().to_owned(), client, local: None })
            }
            Some(url) => open_ledger(url, create).await,
        }
    }
}

async fn open_ledger(url: &str, create: bool) -> Result<Source> {
    let settings = ConfigArgs {
        config: std::env::var_os("TIDEGATE_CONFIG").map(Into::into),
        ledger: Some(url.to_owned()),
        listen: Some("127.0.0.1:0".to_owned()),
        no_workers: true,
        ..ConfigArgs::default()
    };
    let config = Config::load(&settings)?;
    if !create && !config.ledger.exists() {
        return Err(Failure::Usage(format!(
            "--ledger {url}: there is no file {}; check the path",
            config.ledger.display()
        )));
    }
    let ledger =
        Embedded::at(&config.ledger).settings(config.settings).stored_clock().full_sync(config.synchronous_full);
    let options = Options { queue_commands: config.queue_size, workers: false, ..Options::default() };
    let secret = super::token::random()?;
    let token = Token { name: "tool".to_owned(), sha256: hash_token(&secret), role: Role::Ops };
    let local = LocalServer::start(ledger, options, vec![token]).await?;
    let client = Client::new(Some(&format!("http://{}", local.addr)), Some(&secret))?;
    Ok(Source { client, label: config.ledger.display().to_string(), local: Some(local) })
}

/// Why a ledger cannot be opened, as a failure of the command.
pub fn not_opened(e: tidegate::Error) -> Failure {
    match e {
        tidegate::Error::Broken(why) => Failure::Work(format!(
            "{why}; if it is a Tidegate ledger, restore it from a backup; if not, name another with --ledger (TIDEGATE_LEDGER)"
        )),
        tidegate::Error::LedgerUnavailable(why) => {
            Failure::Work(format!("{why}; mend that, or name another ledger with --ledger (TIDEGATE_LEDGER)"))
        }
        other => other.into(),
    }
}

impl Source {
    /// Closes an opened ledger in order; nothing to do for a server.
    ///
    /// # Errors
    /// [`Failure::Work`] when it could not be closed in order.
    pub async fn close(self) -> Result {
        match self.local {
            Some(local) => local.stop().await,
            None => Ok(()),
        }
    }
}
