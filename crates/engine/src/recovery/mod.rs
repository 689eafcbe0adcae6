//! Recovers a dead compute node: finishes or undoes its transactions, so that a new incarnation can use its slot.
//!
//! - The caller claims the dead node's incarnation. One node at a time recovers an incarnation.
//! - The caller revokes the access of the dead incarnation at every memory node. The caller also revokes the access
//!   of earlier recoverers, which may still be at work. Only then does the caller read memory, because no verb of a
//!   revoked node takes effect any more.
//! - The caller reads the log areas. The hooks of the protocol decide every transaction of the incarnation that has a
//!   valid log entry. The hooks apply or undo the writes of such a transaction, and release its locks.
//! - The caller marks the incarnation as recovered. The shards whose locks the incarnation granted are opened on
//!   another node (`reopen`), as soon as no running transaction relies on these locks. Only locks of transactions
//!   that had written nothing remain. A transaction that meets such a lock removes it (`stray`), and [`sweep()`]
//!   removes the other remaining locks in the background.
//!
//! Invariant: recovery is idempotent. If a recoverer dies at any point, another node claims the incarnation, starts
//! again, and reaches the same verdicts. The number of rounds does not depend on the number of coordinators and
//! records, because every step is one batch for all transactions. The argument why recovery is correct is in
//! docs/design/0012-recovery.md.

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

/// The result of recovering an incarnation of a node.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Recovery {
    /// The transactions of the incarnation that had a log entry, and how they end. A transaction that is not in this
    /// list wrote nothing, or its coordinator knew its outcome. If the caller does not know the outcome of such a
    /// transaction, the transaction has aborted.
    pub settled: Vec<(TxnId, Resolution)>,
}

/// The result of an attempt to recover an incarnation of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Attempt {
    /// This caller has recovered the incarnation.
    Recovered(Recovery),
    /// The incarnation was recovered already.
    Done,
    /// The caller should try again later. Another node recovers the incarnation, the membership service has not
    /// answered yet, or this node lost its claim during the recovery.
    NotNow,
    /// The incarnation is still a member, or the caller is not a member.
    Refused,
}

/// Recovers an expelled incarnation of a node. If the future is dropped before it changes anything, another node
/// may begin immediately. If the future is dropped later, this node is expelled.
///
/// # Errors
/// An error of the fabric: the caller itself was expelled, or a primary is down. The caller may safely try again.
pub async fn recover(cx: &Context, dead: NodeId) -> Result<Attempt, Failure> {
    // The membership service does not distinguish the coroutines of a compute node. So the coroutines themselves
    // ensure that only one of them recovers the incarnation.
    let Some(turn) = Turn::take(cx, dead) else { return Ok(Attempt::NotNow) };
    let (database, by) = (cx.database(), cx.node.id);
    let before = match database.membership.claim_recovery(dead, by) {
        Claim::Granted { before } => before,
        Claim::Done => return Ok(Attempt::Done),
        Claim::Held { .. } | Claim::Pending => return Ok(Attempt::NotNow),
        Claim::NotExpelled | Claim::NotMember => return Ok(Attempt::Refused),
    };
    // The incarnation is expelled and not recovered. Until it is recovered, a new configuration cannot be opened. So
    // the dead incarnation ran with the present map, even if a change was opened just before it was expelled.
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
    cx.follow_locks();
    cx.metrics.recovery(RecoveryEvent::Recovered);
    database.sweeps.want(database.membership.view());
    cx.node.admission_gate.look_again();
    Ok(Attempt::Recovered(Recovery { settled }))
}

/// Ensures that no thread of another node settles the dead incarnation's transactions in doubt, because only one
/// thread at a time may resolve a transaction. From now on no thread can begin to settle these transactions. If a
/// thread of an expelled node is settling such a transaction, the thread loses its access. Returns false if a member
/// is still settling such a transaction. The caller then tries again later.
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

/// The entries in the log areas of one incarnation of a node.
///
/// # Errors
/// An error of the fabric.
pub async fn logged(cx: &Context, life: NodeId) -> Result<Vec<Logged>, Failure> {
    protocol::of(cx).logged(cx, life).await
}

/// Plants an error that checkers must notice: the function undoes a logged transaction completely, as a wrong
/// recovery would.
///
/// # Errors
/// An error of the fabric.
pub async fn plant_undone(cx: &Context, id: TxnId) -> Result<(), Failure> {
    protocol::of(cx).plant_undone(cx, id).await
}

/// Recovers expelled incarnations, opens their shards on other nodes, and takes part in sweeps, until `stop` returns
/// true. On each compute node that takes part, one coroutine runs this function on its own port. The function passes
/// each recovery to `report`.
///
/// # Errors
/// The same errors as [`recover`]. A temporary failure of the fabric (a primary is down) does not end this function.
pub async fn attend(
    cx: &Context,
    pace: Pace,
    stop: impl Fn() -> bool,
    mut report: impl FnMut(NodeId, &Recovery),
) -> Result<(), Failure> {
    let (mut sweeper, mut reopener) = (Sweeper::default(), Reopener::default());
    while !stop() {
        // If a node runs no transaction, it must read the lease word here. Otherwise a change of the lease word would
        // wait for this node.
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
        // The yield lets other coroutines run, even if the pause is zero.
        cx.port.yield_now().await;
        cx.port.sleep(Nanos(pace.look_every_ns)).await;
    }
    Ok(())
}

fn is_fenced(cx: &Context) -> bool {
    cx.port.last_error() == Some(FabricError::Fenced)
}
