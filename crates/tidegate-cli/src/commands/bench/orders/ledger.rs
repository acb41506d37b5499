//! The ledger of one case: a file in the bench's folder, or a database of its own on the server that `--ledger` names.

use std::path::PathBuf;

use tidegate::Stores;
use tidegate::core::Settings;

use crate::config::{stores_at, value::without_password};
use crate::failure::{Failure, Result};
use crate::runtime;

/// Where the ledgers of all cases lie.
#[derive(Debug, Clone)]
pub enum Place {
    /// SQLite files in this folder.
    Folder(PathBuf),
    /// Databases on a server, with a store beside them.
    Server {
        /// The URL that `--ledger` gave.
        ledger: String,
        /// The URL that `--store` gave.
        store: String,
        /// For the logs of the servers under test.
        folder: PathBuf,
    },
}

/// The ledger of one case. End it with [`CaseLedger::forget`].
#[derive(Debug, Clone)]
pub struct CaseLedger {
    /// Its URL.
    pub url: String,
    /// The URL of the store beside it.
    pub store: String,
    /// What its keys in the store are named after.
    pub name: String,
    /// For the log of the server under test.
    pub log: PathBuf,
    /// Its file, or the server and the database.
    home: Home,
}

#[derive(Debug, Clone)]
enum Home {
    File(PathBuf),
    Database(String),
}

impl Place {
    /// Checks `--ledger` and `--store`; without a ledger it is `folder`.
    ///
    /// # Errors
    /// [`Failure::Usage`].
    pub fn new(ledger: Option<&str>, store: &str, folder: PathBuf) -> Result<Self> {
        let Some(ledger) = ledger else {
            stores_at("sqlite:ledger.db", store).map_err(|(key, why)| Failure::Usage(format!("--{key} {why}")))?;
            return Ok(Self::Folder(folder));
        };
        let stores = stores_at(ledger, store).map_err(|(key, why)| Failure::Usage(format!("--{key} {why}")))?;
        if stores.file().is_some() {
            return Err(Failure::Usage(
                "--ledger: the bench makes SQLite ledgers of its own; leave it out, and name their folder with --folder"
                    .to_owned(),
            ));
        }
        Ok(Self::Server { ledger: ledger.to_owned(), store: store.to_owned(), folder })
    }

    /// A ledger of that name that does not exist yet.
    ///
    /// # Errors
    /// [`Failure::Unreachable`] when the server does not make a database.
    pub fn ledger(&self, name: &str) -> Result<CaseLedger> {
        match self {
            Self::Folder(folder) => {
                let file = folder.join(format!("{name}.db"));
                let (url, log) = (format!("sqlite:{}", file.display()), file.with_extension("log"));
                let store = "embedded".to_owned();
                Ok(CaseLedger { url, store, name: "shop".to_owned(), log, home: Home::File(file) })
            }
            Self::Server { ledger, store, folder } => {
                let database = format!("tidegate_bench_{}_{}", std::process::id(), name.replace('-', "_"));
                let made = runtime::run(async { Ok(tidegate::on_servers::create(ledger, &database).await) })?;
                let url = made.map_err(|e| {
                    let url = without_password(ledger);
                    Failure::Unreachable(format!("{url}: {e}; the bench makes a database for each case and deletes it"))
                })?;
                let log = folder.join(format!("{name}.log"));
                Ok(CaseLedger {
                    url,
                    store: store.clone(),
                    name: database.clone(),
                    log,
                    home: Home::Database(database),
                })
            }
        }
    }

    /// Deletes a ledger that is not needed any more.
    pub fn forget(&self, ledger: &CaseLedger) {
        match (self, &ledger.home) {
            (Self::Server { ledger: server, .. }, Home::Database(database)) => {
                // What is left has a name that says what it is.
                let _ = runtime::run(async { Ok(tidegate::on_servers::delete(server, database).await) });
            }
            (_, Home::File(file)) => {
                for suffix in ["", "-wal", "-shm", ".lock"] {
                    let mut name = file.as_os_str().to_owned();
                    name.push(suffix);
                    // What is left goes with the folder.
                    let _ = std::fs::remove_file(name);
                }
            }
            (Self::Folder(_), Home::Database(_)) => {}
        }
    }
}

impl CaseLedger {
    /// Its file, if it has one.
    pub fn file(&self) -> Option<&std::path::Path> {
        match &self.home {
            Home::File(file) => Some(file),
            Home::Database(_) => None,
        }
    }

    /// How to open it in this process.
    ///
    /// # Errors
    /// None that [`Place::new`] has not found already.
    pub fn stores(&self, settings: Settings) -> Result<Stores> {
        let stores = stores_at(&self.url, &self.store).map_err(|(_, why)| Failure::Usage(why))?;
        Ok(stores.settings(settings).name(self.name.clone()))
    }

    /// What a server under test is told of it: not by flags, which everybody on the machine can read.
    pub fn variables(&self) -> [(&'static str, &str); 3] {
        [("TIDEGATE_LEDGER", &self.url), ("TIDEGATE_STORE", &self.store), ("TIDEGATE_REDIS_NAME", &self.name)]
    }
}
