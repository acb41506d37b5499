//! A server in this process, on a free port of the loopback address: what `demo` and `replay` sell on, and how the tools
//! read a stopped ledger.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate::{Options, Parts, Tidegate};
use tidegate_server::{Limits, Server, ServerConfig, Surface, Token};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::failure::{Failure, Result};

/// How long closing the ledger may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running server and the library under it. End it with [`LocalServer::stop`].
pub struct LocalServer {
    /// The library.
    pub tidegate: Tidegate,
    /// Where it listens.
    pub addr: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<std::result::Result<(), String>>,
}

impl LocalServer {
    /// Starts on opened back ends and listens.
    ///
    /// # Errors
    /// [`Failure::Work`].
    pub async fn start(parts: Parts, options: Options, tokens: Vec<Token>) -> Result<Self> {
        let tidegate = Tidegate::start(parts, options).await?;
        let config = ServerConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tokens,
            manual_clock: tidegate.operations().clock().manual,
            limits: Limits::default(),
            surface: Surface::Whole,
            namespaces: Vec::new(),
            redis: None,
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
        Ok(Self { tidegate, addr, stop, serving })
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
