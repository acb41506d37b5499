//! Where the watch over Redis gets its samples from.

use tidegate_core::watch::Sample;

use crate::BoxFuture;

/// One round over every server of a source.
#[derive(Debug, Default)]
pub struct Round {
    /// One sample a server.
    pub samples: Vec<Sample>,
    /// Servers (`host:port`) that left: they are not watched any more.
    pub gone: Vec<String>,
}

/// Looks at servers: one alone, or all of a Cluster or of a set under Sentinel.
pub trait SampleSource: Send {
    /// Looks at every server once, at all of them together; ends within a few seconds whatever they do. A server that does not
    /// answer is a sample that says so.
    fn round(&mut self) -> BoxFuture<'_, Round>;
}

/// A round of each source, all of them together.
pub async fn all(sources: &mut [Box<dyn SampleSource>]) -> Vec<Round> {
    futures_util::future::join_all(sources.iter_mut().map(|source| source.round())).await
}
