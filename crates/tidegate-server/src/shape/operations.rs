//! What the people who run it read.

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate::core::audit::Finding;
use tidegate::{ClockStatus, ReconcileReport};
use utoipa::ToSchema;

use super::instant::Instant;

/// The process lives.
#[derive(Serialize, ToSchema)]
#[schema(as = Health)]
pub(crate) struct HealthShape {
    /// Always `ok`.
    #[schema(example = "ok")]
    pub(crate) status: &'static str,
}

/// Orders can be placed and paid.
#[derive(Serialize, ToSchema)]
#[schema(as = Readiness)]
pub(crate) struct ReadinessShape<'a> {
    /// `ready`, or `degraded` when something needs a look.
    #[schema(example = "ready")]
    pub(crate) status: &'static str,
    /// What needs a look, and what to do.
    pub(crate) reasons: &'a [String],
}

/// A manual clock after it was moved.
#[derive(Serialize, ToSchema)]
#[schema(as = Now)]
pub(crate) struct NowShape {
    #[schema(inline)]
    pub(crate) now: Instant,
}

/// The ledger's clock against the host's.
#[derive(Serialize, ToSchema)]
#[schema(as = Clock)]
pub(crate) struct ClockShape {
    /// What orders are judged by.
    #[schema(inline)]
    now: Instant,
    /// The host's wall clock.
    #[schema(inline)]
    host: Instant,
    /// The two are more than 2 s apart, and nobody has accepted that.
    stepped: bool,
    /// The ledger's is ahead after an accepted step back or a restart, and runs at half speed until the host's has caught
    /// up: holds last up to twice as long meanwhile, and nothing is early.
    catching_up: bool,
    /// It moves only by hand.
    manual: bool,
}

impl ClockShape {
    /// Of this status.
    pub(crate) fn new(status: ClockStatus) -> Self {
        let ClockStatus { now, host, stepped, catching_up, manual } = status;
        Self { now: Instant(now), host: Instant(host), stepped, catching_up, manual }
    }
}

/// What a reconciliation found.
#[derive(Serialize, ToSchema)]
#[schema(as = Reconciliation)]
pub(crate) struct ReconciliationShape<'a> {
    /// Rows and copies that were compared.
    checked: u64,
    /// Differences that were repaired.
    repaired: u64,
    /// Repaired differences and broken invariants.
    findings: Vec<FindingShape<'a>>,
    /// The invariants that were checked, with whether each held.
    #[schema(value_type = BTreeMap<String, bool>)]
    invariants: &'a BTreeMap<&'static str, bool>,
    /// Why the deadline index was not compared, or not all of it; absent when it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_compared: Option<NotComparedShape<'a>>,
}

/// Why the deadline index could not be compared with the ledger.
#[derive(Serialize, ToSchema)]
#[schema(as = NotCompared)]
pub(crate) struct NotComparedShape<'a> {
    /// Whether nothing of it answers: the same may work once its server does.
    unreachable: bool,
    detail: &'a str,
}

/// A difference or a broken invariant.
#[derive(Serialize, ToSchema)]
#[schema(as = Difference)]
pub(crate) struct FindingShape<'a> {
    #[schema(example = "I9")]
    invariant: &'a str,
    detail: &'a str,
}

impl<'a> ReconciliationShape<'a> {
    /// Borrows `report`.
    pub(crate) fn new(report: &'a ReconcileReport) -> Self {
        let finding = |finding: &'a Finding| FindingShape { invariant: finding.invariant, detail: &finding.detail };
        Self {
            checked: report.checked,
            repaired: report.repaired,
            findings: report.findings.iter().map(finding).collect(),
            invariants: &report.invariants,
            not_compared: report
                .not_compared
                .as_ref()
                .map(|why| NotComparedShape { unreachable: why.unreachable, detail: &why.detail }),
        }
    }
}
