//! Changes the configuration in four steps: announce the change, wait until all threads are idle, settle the
//! transactions of dead nodes, open the next configuration.
//!
//! Invariant: a changer opens the next configuration only when every member's threads are idle and every expelled
//! incarnation is recovered. Otherwise a transaction of the former configuration could hold a lock that the next
//! primaries do not know. A member that does not become idle in time is expelled. If the changer's own node does not
//! become idle in time, the changer lets another node make the change. A change is idempotent: if the changer dies,
//! another node announces the change anew. If the changer's future is dropped, the change is cancelled: the open
//! configuration stays, under the same number. See docs/design/0013-memory-node-recovery.md.

use crate::cluster::configuration::{Change, Configurations};
use crate::recovery::{self, Attempt, Recovery};
use crate::requests::fence::revoke;
use crate::site::Context;
use tarn_fabric::address::{Address, GroupId, NodeId};
use tarn_fabric::clock::Nanos;
use tarn_fabric::error::FabricError;
use tarn_fabric::round::Round;
use tarn_store::ids::{ConfigurationNumber, Failure};
use tarn_store::placement::replica_groups::ReplicaGroups;

/// The time limits of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The changer expels a member whose threads are not idle after this time, even if the member is alive. A thread
    /// is not idle while a transaction's body runs, however long the body takes. No transaction begins during the
    /// change.
    pub patience_ns: u64,
    /// The time between two checks whether the members' threads are idle.
    pub look_every_ns: u64,
}

impl Default for Terms {
    /// The default patience has no end, because a slow body is no sign of a dead node. The membership service decides
    /// which node is dead, by its leases or by [`crate::cluster::membership::Membership::expel`]. Then the change of
    /// the configuration continues. A shorter patience is for callers that know how long their bodies take.
    fn default() -> Terms {
        Terms { patience_ns: u64::MAX, look_every_ns: 1_000 }
    }
}

/// The result of an attempt to change the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Changed {
    /// The changer opened this configuration.
    Opened {
        /// The number of the configuration.
        number: ConfigurationNumber,
        /// The time during which no transaction could begin, in nanoseconds of the changer's clock.
        frozen_ns: u64,
    },
    /// Another node is making a change, or took over this change.
    NotNow,
    /// `next` returned no map, so the open configuration stays.
    Kept,
    /// A thread of the changer's own node was not idle in time, so the open configuration stays. Another changer may
    /// try, and it treats this node like any other member.
    SteppedAside,
}

/// An announced change of the configuration. Dropping this value before the change is complete cancels the change.
struct Announced<'a> {
    configurations: &'a Configurations,
    change: Change,
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        self.configurations.call_off(self.change);
    }
}

/// Changes the configuration to the map that `next` computes from the open map, once all threads are idle. If an
/// incarnation was expelled meanwhile, the function calls `next` again. The function passes each incarnation that was
/// recovered during the change to `report`.
///
/// # Errors
/// An error of the fabric: this node was expelled.
pub async fn change(
    cx: &Context,
    terms: Terms,
    report: &mut dyn FnMut(NodeId, &Recovery),
    next: impl Fn(&ReplicaGroups) -> Option<ReplicaGroups>,
) -> Result<Changed, Failure> {
    let (database, me) = (cx.database(), cx.node.id);
    let (configurations, membership) = (&database.configurations, &*database.membership);
    let Some(change) = configurations.announce(me, membership) else {
        return Ok(Changed::NotNow);
    };
    let _announced = Announced { configurations, change };
    let began = cx.port.now();
    loop {
        cx.attend().await;
        let late = configurations.late(membership);
        if late.is_empty() && settle_the_dead(cx, report).await? {
            let view = membership.view();
            let Some(groups) = next(&configurations.open().groups) else {
                return Ok(Changed::Kept);
            };
            tell_the_new(cx, &groups).await?;
            if configurations.finish(change, groups, (membership, me, view)) {
                let frozen_ns = (cx.port.now() - began).0;
                return Ok(Changed::Opened { number: change.number(), frozen_ns });
            }
        }
        if (cx.port.now() - began).0 > terms.patience_ns {
            if late == [me] {
                return Ok(Changed::SteppedAside);
            }
            late.into_iter().filter(|node| *node != me).for_each(|node| {
                membership.expel(node);
            });
        }
        if !configurations.is_announced(change) {
            return Ok(Changed::NotNow);
        }
        if !membership.is_member(me) {
            return Err(cx.port.note_failure(FabricError::Fenced).into());
        }
        cx.port.sleep(Nanos(terms.look_every_ns)).await;
    }
}

