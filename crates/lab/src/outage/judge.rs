//! Checks the memory after an outage.
//!
//! Invariant: the memory must show exactly the effects of the acknowledged transactions. Only a transaction in doubt
//! ([`super::books`]) may or may not have had its effect. If the sweep has reported that no lock of a crashed node
//! remains, then a lock that still remains is a failure. The judge still removes this lock before it checks the rest
//! of the memory.

use super::report::Checks;
use crate::harness::error::RunError;
use std::rc::Rc;
use tarn_engine::admin::inspect::audit;
use tarn_engine::recovery::{Pace, sweep};
use tarn_engine::site::Context;
use tarn_fabric::executor::block_on;
use tarn_store::ids::Failure;
use tarn_workloads::Workload;

/// The facts that are known at the end of an outage.
pub(super) struct Known<T> {
    /// The sum of the coordinators' counts.
    pub(super) tally: T,
    /// The number of transactions in doubt, whose outcome no caller learned.
    pub(super) unknown: u64,
    /// Whether a sweep after the last recovery has ended.
    pub(super) is_swept: bool,
    /// The number of members of the smallest replica group.
    pub(super) copies: usize,
    /// Whether every coroutine of the nodes that did not crash has ended.
    pub(super) all_ended: bool,
    /// The failures of transactions that no crash explains.
    pub(super) failures: Vec<String>,
}

/// Checks the memory while no transaction runs.
///
/// # Errors
/// Fails if the memory cannot be read.
pub(super) fn judge<W: Workload>(
    workload: &W,
    cx: &Rc<Context>,
    known: Known<W::Tally>,
) -> Result<Checks, RunError> {
    let judged = block_on(async {
        // No virtual time passes here, so the sweep must not sleep.
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
