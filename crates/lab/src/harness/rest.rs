//! Loading tables and looking at memory while nothing runs.
//!
//! Invariant: no coordinator runs meanwhile, so that every future here ends without anything beside it.

use tarn_engine::admin::inspect::{Audit, audit};
use tarn_engine::admin::load::{Loader, Part};
use tarn_engine::site::{Context, Database};
use tarn_fabric::address::{GroupId, NodeSlot};
use tarn_fabric::executor::block_on;
use tarn_store::ids::Failure;
use tarn_workloads::{Invariant, Workload};

/// All of a table's records, for one loader.
pub(crate) const ALL: Part = Part { index: 0, of: 1 };

/// Loads a part of the workload's tables. `tell` is called with the number of records since its last call. Returns
/// how many this thread has loaded.
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

/// Whether nothing is left to be looked after: the dead are recovered, their shards are open, the map has only memory nodes that
/// are `alive`, and each group has as many members as are `wanted`.
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

/// Judges the memory: the workload's invariants, given the counts of its transactions, and the engine's audit.
pub(crate) fn look<W: Workload>(
    workload: &W,
    cx: &Context,
    tally: &W::Tally,
) -> Result<(Vec<Invariant>, Audit), Failure> {
    block_on(async { Ok((workload.check(cx, tally).await?, audit(cx).await?)) })
}
