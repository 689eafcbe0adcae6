//! Recovery of a dead compute node: its transactions are finished or undone, so that its slot may live again.
//!
//! - The caller claims the life; one node recovers it at a time.
//! - The dead life's access is revoked at every memory node, and so is that of earlier recoverers, which may
//!   still be at work. Only then is anything read: none of their verbs lands any more.
//! - Log areas are read. Every transaction of that life that has a valid entry is decided, applied and
//!   released, by the protocol's hooks.
//! - The life is marked as recovered. Shards whose locks it granted open elsewhere (`reopen`), once no
//!   running transaction relies on locks that it had granted. Only locks of transactions that had written
//!   nothing are left. A transaction that meets such a lock takes it away (`stray`), and so does [`sweep()`],
//!   at its leisure.
//!
//! Invariant: recovery is idempotent. If a recoverer dies at any point, another claims the life, begins anew,
//! and comes to the same verdicts. Rounds are few, whatever the number of coordinators and records: every
//! step is one batch for all transactions. The argument is in docs/design/0012-recovery.md.

mod pace;
pub mod reconfigure;
mod reopen;
mod stray;
mod sweep;
mod sweeps;

pub use pace::{Pace, Share};
pub(crate) use stray::free_met;
pub use sweep::Swept;
pub(crate) use sweeps::Sweeper;
pub use sweeps::sweep;

use crate::cluster::membership::Claim;
use crate::protocol;
use crate::protocol::settle::Logged;
use crate::site::Context;
use crate::site::metrics::RecoveryEvent;
use crate::steps::settle::Turn;
use reopen::Reopener;
use tarn_fabric::address::NodeId;
use tarn_fabric::clock::Nanos;
use tarn_fabric::error::FabricError;
use tarn_store::ids::{Failure, Resolution, TxnId};

/// The result of recovering a life.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Recovery {
    /// The life's transactions that had a log entry, and how they end. A transaction of the life that is not
    /// here wrote nothing, or its coordinator knew how it had ended. If its outcome is unknown to the caller,
    /// it has aborted.
    pub settled: Vec<(TxnId, Resolution)>,
}

/// The result of an attempt to recover a life.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Attempt {
    /// This caller has recovered the life.
    Recovered(Recovery),
    /// The life is recovered already.
    Done,
    /// Another node recovers the life, the service has not answered yet, or the claim was lost on the way:
    /// look again later.
    NotNow,
    /// The life is a member, or the caller is none.
    Refused,
}

/// Recovers a life that was expelled. If the future is dropped before it changes anything, another node may
/// begin at once. If it is dropped later, this node is expelled.
///
/// # Errors
/// An error of the fabric: the caller is fenced itself, or a primary is down. Nothing is lost by trying again.
pub async fn recover(cx: &Context, dead: NodeId) -> Result<Attempt, Failure> {
    // To the service a compute node is one: its coroutines themselves make sure that only one recovers.
    let Some(turn) = Turn::take(cx, dead) else { return Ok(Attempt::NotNow) };
    let (database, by) = (cx.database(), cx.node.id);
    let before = match database.membership.claim_recovery(dead, by) {
        Claim::Granted { before } => before,
        Claim::Done => return Ok(Attempt::Done),
        Claim::Held { .. } | Claim::Pending => return Ok(Attempt::NotNow),
        Claim::NotExpelled | Claim::NotMember => return Ok(Attempt::Refused),
    };
    // The life is expelled and not recovered. Until it is recovered, a configuration is opened only with the
    // present map. So this is the map that the life ran in, even if a change was opened just before it was
    // expelled.
    cx.follow();
    if !cx.is_current() {
        return Ok(Attempt::NotNow);
    }
    if !before.is_empty() {
        cx.metrics.recovery(RecoveryEvent::TookOver);
    }
    let protocol = protocol::of(cx);
    for whom in std::iter::once(dead).chain(before) {
        protocol.fence(cx, whom).await?;
    }
    if !ends_settling(cx, dead).await? {
        return Ok(Attempt::NotNow);
    }
    let settled = protocol.settle_dead(cx, dead, &turn).await?;
    if !database.membership.recovered(dead, by) {
        return Ok(Attempt::NotNow);
    }
    database.log_area_owners.bury(dead, &settled);
    cx.metrics.recovery(RecoveryEvent::Recovered);
    database.sweeps.want(database.membership.view());
    cx.node.admission_gate.look_again();
    Ok(Attempt::Recovered(Recovery { settled }))
}

/// Makes sure that no thread of another life settles the in-doubt transactions of this one: one thread
/// resolves a transaction at a time. No thread can begin to settle them any more. A thread that is at it and
/// is no member loses its access. Returns false if a member is still at it: look again later.
async fn ends_settling(cx: &Context, dead: NodeId) -> Result<bool, Failure> {
    let database = cx.database();
    for by in database.log_area_owners.close(dead) {
        if database.membership.is_member(by) {
            return Ok(false);
        }
        protocol::of(cx).fence(cx, by).await?;
    }
    Ok(true)
}

/// The entries in a life's logs.
///
/// # Errors
/// An error of the fabric.
pub async fn logged(cx: &Context, life: NodeId) -> Result<Vec<Logged>, Failure> {
    protocol::of(cx).logged(cx, life).await
}

/// A planted mistake, for judges to notice: undoes a logged transaction as a whole, as a wrong recovery
/// would.
///
/// # Errors
/// An error of the fabric.
pub async fn plant_undone(cx: &Context, id: TxnId) -> Result<(), Failure> {
    protocol::of(cx).plant_undone(cx, id).await
}

/// Recovers expelled lives, opens their shards elsewhere, and takes part in sweeps, until `stop`. One
/// coroutine of each compute node that is to take part runs this, on a port of its own. `report` gets each
/// recovery.
///
/// # Errors
/// As [`recover`]; a failure of the fabric that may pass (a primary is down) is no reason to stop.
pub async fn attend(
    cx: &Context,
    pace: Pace,
    stop: impl Fn() -> bool,
    mut report: impl FnMut(NodeId, &Recovery),
) -> Result<(), Failure> {
    let (mut sweeper, mut reopener) = (Sweeper::default(), Reopener::default());
    while !stop() {
        // A node that runs no transaction would keep a change waiting.
        cx.node.read_lease();
        if let Err(failure) = cx.settle_left().await
            && is_fenced(cx)
        {
            return Err(failure);
        }
        for dead in cx.database().membership.unrecovered() {
            match recover(cx, dead).await {
                Ok(Attempt::Recovered(recovery)) => report(dead, &recovery),
                Ok(_) => {}
                Err(failure) if is_fenced(cx) => return Err(failure),
                Err(_) => {}
            }
        }
        reopener.turn(cx);
        match sweeper.turn(cx, pace).await {
            Err(failure) if is_fenced(cx) => return Err(failure),
            Ok(()) | Err(_) => {}
        }
        // Other coroutines run in between, however short the pause.
        cx.port.yield_now().await;
        cx.port.sleep(Nanos(pace.look_every_ns)).await;
    }
    Ok(())
}

fn is_fenced(cx: &Context) -> bool {
    cx.port.last_error() == Some(FabricError::Fenced)
}
