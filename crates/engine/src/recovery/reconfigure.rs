//! A change of the configuration: announce it, wait until all is quiet, settle the transactions of the dead,
//! open it.
//!
//! Invariant: a changer opens the next configuration only when every member's threads are quiet and every
//! expelled life is recovered. So no transaction of the former configuration holds a lock that the next one's
//! primaries do not know. A member that does not become quiet in time is expelled; a changer whose own node
//! does not lets others have the turn. A change is idempotent: if the changer dies, another announces the
//! change anew. If its future is dropped, the change is called off: the open configuration stays, under its
//! number. See docs/design/0013-memory-node-recovery.md.

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

/// The terms of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// A member whose threads are not quiet after this time is expelled, whatever it does: a transaction
    /// whose body merely takes longer counts as not quiet. No transaction begins meanwhile.
    pub patience_ns: u64,
    /// How often the changer looks whether the threads are quiet.
    pub look_every_ns: u64,
}

impl Default for Terms {
    /// Patience without end. How long a body takes is its caller's matter, and no node is dead because of it.
    /// The membership service says which node is dead, by its leases or by
    /// [`crate::cluster::membership::Membership::expel`]; the change goes on then. A shorter patience is for
    /// callers that know how long their bodies take.
    fn default() -> Terms {
        Terms { patience_ns: u64::MAX, look_every_ns: 1_000 }
    }
}

/// The result of asking for a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Changed {
    /// This configuration was opened.
    Opened {
        /// The configuration's number.
        number: ConfigurationNumber,
        /// How long no transaction began, by the changer's clock.
        frozen_ns: u64,
    },
    /// Another node makes a change, or took this one over.
    NotNow,
    /// There was no next map: the open configuration stays.
    Kept,
    /// A thread of the changer's own node was not quiet in time: the open configuration stays. Another
    /// changer may have its turn; for that one this node is one like any other.
    SteppedAside,
}

/// Calls the change off if it does not come to its end.
struct Announced<'a> {
    configurations: &'a Configurations,
    change: Change,
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        self.configurations.call_off(self.change);
    }
}

/// Changes the configuration to the map that `next` makes of the open one, once all is quiet. `next` is asked
/// again if a life has ended meanwhile. `report` gets the lives that were recovered on the way.
///
/// # Errors
/// An error of the fabric: this node was expelled itself.
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

/// Tells the memory nodes that are new in the map which lives are over, before anything else is sent there. A
/// new node has not heard of these lives and would let their zombies in. A life that ends meanwhile keeps the
/// map from being opened.
async fn tell_the_new(cx: &Context, next: &ReplicaGroups) -> Result<(), Failure> {
    let known = cx.database().configurations.open().groups.nodes();
    let mut new = next.nodes();
    new.retain(|node| !known.contains(node));
    revoke(cx, &cx.database().membership.ended(), &new).await
}

/// Recovers every expelled life that no other node recovers. Returns whether none is left.
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

/// Reads a word of every memory node of the open map, and of the spares; reports the nodes that are down.
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

/// The map without its dead nodes, and with joining copies on spares, as far as there are any, for groups
/// that have fewer copies than at first. `None` if that is the same map, or if a group has no member left.
pub fn replaced(configurations: &Configurations, map: &ReplicaGroups) -> Option<ReplicaGroups> {
    let spares = configurations.spares();
    let mut next = map.clone();
    for node in configurations.dead() {
        next = next.without(node)?;
    }
    for group in (0..next.count() as u16).map(GroupId) {
        // Spares are taken in turn, so that their load is even.
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
