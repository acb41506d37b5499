//! Where the tools read from and write to: a running server, or a stopped ledger that is opened for the length of the
//! command. A ledger is served on the loopback address to this process alone, so both ways give the same answers.

use tidegate::{Options, Stores};
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
    /// Open this ledger instead of talking to a server: a stopped one if it is a SQLite file, any other beside its servers
    #[arg(long, value_name = "URL")]
    ledger: Option<String>,
    /// The store of that ledger, to look at its deadlines too [default: the configuration's]
    #[arg(long, value_name = "URL", requires = "ledger")]
    store: Option<String>,
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
    /// [`Failure::Usage`] for a ledger that cannot be opened, or a server named beside it. A server is not asked yet.
    pub async fn open(&self, create: bool) -> Result<Source> {
        if self.ledger.is_some() && self.server.to.is_some() {
            return Err(Failure::Usage(
                "--ledger opens a ledger without a server, --to (TIDEGATE_URL) names a server; give one of the two, and unset \
                 TIDEGATE_URL for --ledger"
                    .to_owned(),
            ));
        }
        match &self.ledger {
            None => {
                let client = self.server.client()?;
                Ok(Source { label: client.base().to_owned(), client, local: None })
            }
            Some(url) => open_ledger(url, self.store.clone(), create).await,
        }
    }
}

async fn open_ledger(url: &str, store: Option<String>, create: bool) -> Result<Source> {
    let settings = ConfigArgs {
        config: std::env::var_os("TIDEGATE_CONFIG").map(Into::into),
        ledger: Some(url.to_owned()),
        store,
        listen: Some("127.0.0.1:0".to_owned()),
        no_workers: true,
        ..ConfigArgs::default()
    };
    let config = Config::load(&settings)?;
    if let Some(file) = config.stores.file().filter(|file| !create && !file.exists()) {
        let file = file.display();
        return Err(Failure::Usage(format!("--ledger {url}: there is no file {file}; check the path")));
    }
    let [ledger, _] = config.where_it_is();
    let stores = config.stores.clone().stored_clock();
    let opened = if create { stores } else { stores.existing() }.open().await;
    let parts = opened.map_err(|e| not_opened(&config.stores, &ledger, e))?;
    let options = Options {
        queue_commands: config.queue_size,
        workers: false,
        lease_ms: config.lease_ms,
        cache: config.cache,
        feed: config.feed,
    };
    let secret = super::token::random()?;
    let token = Token { name: "tool".to_owned(), sha256: hash_token(&secret), role: Role::Ops };
    let local = LocalServer::start(parts, options, vec![token]).await?;
    let client = Client::new(Some(&format!("http://{}", local.addr)), Some(&secret))?;
    let label = config.stores.file().map_or(ledger, |file| file.display().to_string());
    Ok(Source { client, label, local: Some(local) })
}

/// Why a ledger, shown as `ledger`, cannot be opened, as a failure of the command.
pub fn not_opened(stores: &Stores, ledger: &str, e: tidegate::Error) -> Failure {
    match e {
        tidegate::Error::LedgerUnavailable(why) if stores.file().is_none() => Failure::Unreachable(format!(
            "{ledger}: {why}; start the database, or name another ledger with --ledger (TIDEGATE_LEDGER)"
        )),
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
