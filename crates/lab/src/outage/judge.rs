//! Judges the memory after an outage.
//!
//! Invariant: acknowledged transactions are held against memory exactly; only transactions in doubt ([`super::books`]) may
//! have had an effect or none. A lock that is left where the sweep has said that there is none is a failure, although the
//! judge takes it away before it looks on.

use super::report::Checks;
use crate::harness::error::RunError;
use std::rc::Rc;
use tarn_engine::admin::inspect::audit;
use tarn_engine::recovery::{Pace, sweep};
use tarn_engine::site::Context;
use tarn_fabric::executor::block_on;
use tarn_store::ids::Failure;
use tarn_workloads::Workload;

/// The facts that are known when all is over.
pub(super) struct Known<T> {
    /// The counts of coordinators.
    pub(super) tally: T,
    /// Transactions in doubt.
    pub(super) unknown: u64,
    /// Whether a sweep after the last recovery has ended.
    pub(super) is_swept: bool,
    /// Members of the group that has fewest.
    pub(super) copies: usize,
    /// Whether every coroutine of the living came to its end.
    pub(super) all_ended: bool,
    /// Transactions that failed in a way that no crash explains.
    pub(super) failures: Vec<String>,
}

/// Looks at memory at rest.
///
/// # Errors
/// It could not be looked at.
pub(super) fn judge<W: Workload>(
    workload: &W,
    cx: &Rc<Context>,
    known: Known<W::Tally>,
) -> Result<Checks, RunError> {
    let judged = block_on(async {
        // At rest no time passes, so no coroutine may sleep.
        let freed = sweep(cx, Pace::UNPACED).await?.freed;
        let rules = workload.check(cx, &known.tally).await?;
        Ok::<_, Failure>((freed, audit(cx).await?, rules))
    });
    let (freed, audit, rules) =
        judged.map_err(|failure| RunError::Failed(format!("the memory: {failure}")))?;
    let locks_missed = if known.is_swept { freed } else { 0 };
    Ok(Checks {
        audit: (&audit).into(),
        rules: rules.into(),
        unknown: known.unknown,
        locks_missed,
        copies: known.copies,
        all_ended: known.all_ended,
        failures: known.failures,
    })
}
