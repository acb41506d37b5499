//! What the server counts of its own requests and connections, through handles that are looked up once.

use std::sync::OnceLock;
use std::time::Duration;

use http::StatusCode;
use metrics::{Counter, Gauge, Histogram};

use crate::app::App;
use crate::routes;

/// Stands for requests that no route matched.
pub(crate) const UNMATCHED: usize = usize::MAX;

/// Statuses the server answers with; any other is counted as the last.
const STATUSES: [u16; 21] =
    [200, 201, 202, 204, 400, 401, 403, 404, 405, 408, 409, 412, 413, 414, 415, 422, 431, 502, 503, 504, 500];

type ByStatus = [OnceLock<(Counter, Histogram)>; STATUSES.len()];

/// Handles of the server's own metrics.
pub(crate) struct RequestMetrics {
    rows: Vec<(&'static str, &'static str, ByStatus)>,
    panics: Counter,
    evictions: Counter,
    in_flight: Gauge,
    connections: Gauge,
    streams: Gauge,
}

impl RequestMetrics {
    /// Handles from the recorder that is installed now.
    pub(crate) fn new() -> Self {
        let mut rows: Vec<_> =
            routes::all().map(|route| (route.verb.name(), route.template, ByStatus::default())).collect();
        rows.push(("other", "none", ByStatus::default()));
        Self {
            rows,
            panics: metrics::counter!("tidegate_http_panics_total"),
            evictions: metrics::counter!("tidegate_http_evicted_connections_total"),
            in_flight: metrics::gauge!("tidegate_http_requests_in_flight"),
            connections: metrics::gauge!("tidegate_http_connections"),
            streams: metrics::gauge!("tidegate_http_event_streams"),
        }
    }

    /// A request was answered.
    pub(crate) fn answered(&self, row: usize, status: StatusCode, took: Duration) {
        let (method, route, by_status) = &self.rows[row.min(self.rows.len() - 1)];
        let at = STATUSES.iter().position(|s| *s == status.as_u16()).unwrap_or(STATUSES.len() - 1);
        let (count, seconds) = by_status[at].get_or_init(|| {
            let status = STATUSES[at].to_string();
            (
                metrics::counter!("tidegate_http_requests_total", "method" => *method, "route" => *route, "status" => status.clone()),
                metrics::histogram!("tidegate_http_request_seconds", "method" => *method, "route" => *route, "status" => status),
            )
        });
        count.increment(1);
        seconds.record(took);
    }

    /// A route met a panic.
    pub(crate) fn panicked(&self) {
        self.panics.increment(1);
    }

    /// Connections were closed to make room.
    pub(crate) fn evicted(&self, count: usize) {
        self.evictions.increment(count as u64);
    }

    /// Brings the gauges up to date.
    pub(crate) fn observe(&self, app: &App) {
        self.in_flight.set(app.registry.in_flight() as f64);
        self.connections.set(app.registry.len() as f64);
        self.streams.set(app.open_streams() as f64);
    }
}
