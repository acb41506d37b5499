//! What the cases of a bench on Redis share.

use std::path::Path;

use tempfile::TempDir;

use super::Args;
use super::line::Printer;
use super::redis::{self, Redis};
use super::server::Server;
use crate::failure::{Failure, Result};
use crate::runtime;

/// A run: on the Redis that `--redis` names, or on a private one, which ends with this.
pub struct Bench<'a> {
    /// Before the folder it lies in.
    pub server: Option<Server>,
    folder: TempDir,
    /// Of the Redis that is measured.
    pub url: String,
    /// Under what its keys lie: nobody else's.
    pub name: String,
    pub scale: f64,
    /// Prints figures.
    pub printer: &'a mut Printer,
}

impl<'a> Bench<'a> {
    /// Starts a private Redis if `args` name none.
    ///
    /// # Errors
    /// [`Failure::Work`]; as [`Server::start`].
    pub fn start(args: &Args, printer: &'a mut Printer) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("tidegate-bench-").tempdir();
        let folder = folder.map_err(|e| Failure::Work(format!("cannot make a folder for private servers: {e}")))?;
        let server = if args.redis.is_none() { Some(Server::start(folder.path())?) } else { None };
        let url = args.redis.clone().or_else(|| server.as_ref().map(Server::url)).unwrap_or_default();
        let name = format!("tidegate_bench_{}", std::process::id());
        Ok(Self { server, folder, url, name, scale: args.scale, printer })
    }

    /// For files of this run; gone at its end.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// `n` at this scale, at least `least`.
    pub fn scaled(&self, n: u64, least: u64) -> u64 {
        ((n as f64 * self.scale) as u64).max(least)
    }

    /// Does something with the Redis that is measured, which is one server.
    ///
    /// # Errors
    /// As [`Redis::open`], and what `work` fails with.
    pub fn on_redis<T>(&self, work: impl AsyncFnOnce(&Redis) -> Result<T>) -> Result<T> {
        runtime::run(async {
            let redis = Redis::open(&self.url, &self.name).await?;
            let done = work(&redis).await;
            redis.close().await;
            done
        })
    }

    /// Deletes every key of this run.
    ///
    /// # Errors
    /// As [`redis::connect`]; [`Failure::Work`].
    pub fn erase(&self) -> Result {
        runtime::run(async {
            let connector = redis::connect(&self.url, &self.name).await?;
            let erased = connector.erase().await.map_err(redis::broken);
            connector.close().await;
            erased
        })
    }
}
