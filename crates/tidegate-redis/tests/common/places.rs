//! Where the stores of a contract lie: on a Redis alone, in a Cluster, on a Valkey alone.
#![allow(unused_macros, unused_imports, reason = "some tests have no contract")]

use std::any::Any;

use tidegate_backend::BoxFuture;
use tidegate_conformance::servers::{Engine, Redis, Setup};

/// A server and a name there that no other test of this process uses. Dropped, the server ends, unless others have it, too.
pub struct Place {
    pub url: String,
    pub name: String,
    /// A server that may lose its data.
    own: Option<Redis>,
    _server: Box<dyn Any + Send + Sync>,
}

impl Place {
    fn new(url: String, own: Option<Redis>, server: impl Any + Send + Sync) -> Self {
        Self { url, name: super::fresh_name("contract"), own, _server: Box::new(server) }
    }

    fn alone(redis: Redis) -> Self {
        Self::new(redis.url(), Some(redis), ())
    }

    pub fn standalone() -> Self {
        Self::alone(Redis::start())
    }

    pub fn cluster() -> Self {
        let cluster = super::shared_cluster();
        Self::new(cluster.url(), None, cluster)
    }

    pub fn valkey() -> Self {
        Self::alone(Redis::start_with(Setup::default().engine(Engine::Valkey)))
    }

    /// Has the server lose its data; whether it could.
    pub fn lose(&self) -> BoxFuture<'_, bool> {
        let lost = self.own.as_ref().map(|redis| redis.tell(&["FLUSHALL"]));
        Box::pin(std::future::ready(lost.is_some()))
    }
}

/// Stamps out a contract for each place: `$contract!(open)`, where `$open` makes a harness of a [`Place`].
macro_rules! on_every_place {
    ($open:path, $contract:path) => {
        mod standalone {
            async fn open() -> super::Shared {
                $open(crate::common::places::Place::standalone()).await
            }
            $contract!(open);
        }
        mod cluster {
            async fn open() -> super::Shared {
                $open(crate::common::places::Place::cluster()).await
            }
            $contract!(open);
        }
        mod valkey {
            async fn open() -> super::Shared {
                $open(crate::common::places::Place::valkey()).await
            }
            $contract!(open);
        }
    };
}
pub(crate) use on_every_place;
