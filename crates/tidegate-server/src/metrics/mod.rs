//! Metrics: one catalogue, one recorder, what the server itself counts; alert rules and a dashboard that ask for them.

pub mod catalogue;
pub mod dashboard;
#[cfg(test)]
mod expressions;
pub(crate) mod requests;
pub mod rules;

use std::sync::{Mutex, OnceLock, PoisonError};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::config::ServerError;
use catalogue::{CATALOGUE, Kind};

static INSTALLED: OnceLock<MetricsHandle> = OnceLock::new();

/// The process's metrics, as Prometheus reads them.
#[derive(Clone)]
pub struct MetricsHandle(PrometheusHandle);

impl MetricsHandle {
    /// Every metric in Prometheus' text format.
    #[must_use]
    pub fn render(&self) -> String {
        self.0.render()
    }
}

/// Installs the recorder that `/metrics` shows, for the whole process. Call it before [`crate::Server::bind`]; a
/// second call gives the same recorder. A running server keeps its histograms small.
///
/// There is no idle timeout on purpose: every label set is bounded, and the server keeps handles to its metrics, which
/// an expired metric would silently leave.
///
/// # Errors
/// [`ServerError::Recorder`] when the process has another recorder.
pub fn install_metrics() -> Result<MetricsHandle, ServerError> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = INSTALLED.get() {
        return Ok(handle.clone());
    }
    let mut builder = PrometheusBuilder::new();
    for metric in CATALOGUE {
        if let Kind::Histogram(buckets) = metric.kind {
            builder = builder
                .set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets)
                .map_err(|_| ServerError::Recorder)?;
        }
    }
    let recorder = builder.build_recorder();
    let handle = MetricsHandle(recorder.handle());
    ::metrics::set_global_recorder(recorder).map_err(|_| ServerError::Recorder)?;
    catalogue::describe();
    Ok(INSTALLED.get_or_init(|| handle).clone())
}

/// The recorder, if [`install_metrics`] was called.
pub(crate) fn installed() -> Option<&'static MetricsHandle> {
    INSTALLED.get()
}

/// Folds recorded values into their buckets; without it histograms grow between scrapes.
pub(crate) fn upkeep() {
    if let Some(handle) = installed() {
        handle.0.run_upkeep();
    }
}
