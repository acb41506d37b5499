//! A server in this process on embedded back ends: what `demo` sells on and `replay` falls back to.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;
use tidegate::core::Settings;
use tidegate::{Embedded, Options, Tidegate};
use tidegate_server::{Limits, Server, ServerConfig};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::failure::{Failure, Result};

/// How long a stop may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running server and the library under it.
pub struct OwnServer {
    /// The library, for the auditor.
    pub tidegate: Tidegate,
    /// Where it listens.
    pub addr: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<std::result::Result<(), String>>,
    /// Deleted when this is dropped, if the ledger is a temporary one.
    _folder: Option<TempDir>,
}

/// What to run it on.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Stores {
    /// Ledger, `sqlite:PATH` [default: a temporary one]
    #[arg(long, value_name = "URL")]
    pub ledger: Option<String>,
    /// Gate and deadline index; only `embedded` so far
    #[arg(long, value_name = "URL", default_value = "embedded")]
    pub store: String,
}

impl OwnServer {
    /// Opens the ledger and listens on a free port of the loopback address.
    ///
    /// # Errors
    /// [`Failure::Usage`] for stores this build cannot open; [`Failure::Work`].
    pub async fn start(stores: &Stores, settings: Settings) -> Result<Self> {
        if stores.store != "embedded" {
            return Err(Failure::Usage(format!(
                "--store {}: this version has only the embedded store; leave the flag out",
                stores.store
            )));
        }
        let (path, folder) = match &stores.ledger {
            Some(url) => match url.strip_prefix("sqlite:").filter(|path| !path.is_empty()) {
                Some(path) => (std::path::PathBuf::from(path), None),
                None => {
                    return Err(Failure::Usage(format!(
                        "--ledger {url}: this version has only SQLite ledgers; give it as sqlite:PATH"
                    )));
                }
            },
            None => {
                let folder = tempfile::Builder::new().prefix("tidegate-").tempdir();
                let folder = folder.map_err(|e| {
                    Failure::Work(format!("cannot make a temporary folder: {e}; set TMPDIR to one that can be written"))
                })?;
                (folder.path().join("ledger.db"), Some(folder))
            }
        };
        let parts = Embedded::at(path).settings(settings).open().await?;
        let tidegate = Tidegate::start(parts, Options::default()).await?;
        let config = ServerConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tokens: Vec::new(),
            manual_clock: false,
            limits: Limits::default(),
        };
        let server = Server::bind(config, tidegate.clone()).map_err(|e| Failure::Work(e.to_string()))?;
        let addr = server.local_addr();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move {
            let stopped = async {
                // Dropping the other end stops it too.
                let _ = stopped.await;
            };
            server.serve(stopped).await.map_err(|e| e.to_string())
        });
        Ok(Self { tidegate, addr, stop, serving, _folder: folder })
    }

    /// Compares gate and deadlines with the ledger and checks every invariant, from the inside. What it finds goes to
    /// `invariants` (an invariant already known to be broken stays so) and `findings`.
    ///
    /// # Errors
    /// [`Failure::Work`] when the ledger cannot be read.
    pub async fn audit(&self, invariants: &mut BTreeMap<String, bool>, findings: &mut Vec<String>) -> Result {
        let report = self.tidegate.operations().reconcile().await?;
        let drifted = report.findings.iter().any(|finding| finding.invariant == "I9");
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
        // An error means the server has ended already; its result is read below.
        let _ = self.stop.send(());
        let served = self.serving.await.map_err(|e| Failure::Work(format!("the server ended badly: {e}")))?;
        self.tidegate.stop(PATIENCE).await?;
        served.map_err(Failure::Work)
    }
}
