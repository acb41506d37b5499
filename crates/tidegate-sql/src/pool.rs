//! Bounded pools of connections. A connection comes back only when it is clean: dropped inside a transaction it would
//! keep its row locks, so it is closed instead, which makes the server roll back.

use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use deadpool::managed::{self, Metrics, Object, PoolError, RecycleError, RecycleResult, TimeoutType};
use tidegate_backend::{Error, ErrorKind};

use crate::connect::{Address, CONNECT_BOUND, Role};
use crate::dialect::Dialect;
use crate::fault::{self, Fault, Result};
use crate::session::Session;

/// Longest wait for a connection that others use.
const WAIT_BOUND: Duration = Duration::from_secs(5);
/// A connection not used for longer is asked whether its server is there.
const TRUSTED: Duration = Duration::from_secs(5);
/// The same where the server closes idle connections early (all that write, on MySQL).
const TRUSTED_WRITER: Duration = Duration::from_secs(1);
/// Longest wait for the answer to that.
const PING_BOUND: Duration = Duration::from_secs(1);

/// Opens connections for a pool.
pub(crate) struct Connector {
    address: Address,
    role: Role,
}

impl managed::Manager for Connector {
    type Type = Session;
    type Error = Fault;

    async fn create(&self) -> Result<Session> {
        self.address.connect(self.role).await
    }

    async fn recycle(&self, session: &mut Session, _: &Metrics) -> RecycleResult<Fault> {
        let early =
            matches!(self.role, Role::Writer | Role::Relay | Role::Queue) && session.dialect() == Dialect::MySql;
        let trusted = if early { TRUSTED_WRITER } else { TRUSTED };
        if session.idle() < trusted {
            return Ok(());
        }
        session.ping(PING_BOUND).await.map_err(RecycleError::Backend)
    }
}

/// A pool for one role; a copy is the same pool.
#[derive(Clone)]
pub(crate) struct Pool {
    inner: managed::Pool<Connector>,
    role: &'static str,
}

/// A connection on loan.
pub(crate) struct Lease(Option<Object<Connector>>);

impl Pool {
    /// A pool of at most `size` connections; none is opened yet.
    pub(crate) fn new(address: Address, role: Role, size: usize) -> std::result::Result<Self, Error> {
        let inner = managed::Pool::builder(Connector { address, role })
            .max_size(size)
            .runtime(deadpool::Runtime::Tokio1)
            .wait_timeout(Some(WAIT_BOUND))
            .create_timeout(Some(3 * CONNECT_BOUND))
            .recycle_timeout(Some(2 * PING_BOUND))
            .build();
        let inner = inner.map_err(|e| Error::new(ErrorKind::Configuration, "the pool cannot be made").because(e))?;
        let role = match role {
            Role::Writer => "write",
            Role::Reader => "read",
            Role::Audit => "audit",
            Role::Relay => "relay",
            Role::Queue => "queue",
        };
        Ok(Self { inner, role })
    }

    /// A clean connection.
    ///
    /// # Errors
    /// Unavailable when the database cannot be reached, or when all connections stay in use.
    pub(crate) async fn get(&self) -> Result<Lease> {
        let begun = Instant::now();
        let got = self.inner.get().await;
        metrics::histogram!("tidegate_sql_pool_wait_seconds", "pool" => self.role)
            .record(begun.elapsed().as_secs_f64());
        metrics::gauge!("tidegate_sql_connections", "pool" => self.role).set(self.inner.status().size as f64);
        match got {
            Ok(object) => Ok(Lease(Some(object))),
            Err(PoolError::Backend(fault)) => Err(fault),
            Err(PoolError::Closed) => Err(fault::closed().into()),
            Err(PoolError::Timeout(TimeoutType::Wait)) => {
                let size = self.inner.status().max_size;
                let text = format!("all {size} connections for {}s are in use; allow more, or send less", self.role);
                Err(Fault::new(fault::Class::Unavailable, text))
            }
            Err(_) => Err(Fault::new(fault::Class::Unavailable, "the database cannot be reached")),
        }
    }

    /// Closes the connections that nobody uses: one of them was found dead, so the others may be.
    pub(crate) fn forget_idle(&self) {
        self.inner.retain(|_, _| false);
    }

    /// Gives out no more connections and closes those that are not on loan.
    pub(crate) fn close(&self) {
        self.inner.close();
    }
}

impl Deref for Lease {
    type Target = Session;
    fn deref(&self) -> &Session {
        self.0.as_ref().expect("taken out only when dropped")
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Session {
        self.0.as_mut().expect("taken out only when dropped")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(object) = self.0.take()
            && !object.is_clean()
        {
            // Dropping the session closes its socket.
            drop(Object::take(object));
        }
    }
}
