//! Keeps the copies of a database up to their number: promotes, replaces, fills.
//!
//! Invariant: any number of compute nodes may run this. One changes the configuration at a time, and one
//! copies at a time. Another begins anew whatever either leaves half done. A finished copy is believed only
//! if no life was expelled and no transaction was settled while it was made. Changes by recovery and settling
//! may have passed the copier by.

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

/// A step of repair that was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Repaired {
    /// Dead nodes left the map, or spares began to join: a configuration was opened.
    Changed {
        /// The configuration's number.
        number: ConfigurationNumber,
        /// How long no transaction began.
        frozen_ns: u64,
    },
    /// Every joining copy was made complete, and counts from this configuration on.
    Joined {
        /// The configuration's number.
        number: ConfigurationNumber,
        /// How long no transaction began.
        frozen_ns: u64,
        /// The numbers of the last copying pass.
        copied: Copied,
    },
    /// A life was recovered on the way.
    Recovered(NodeId, Recovery),
}

/// Looks after dead memory nodes until `stop`. One coroutine of each compute node that is to take part runs
/// this, on a port of its own.
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
            // A node died meanwhile: the next look finds it.
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
            // The pause is long enough for others to begin their change, and for transactions beside dead
            // nodes to end.
            Changed::SteppedAside => cx.port.sleep(Nanos(terms.patience_ns)).await,
            Changed::NotNow | Changed::Kept => {}
        }
    } else if open.groups.is_joining() && cx.database().membership.unrecovered().is_empty() {
        complete(cx, terms, pace, report).await?;
    }
    Ok(())
}

/// The circumstances that must not change while a copy is made.
fn circumstances(cx: &Context) -> (ConfigurationNumber, ViewNumber, u64) {
    let database = cx.database();
    let configurations = &database.configurations;
    (configurations.open().number, database.membership.view(), configurations.settled())
}

/// The right to fill joining copies, until it is dropped.
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
    /// A copier that is dropped while it writes leaves WRITEs on their way, which would undo newer ones. So
    /// its life ends with it, and the right passes on when that life is recovered.
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
                // The copy would not be believed, or a backup has to be promoted first.
                None => return Ok(()),
            }
        }
    }
    let tell = &mut |node, recovery: &Recovery| {
        report(Repaired::Recovered(node, recovery.clone()));
    };
    let is_believed = || circumstances(cx) == before;
    // All is quiet and all members are equal: any of them may be primary.
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
