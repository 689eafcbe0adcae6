//! Keepers: coroutines that recover compute nodes, promote backups and fill spares. This file also computes digests
//! of the state that is not in memory and on which keepers and coordinators depend.
//!
//! Invariant: keepers use the engine's own functions for recovery and repair, and they first declare the lost node
//! dead. If the engine refuses a step, the keeper tries the step again when the state has changed. The judge reports
//! a keeper that never ends. A keeper does not remove locks without a log, because the transactions that meet these
//! locks remove them. Before the judge checks for remaining locks, it removes the locks without a log that no
//! transaction met.

use super::cluster::Cluster;
use super::desk::Desk;
use super::service::Service;
use std::rc::Rc;
use tarn_engine::admin::repair::{Repaired, step};
use tarn_engine::cluster::membership::Standing;
use tarn_engine::recovery::reconfigure::{Terms, replaced};
use tarn_engine::recovery::{self, Attempt, Pace};
use tarn_engine::site::{Context, Database};
use tarn_fabric::address::{GroupId, NodeId};
use tarn_fabric::clock::Nanos;
use tarn_fabric::error::FabricError;
use tarn_fabric::rng::mix;
use tarn_store::placement::shard_map::{ShardEntry, ShardId};

/// The time that a keeper waits before it tries again. The waiting time is longer than the time that one reading of
/// the clock takes.
pub const LOOK_AGAIN: Nanos = Nanos(1_000);
/// The membership service expels no member for being slow, because the explorer's scheduler chooses the members that
/// are lost and expelled.
const TERMS: Terms = Terms { patience_ns: u64::MAX / 2, look_every_ns: LOOK_AGAIN.0 };
/// The recovery makes no pauses, because the explorer's scheduler chooses the steps that happen between two steps of
/// the recovery.
const PACE: Pace =
    Pace { blocks: usize::MAX, pause_ns: 0, look_every_ns: LOOK_AGAIN.0, ..Pace::UNPACED };

/// A coroutine that repairs the cluster after the loss of a node.
pub struct Keeper {
    /// The context of the keeper's thread.
    pub cx: Rc<Context>,
    /// The node that has the same task before this keeper, until that node is lost.
    pub after: Option<NodeId>,
    /// The desk at which the keeper records the recoveries that have ended.
    pub desk: Rc<Desk>,
}

impl Keeper {
    fn standing(&self, node: NodeId) -> Standing {
        self.cx.database().membership.standing(node)
    }

    /// Returns whether this keeper must not begin its work yet. The second keeper must not begin as long as the first
    /// keeper's node is a member and the repair is not done.
    fn is_early(&self) -> bool {
        self.after.is_some_and(|first| self.standing(first) == Standing::Member)
    }

    fn is_fenced(&self) -> bool {
        self.cx.port.last_error() == Some(FabricError::Fenced)
    }

    /// Recovers the compute node `dead`.
    pub async fn recover(self, dead: NodeId) {
        self.cx.database().membership.expel(dead);
        loop {
            if self.standing(dead) == Standing::Recovered {
                break;
            }
            if !self.is_early() {
                match recovery::recover(&self.cx, dead).await {
                    Ok(Attempt::Recovered(_) | Attempt::Done) => break,
                    Ok(Attempt::NotNow) => {}
                    // This keeper's node is no longer a member, so another keeper continues the recovery.
                    Ok(Attempt::Refused) => return,
                    Err(_) if self.is_fenced() => return,
                    // A memory node died during the recovery, so the keeper tries again.
                    Err(_) => {}
                }
            }
            self.cx.port.sleep(LOOK_AGAIN).await;
        }
        self.recovered(dead);
    }

    fn recovered(&self, dead: NodeId) {
        self.desk.left.borrow_mut().recovered.push((self.cx.node.id, dead));
    }

