//! Functions that load tables and check memory while no coordinator runs.
//!
//! Invariant: no coordinator runs during these functions, so that every future in this file ends
//! without waiting for another coroutine.

use tarn_engine::admin::inspect::{Audit, audit};
use tarn_engine::admin::load::{Loader, Part};
use tarn_engine::site::{Context, Database};
use tarn_fabric::address::{GroupId, NodeSlot};
use tarn_fabric::executor::block_on;
use tarn_store::ids::Failure;
use tarn_workloads::{Invariant, Workload};

/// The part of a table that contains all of the table's records. A single loader loads this part.
pub(crate) const ALL: Part = Part { index: 0, of: 1 };

/// Loads a part of the workload's tables. From time to time, the function calls `tell` with the number of records
/// that were loaded since the last call. Returns the number of records that this thread has loaded.
pub(crate) fn load<W: Workload>(
    workload: &W,
    cx: &Context,
    part: Part,
    tell: &dyn Fn(u64),
) -> Result<u64, Failure> {
    let mut loader = Loader::new(cx, part).telling(tell);
    block_on(async {
        workload.load(&mut loader).await?;
        loader.finish().await
    })
}

/// Returns whether all repairs are complete: dead nodes are recovered, and their shards are open.
/// The map has only memory nodes that are `alive`, and each group has as many members as `wanted`
/// says.
pub(crate) fn is_mended(
    database: &Database,
    alive: impl FnMut(NodeSlot) -> bool,
    wanted: impl Fn(usize) -> usize,
) -> bool {
    let (configurations, membership) = (&database.configurations, &database.membership);
    let open = configurations.open();
    let members = |group: usize| open.groups.members(GroupId(group as u16)).len();
    membership.unrecovered().is_empty()
        && membership.bereaved().is_empty()
        && open.groups.nodes().into_iter().all(alive)
        && !open.groups.is_joining()
        && configurations.announced() == open.number
        && (0..open.groups.count()).all(|group| members(group) >= wanted(group))
}

/// Checks the memory with the workload's invariants and with the engine's audit. The invariants use the counts of the
/// workload's transactions.
pub(crate) fn look<W: Workload>(
    workload: &W,
    cx: &Context,
    tally: &W::Tally,
) -> Result<(Vec<Invariant>, Audit), Failure> {
    block_on(async { Ok((workload.check(cx, tally).await?, audit(cx).await?)) })
}
