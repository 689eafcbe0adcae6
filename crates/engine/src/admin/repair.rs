//! Keeps the required number of copies of a database. The repair promotes backups, replaces dead memory nodes, and
//! fills new copies.
//!
//! Invariant: any number of compute nodes may run this repair. One node at a time changes the configuration, and one
//! node at a time fills copies. If that node stops halfway, another node starts the work again. The repair accepts a
//! finished copy only if no compute node was expelled and no transaction in doubt was settled while the copy was
//! made. If such an event happened, the copy may lack changes that recovery or settling made.

use crate::admin::rereplicate::{Copied, copy};
use crate::cluster::configuration::CopierId;
use crate::recovery::reconfigure::{Changed, Terms, change, probe, replaced};
use crate::recovery::{Pace, Recovery, Sweeper};
use crate::site::Context;
use crate::site::metrics::RecoveryEvent;
use tarn_fabric::address::{GroupId, NodeId};
use tarn_fabric::clock::Nanos;
use tarn_fabric::error::FabricError;
use tarn_store::ids::{ConfigurationNumber, Failure, ViewNumber};
use tarn_store::placement::replica_groups::ReplicaGroups;

/// A repair step that this node has completed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Repaired {
    /// A configuration was opened, because dead nodes were removed from the map of replica groups or spare nodes
    /// began to join it.
    Changed {
        /// The number of the new configuration.
        number: ConfigurationNumber,
        /// The time during which no transaction could begin, in nanoseconds.
        frozen_ns: u64,
    },
    /// Every joining copy was completed. The completed copies are full members from this configuration on.
    Joined {
        /// The number of the new configuration.
        number: ConfigurationNumber,
        /// The time during which no transaction could begin, in nanoseconds.
        frozen_ns: u64,
        /// The counters of the last copying pass.
        copied: Copied,
    },
    /// An incarnation of a node was recovered during the repair.
    Recovered(NodeId, Recovery),
}

/// Repairs the loss of memory nodes until `stop` returns true. On each compute node that takes part, one coroutine
/// runs this function on its own port.
///
/// # Errors
/// An error of the fabric, once this node is expelled.
pub async fn repair(
    cx: &Context,
    terms: Terms,
    pace: Pace,
    stop: impl Fn() -> bool,
    mut report: impl FnMut(Repaired),
) -> Result<(), Failure> {
    let configurations = &cx.database().configurations;
    let _mending = configurations.begin_repairing();
    let mut sweeper = Sweeper::default();
    while !stop() {
        let mut stepped = step(cx, terms, pace, &mut report).await;
        if stepped.is_ok() {
            stepped = sweeper.turn(cx, pace).await;
        }
        match stepped {
            Err(failure) if cx.port.last_error() == Some(FabricError::Fenced) => {
                return Err(failure);
            }
            // `Err` means that a node died during the step. The next iteration of this loop finds the dead node.
            Ok(()) | Err(_) => {}
        }
        cx.port.sleep(Nanos(pace.look_every_ns)).await;
    }
    Ok(())
}

/// Does the repairs that are due now.
///
/// # Errors
/// An error of the fabric.
pub async fn step(
    cx: &Context,
    terms: Terms,
    pace: Pace,
    report: &mut impl FnMut(Repaired),
) -> Result<(), Failure> {
    let configurations = &cx.database().configurations;
    probe(cx).await?;
    cx.follow();
    let open = configurations.open();
    if replaced(configurations, &open.groups).is_some() {
        let tell = &mut |node, recovery: &Recovery| {
            report(Repaired::Recovered(node, recovery.clone()));
        };
        match change(cx, terms, tell, |map| replaced(configurations, map)).await? {
            Changed::Opened { number, frozen_ns } => {
                cx.metrics.recovery(RecoveryEvent::Promoted);
                report(Repaired::Changed { number, frozen_ns });
            }
            // The pause is long enough for another node to begin its change, and for transactions that wait for dead
            // nodes to end.
            Changed::SteppedAside => cx.port.sleep(Nanos(terms.patience_ns)).await,
            Changed::NotNow | Changed::Kept => {}
        }
    } else if open.groups.is_joining() && cx.database().membership.unrecovered().is_empty() {
        complete(cx, terms, pace, report).await?;
    }
    Ok(())
}

/// The state that must not change while a copy is made.
fn circumstances(cx: &Context) -> (ConfigurationNumber, ViewNumber, u64) {
    let database = cx.database();
    let configurations = &database.configurations;
    (configurations.open().number, database.membership.view(), configurations.settled())
}

/// The exclusive right to fill joining copies. The node gives the right back when this value is dropped.
struct Copying<'a> {
    cx: &'a Context,
    me: CopierId,
}

impl<'a> Copying<'a> {
    fn claim(cx: &'a Context) -> Option<Copying<'a>> {
        let (database, me) = (cx.database(), (cx.node.id, cx.port.endpoint()));
        let is_mine = database.configurations.claim_copying(me, &*database.membership);
        is_mine.then(|| Copying { cx, me })
    }
}

impl Drop for Copying<'_> {
    /// If a copier is dropped during a write, its WRITEs may still be in flight. Late WRITEs of a dropped copier
    /// could overwrite newer bytes. So the copier's node is expelled. The right to copy passes to another node when
    /// the expelled incarnation is recovered.
    fn drop(&mut self) {
        match self.cx.writes_copy.get() {
            true => _ = self.cx.database().membership.expel(self.cx.node.id),
            false => self.cx.database().configurations.end_copying(self.me),
        }
    }
}

/// Fills every joining copy and makes it a member.
async fn complete(
    cx: &Context,
    terms: Terms,
    pace: Pace,
    report: &mut impl FnMut(Repaired),
) -> Result<(), Failure> {
    let Some(copying) = Copying::claim(cx) else { return Ok(()) };
    let configurations = &cx.database().configurations;
    let (before, groups) = (circumstances(cx), cx.groups.whole());
    let is_believed = || circumstances(cx) == before && configurations.dead().is_empty();
    let mut copied = Copied::default();
    for group in (0..groups.count() as u16).map(GroupId) {
        for &node in groups.joining(group) {
            match copy(cx, (group, node), pace, &is_believed).await? {
                Some(more) => copied.add(more),
                // `None` means that the repair would not accept the copy, or that a backup must be promoted first.
                None => return Ok(()),
            }
        }
    }
    let tell = &mut |node, recovery: &Recovery| {
        report(Repaired::Recovered(node, recovery.clone()));
    };
    let is_believed = || circumstances(cx) == before;
    // No transaction runs and all members are equal, so any member may become primary.
    let next = |map: &ReplicaGroups| is_believed().then(|| map.joined().balanced());
    let changed = change(cx, terms, tell, next).await;
    drop(copying);
    match changed? {
        Changed::Opened { number, frozen_ns } => {
            cx.metrics.recovery(RecoveryEvent::Rereplicated);
            report(Repaired::Joined { number, frozen_ns, copied });
        }
        Changed::SteppedAside => cx.port.sleep(Nanos(terms.patience_ns)).await,
        Changed::NotNow | Changed::Kept => {}
    }
    Ok(())
}
