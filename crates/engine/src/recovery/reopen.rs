//! Opens the shards of the dead again: from then on other nodes grant their locks.
//!
//! Invariants: two barriers come first, which the membership service keeps. The life's transactions are
//! settled; and each life that may still act has said that none of its transactions rests on locks which the
//! dead one granted. (With the first barrier alone, a survivor that holds such a lock and writes is overtaken
//! by a transaction that gets the lock from the heir.) Every node that recovers does this too, again and
//! again until it is done. So a node that dies at it leaves nothing half done.
//!
//! Recovery without a rebuilt lock table: Hu et al., "LOTUS: Optimizing Disaggregated Transactions with
//! Disaggregated Locks". In the paper the dead node's machine serves again; by default ours deals the shards
//! out among the living.

use crate::cluster::membership::{Heirs, Membership, Reopening, Standing};
use crate::services::Inheritance;
use crate::site::Context;
use std::collections::BTreeMap;
use tarn_fabric::address::NodeId;
use tarn_fabric::clock::Nanos;

/// One coroutine's part in opening shards again.
#[derive(Default)]
pub(super) struct Reopener {
    /// Since when it has seen each dead life as recovered whose shards are not open.
    since: BTreeMap<NodeId, Nanos>,
}

impl Reopener {
    /// Opens the shards that can be opened by now. Waits for nothing.
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
