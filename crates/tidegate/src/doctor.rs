//! How servers of Redis and Valkey are set up, against what they are used for: [`look`], once; [`apply`] sets what settings can mend.
//!
//! ```no_run
//! # async fn example() -> tidegate::Result<()> {
//! use tidegate::doctor::{self, Purpose};
//!
//! let examined = doctor::look("redis://queue:6379", Purpose::State).await?;
//! for finding in &examined.report.findings {
//!     tracing::warn!(check = finding.check.name(), fix = finding.fix, "{}", finding.cause);
//! }
//! # Ok(())
//! # }
//! ```

pub use tidegate_core::doctor::{CONFIDENCE, Change, Check, Finding, Report, Step, Unknown, steps};
pub use tidegate_core::watch::{Memory, Purpose, Severity};
pub use tidegate_redis::doctor::{Applied, Outcome};

use tidegate_core::Millis;
use tidegate_core::doctor::{Deployment, judge};
use tidegate_redis::RedisOptions;

use crate::Result;
use crate::big_keys::failed;

/// What was seen of servers, and what is wrong with them.
#[derive(Debug, Clone)]
pub struct Examined {
    /// When it was looked, by this machine's clock.
    pub at: Millis,
    /// What was seen.
    pub seen: Deployment,
    /// What is wrong, and what could not be checked.
    pub report: Report,
}

/// Looks at what `url` names and judges it: `redis://`, `rediss://` (one server), `redis-sentinel://` (the master and its replicas),
/// `redis-cluster://` (every server of it). It asks, and changes nothing.
///
/// # Errors
/// [`Error::Configuration`](crate::Error::Configuration): the URL is wrong, or the server does not let us in. [`Error::Redis`](crate::Error::Redis): a server alone, or every server of a
/// set, does not answer, or stops answering meanwhile.
pub async fn look(url: &str, role: Purpose) -> Result<Examined> {
    let options = RedisOptions::parse(url).map_err(failed)?;
    let at = tidegate_backend::clock::host_now();
    let seen = tidegate_redis::doctor::examine(&options, role).await.map_err(failed)?;
    let report = judge(&seen);
    Ok(Examined { at, seen, report })
}

/// Sets what [`steps`] names, one by one, each with a look at the server before and after it. A step that has become unsafe meanwhile
/// is refused; one that fails keeps no other back.
///
/// # Errors
/// [`Error::Configuration`](crate::Error::Configuration): the URL is wrong, or a step names no address.
pub async fn apply(url: &str, steps: &[Step]) -> Result<Vec<Applied>> {
    let options = RedisOptions::parse(url).map_err(failed)?;
    tidegate_redis::doctor::apply(&options, steps).await.map_err(failed)
}