    /// Promotes backups of dead memory nodes, and fills spares.
    pub async fn repair(self) {
        while !self.is_mended() {
            if !self.is_early() {
                let report = &mut |repaired| match repaired {
                    Repaired::Recovered(dead, _) => self.recovered(dead),
                    Repaired::Changed { .. } | Repaired::Joined { .. } => {}
                };
                let stepped = step(&self.cx, TERMS, PACE, report).await;
                if stepped.is_err() && self.is_fenced() {
                    return;
                }
                if self.is_mended() {
                    return;
                }
            }
            self.cx.port.sleep(LOOK_AGAIN).await;
        }
    }

    /// Returns whether the map of groups needs no further repair. A keeper calls this function after the death of a
    /// memory node. If the map does not show this death, and no keeper has reported it yet, the map still needs
    /// repair.
    fn is_mended(&self) -> bool {
        let configurations = &self.cx.database().configurations;
        let open = configurations.open();
        open.number.0 > 1
            && configurations.announced() == open.number
            && !open.groups.is_joining()
            && replaced(configurations, &open.groups).is_none()
    }
}

/// Returns a digest of all facts about the cluster that coordinators may learn without reading memory.
pub fn digest(cluster: &Cluster, database: &Database) -> u64 {
    let nodes = (0..cluster.compute_nodes() as u16).map(|slot| cluster.node(slot));
    let standing = |node: NodeId| match database.membership.standing(node) {
        Standing::Unknown => 0,
        Standing::Member => 1,
        Standing::Expelled => 2,
        Standing::Recovered => 3u64,
    };
    let configurations = &database.configurations;
    let open = configurations.open();
    let first = mix(mix(configurations.announced().0) ^ configurations.changes()) ^ open.number.0;
    let lists = (0..open.groups.count() as u16).map(GroupId).flat_map(|group| {
        let [members, joining] = [open.groups.members(group), open.groups.joining(group)];
        members.iter().chain(joining).chain([&SEPARATOR]).copied().collect::<Vec<_>>()
    });
    let first = lists.fold(first, |digest, node| mix(digest ^ u64::from(node.0)));
    let first = nodes.fold(mix(first), |digest, node| mix(digest ^ standing(node)));
    let held = database.lock_stations.as_ref().map(|stations| stations.digest());
    let first = held.map_or(first, |held| mix(first ^ held));
    if database.protocol.needs().locks { mix(first ^ of_shards(cluster, database)) } else { first }
}

/// Returns a digest of the owners of the shards, and of the nodes that have acknowledged the loss of a shard's owner.
fn of_shards(cluster: &Cluster, database: &Database) -> u64 {
    let membership = &*database.membership;
    let word = |shard: &ShardId| membership.shard(*shard).map_or(0, ShardEntry::word);
    let first = cluster.shards.iter().fold(0, |digest, shard| mix(digest ^ word(shard)));
    let acks = membership.ended().into_iter().flat_map(|dead| {
        let slot = |node: NodeId| u64::from(node.slot.0) + 1;
        let by = membership.lost_acks(dead).into_iter().map(slot);
        std::iter::once(slot(dead) << 16).chain(by)
    });
    acks.fold(mix(first), |digest, word| mix(digest ^ word))
}

/// A value that separates two groups in the digest. The value names no memory node.
const SEPARATOR: tarn_fabric::address::NodeSlot = tarn_fabric::address::NodeSlot(u16::MAX);

/// Returns a digest of the state that only keepers see: the node that claimed each recovery, and the keepers that are
/// at work.
pub fn keepers_digest(database: &Database, service: &Service) -> u64 {
    let configurations = &database.configurations;
    let mut digest = mix(service.claims() ^ mix(database.membership.view().0));
    let mut add = |word: u64| digest = mix(digest ^ word);
    let (changing, copying) = configurations.at_work();
    let name = |node: NodeId| u64::from(node.slot.0) + 1;
    add(changing.map_or(0, name));
    add(copying.map_or(0, |(node, at)| name(node) << 16 | u64::from(at.thread)));
    add(configurations.settled());
    configurations.late(&*database.membership).into_iter().for_each(|node| add(name(node)));
    add(u64::MAX);
    configurations.dead().into_iter().for_each(|node| add(u64::from(node.0) + 1));
    add(u64::MAX);
    configurations.spares().into_iter().for_each(|node| add(u64::from(node.0) + 1));
    digest
}