/// Tells the memory nodes that are new in the map which incarnations are expelled. The function does so before any
/// node sends another verb to the new memory nodes. Otherwise a new memory node would accept verbs of an expelled
/// incarnation. If another incarnation is expelled meanwhile, the map is not opened.
async fn tell_the_new(cx: &Context, next: &ReplicaGroups) -> Result<(), Failure> {
    let known = cx.database().configurations.open().groups.nodes();
    let mut new = next.nodes();
    new.retain(|node| !known.contains(node));
    revoke(cx, &cx.database().membership.ended(), &new).await
}

/// Recovers every expelled incarnation that no other node recovers. Returns whether all expelled incarnations are
/// recovered.
async fn settle_the_dead(
    cx: &Context,
    report: &mut dyn FnMut(NodeId, &Recovery),
) -> Result<bool, Failure> {
    let membership = &cx.database().membership;
    for dead in membership.unrecovered() {
        match recovery::recover(cx, dead).await {
            Ok(Attempt::Recovered(recovery)) => report(dead, &recovery),
            Ok(Attempt::Done | Attempt::NotNow | Attempt::Refused) => {}
            Err(failure) if cx.port.last_error() == Some(FabricError::Fenced) => {
                return Err(failure);
            }
            Err(_) => {}
        }
    }
    Ok(membership.unrecovered().is_empty())
}

/// Reads a word of every memory node of the open map and of every spare node. Reports the nodes that are down.
///
/// # Errors
/// An error of the fabric: this node was expelled.
pub async fn probe(cx: &Context) -> Result<(), Failure> {
    let configurations = &cx.database().configurations;
    let open = configurations.open();
    let mut nodes = open.groups.nodes();
    nodes.extend(configurations.spares());
    let mut round = Round::new();
    for node in nodes {
        if configurations.is_down(node) {
            continue;
        }
        let holds = |group: &GroupId| {
            open.groups.all(Address::new(*group, 0)).any(|target| target.node() == node)
        };
        let group = (0..open.groups.count() as u16).map(GroupId).find(holds);
        round.clear();
        round.read(Address::new(group.unwrap_or(GroupId(0)), 0).at(node), 8);
        match cx.port.execute(&mut round).await {
            Err(error) if matches!(*error, FabricError::NodeDown(_)) => configurations.report(node),
            Err(error) if matches!(*error, FabricError::Fenced) => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// The map without its dead nodes. Groups that have fewer copies than at first get joining copies on spare nodes, if
/// spare nodes remain. Returns `None` if the map does not change, or if a group has no member left.
pub fn replaced(configurations: &Configurations, map: &ReplicaGroups) -> Option<ReplicaGroups> {
    let spares = configurations.spares();
    let mut next = map.clone();
    for node in configurations.dead() {
        next = next.without(node)?;
    }
    for group in (0..next.count() as u16).map(GroupId) {
        // The search for each group begins at a different spare node, so that the load on the spare nodes is even.
        let mut candidates = spares.iter().cycle().skip(usize::from(group.0)).take(spares.len());
        while next.replicas(group) < configurations.copies_wanted()[usize::from(group.0)] {
            let holds =
                |node| next.members(group).contains(node) || next.joining(group).contains(node);
            let Some(node) = candidates.find(|node| !holds(node)) else { break };
            next = next.with_joining(group, *node);
        }
    }
    (next != *map).then_some(next)
}
