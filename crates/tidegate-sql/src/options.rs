//! How to open the ledger.

use std::fmt;

use tidegate_core::Settings;
use tidegate_core::feed::DEFAULT_MAX_FOLLOWEES;

/// How to open a [`crate::SqlLedger`].
#[derive(Clone)]
#[non_exhaustive]
pub struct SqlOptions {
    /// `mysql://user:password@host:port/database` (MariaDB, too) or `postgres://..`. TLS is set in its query, in the
    /// drivers' words: `?ssl-mode=VERIFY_IDENTITY&ssl-ca=..` or `?sslmode=verify-full&sslrootcert=..`.
    pub url: String,
    /// What the rules may be set to.
    pub settings: Settings,
    /// Most users that one follows (default 20,000).
    pub max_followees: usize,
    /// Order time stands still and moves only by `advance` (tests). Its value is a row of the ledger that all nodes read.
    pub manual_clock: bool,
    /// Takes whichever kind of clock the ledger has, for tools that open an existing one; `manual_clock` is not asked then.
    pub stored_clock: bool,
    /// Makes the tables where there are none (default); without, only a database that is a ledger is opened.
    pub create: bool,
    /// Connections for reads, `1..=256` (default 8). An audit takes one more while it runs.
    pub pool_size: usize,
    /// Connections for commits, `1..=64` (default 4): as many batches may be in flight at once.
    pub writers: usize,
}

impl SqlOptions {
    /// The ledger at `url` with the defaults.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            settings: Settings::default(),
            max_followees: DEFAULT_MAX_FOLLOWEES,
            manual_clock: false,
            stored_clock: false,
            create: true,
            pool_size: 8,
            writers: 4,
        }
    }

    /// Reads the address as [`crate::SqlLedger::open`] will, without connecting.
    ///
    /// # Errors
    /// `ErrorKind::Configuration`: what is wrong with it; the message repeats no password.
    pub fn check(&self) -> tidegate_backend::Result<()> {
        crate::connect::Address::parse(&self.url).map(drop)
    }
}

/// Without the address, which may hold a password.
impl fmt::Debug for SqlOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlOptions")
            .field("settings", &self.settings)
            .field("max_followees", &self.max_followees)
            .field("manual_clock", &self.manual_clock)
            .field("stored_clock", &self.stored_clock)
            .field("create", &self.create)
            .field("pool_size", &self.pool_size)
            .field("writers", &self.writers)
            .finish_non_exhaustive()
    }
}
