//! Reopens the lock shards of dead compute nodes: other nodes grant the locks of these shards from then on.
//!
//! Invariant: the membership service checks two conditions before a shard reopens. First, the dead node's
//! transactions are settled. Second, each node that may still act has said that none of its transactions relies on
//! locks that the dead node granted. (With the first condition alone, a survivor could still write under such a lock
//! while the new owner grants the same lock to another transaction.) Every node that recovers other nodes also
//! repeats this work until all shards are open. So a node that dies during the work leaves nothing half done.
//!
//! The idea of recovery without rebuilding the lock table comes from Hu et al., "LOTUS: Optimizing Disaggregated
//! Transactions with Disaggregated Locks". In the paper the dead node's machine serves its shards again. By default
//! Tarn distributes the shards among the living nodes.

use crate::cluster::membership::{Heirs, Membership, Reopening, Standing};
use crate::services::Inheritance;
use crate::site::Context;
use std::collections::BTreeMap;
use tarn_fabric::address::NodeId;
use tarn_fabric::clock::Nanos;

/// The state of one coroutine that reopens shards.
#[derive(Default)]
pub(super) struct Reopener {
    /// For each dead node that is recovered and has closed shards: the time when this coroutine first saw the node in
    /// this state.
    since: BTreeMap<NodeId, Nanos>,
}

impl Reopener {
    /// Opens all shards that can be opened now. This function does not wait.
    pub(super) fn turn(&mut self, cx: &Context) {
        let Some(services) = cx.node.services() else { return };
        let membership = &*cx.database().membership;
        let bereaved = membership.bereaved();
        self.since.retain(|dead, _| bereaved.contains(dead));
        let is_recovered = |dead: &NodeId| membership.standing(*dead) == Standing::Recovered;
        for dead in bereaved.into_iter().filter(is_recovered) {
            let since = *self.since.entry(dead).or_insert_with(|| cx.port.now());
            match services.options().inheritance {
                Inheritance::Survivors => _ = membership.reopen_shards(dead, Heirs::Owners),
                Inheritance::NextLife { within } => {
                    let is_late = || cx.port.now() - since > within;
                    reopen_for_next_life(membership, dead, is_late);
                }
            }
        }
    }
}

fn reopen_for_next_life(membership: &dyn Membership, dead: NodeId, is_late: impl Fn() -> bool) {
    if membership.reopen_shards(dead, Heirs::NextLife) == Reopening::NoHeir && is_late() {
        membership.reopen_shards(dead, Heirs::Owners);
    }
}
