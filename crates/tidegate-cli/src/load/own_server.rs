//! A server in this process: what `demo` sells on and `replay` falls back to.

use std::collections::BTreeMap;
use std::ops::Deref;

use tempfile::TempDir;
use tidegate::Options;
use tidegate::core::Settings;

use crate::commands::source::not_opened;
use crate::config::stores_at;
use crate::config::value::without_password;
use crate::failure::{Failure, Result};
use crate::local::LocalServer;

/// A running server, and what its ledger lies in.
pub struct OwnServer {
    local: LocalServer,
    /// Deleted when this is dropped, if the ledger is a temporary one.
    _folder: Option<TempDir>,
}

impl Deref for OwnServer {
    type Target = LocalServer;
    fn deref(&self) -> &LocalServer {
        &self.local
    }
}

/// What to run it on.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Stores {
    /// Ledger: `sqlite:PATH`, `mysql://..`, `postgres://..` [default: a temporary SQLite one]
    #[arg(long, value_name = "URL")]
    pub ledger: Option<String>,
    /// Index of deadlines: `embedded`, or `redis://..` beside a ledger on a database server
    #[arg(long, value_name = "URL", default_value = "embedded")]
    pub store: String,
}

impl OwnServer {
    /// Opens the ledger and listens on a free port of the loopback address.
    ///
    /// # Errors
    /// [`Failure::Usage`] for stores that cannot be used; [`Failure::Work`].
    pub async fn start(stores: &Stores, settings: Settings) -> Result<Self> {
        let (url, folder) = match &stores.ledger {
            Some(url) => (url.clone(), None),
            None => {
                let folder = tempfile::Builder::new().prefix("tidegate-").tempdir();
                let folder = folder.map_err(|e| {
                    Failure::Work(format!("cannot make a temporary folder: {e}; set TMPDIR to one that can be written"))
                })?;
                (format!("sqlite:{}", folder.path().join("ledger.db").display()), Some(folder))
            }
        };
        let opened = stores_at(&url, &stores.store).map_err(|(key, why)| Failure::Usage(format!("--{key} {why}")))?;
        let parts = opened.clone().settings(settings).open().await;
        let parts = parts.map_err(|e| not_opened(&opened, &without_password(&url), e))?;
        let local = LocalServer::start(parts, Options::default(), Vec::new()).await?;
        Ok(Self { local, _folder: folder })
    }

    /// Compares gate and deadlines with the ledger and checks every invariant, from the inside. What it finds goes to
    /// `invariants` (an invariant already known to be broken stays so) and `findings`.
    ///
    /// # Errors
    /// [`Failure::Work`] when the ledger cannot be read.
    pub async fn audit(&self, invariants: &mut BTreeMap<String, bool>, findings: &mut Vec<String>) -> Result {
        let report = self.tidegate.operations().reconcile().await?;
        let drifted = report.not_compared.is_some() || report.findings.iter().any(|finding| finding.invariant == "I9");
        for (name, held) in report.invariants.into_iter().chain([("I9", !drifted)]) {
            let known = invariants.entry(name.to_owned()).or_insert(true);
            *known &= held;
        }
        findings
            .extend(report.findings.into_iter().map(|finding| format!("{}: {}", finding.invariant, finding.detail)));
        Ok(())
    }

    /// Stops listening, then the library.
    ///
    /// # Errors
    /// [`Failure::Work`] when that did not go in order.
    pub async fn stop(self) -> Result {
        self.local.stop().await
    }
}
