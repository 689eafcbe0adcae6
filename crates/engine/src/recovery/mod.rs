//! Recovery of a dead compute node: what it left is finished or undone, so that its slot may live again.
//!
//! - The caller claims it; one recovers at a time.
//! - The dead life's access is revoked at every memory node, and that of earlier recoverers, which may
//!   still be at it. Only then is anything read: nothing of theirs lands any more.
//! - Log areas are read, and every transaction of that life that has a valid entry is decided, applied and
//!   released, by the protocol's hooks.
//! - The life is marked as recovered. Shards whose locks it granted open elsewhere (`reopen`), once nothing of
//!   anybody rests on what it had granted. What is left of it are locks of transactions that had written
//!   nothing: whoever meets one takes it away (`stray`), and so does [`sweep()`], at its leisure.
//!
//! Invariant: idempotent, whoever dies at whatever point: another claims it and begins anew, and comes to
//! the same verdicts. Rounds are few, whatever the number of coordinators and records: every step is one
//! batch for all transactions. The argument is in docs/design/0012-recovery.md.

mod age;
mod bulk;
pub mod logs;
mod pace;
pub(crate) mod redo;
mod reopen;
mod stray;
mod sweep;
mod sweeps;
mod turn;
pub(crate) mod undo;

pub(crate) use age::is_gone;
pub(crate) use bulk::{Answer, Bulk, Wish};
pub use pace::{Pace, Share};
pub use reopen::Inheritance;
pub(crate) use stray::{free_met, is_stray, plan_free};
pub use sweep::Swept;
pub(crate) use sweeps::Sweeper;
pub use sweeps::{Sweeps, sweep};

use crate::context::Context;
use crate::membership::Claim;
use crate::metrics::RecoveryEvent;
use crate::protocol::Protocol;
use logs::Head;
use reopen::Reopener;
use tarn_fabric::address::{Address, NodeId, NodeSlot};
use tarn_fabric::clock::Nanos;
use tarn_fabric::error::FabricError;
use tarn_store::ids::{Explanation, Failure, Resolution, TxnId};
use tarn_store::log::Entry;

pub use logs::Unsettled;
pub(crate) use turn::Turn;
pub use turn::Turns;

/// What recovering a life found.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Recovery {
    /// Its transactions that had a log entry, and how they end. Of those that are not here nothing was
    /// ever written, or their coordinator knew how they had ended: if their outcome was unknown, they have aborted.
    pub settled: Vec<(TxnId, Resolution)>,
}

/// Who asks how a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asker {
    /// Its own thread, and nothing was logged under its coordinator's number since: what stands in the
    /// area beside it is older.
    Itself,
    /// Anybody else, at any time: another's entry in the area may be older or have replaced it.
    Another,
}

/// How an attempt to recover a life ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Attempt {
    /// It is recovered, by this caller.
    Recovered(Recovery),
    /// It is recovered already.
    Done,
    /// Another is at it, the service has not answered yet, or the claim was lost on the way: look again
    /// later.
    NotNow,
    /// That life is a member, or the caller is none.
    Refused,
}

/// Recovers a life that was expelled. If the future is dropped before it changes anything, another node
/// may begin at once; if it is dropped later, this node is expelled.
///
/// # Errors
/// The fabric's: the caller is fenced itself, or a primary is down. Nothing is lost by trying again.
pub async fn recover(cx: &Context, dead: NodeId) -> Result<Attempt, Failure> {
    // To the service a compute node is one: its coroutines see to it themselves that one recovers.
    let Some(turn) = Turn::take(cx, dead) else { return Ok(Attempt::NotNow) };
    let (database, by) = (cx.database(), cx.node.id);
    let before = match database.membership.claim_recovery(dead, by) {
        Claim::Granted { before } => before,
        Claim::Done => return Ok(Attempt::Done),
        Claim::Held { .. } | Claim::Pending => return Ok(Attempt::NotNow),
        Claim::NotExpelled | Claim::NotMember => return Ok(Attempt::Refused),
    };
    // Expelled and not recovered: until it is, no configuration is opened but with the map of now. So this
    // is the one that it ran in, also if it was expelled and a change was opened just before.
    cx.follow();
    if !cx.is_current() {
        return Ok(Attempt::NotNow);
    }
    if !before.is_empty() {
        cx.metrics.recovery(RecoveryEvent::TookOver);
    }
    let protocol = &database.protocol;
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
    database.numbers.bury(dead, &settled);
    cx.metrics.recovery(RecoveryEvent::Recovered);
    database.sweeps.want(database.membership.view());
    cx.node.clearance.look_again();
    Ok(Attempt::Recovered(Recovery { settled }))
}

/// Sees to it that no thread of another life settles what this one has in doubt: one resolves a transaction at a time. Nobody begins to
/// any more. Who is no member loses its access; false, if a member is still at it: look again later.
async fn ends_settling(cx: &Context, dead: NodeId) -> Result<bool, Failure> {
    let database = cx.database();
    for by in database.numbers.close(dead) {
        if database.membership.is_member(by) {
            return Ok(false);
        }
        database.protocol.fence(cx, by).await?;
    }
    Ok(true)
}

/// Takes every transaction that a dead life has left in a log through its protocol's hooks; how they end.
///
/// # Errors
/// The fabric's.
pub(crate) async fn settle_dead<P: Protocol>(
    protocol: &P,
    cx: &Context,
    dead: NodeId,
    turn: &Turn<'_>,
) -> Result<Vec<(TxnId, Resolution)>, Failure> {
    let mut left = protocol.enumerate(cx, dead).await?;
    protocol.decide(cx, &mut left).await?;
    turn.writing(protocol.apply(cx, &left)).await?;
    turn.writing(protocol.release(cx, &left)).await?;
    let end = |each: &Unsettled<P::Entry>| Some((each.entry.tag(), each.decision?));
    Ok(left.iter().filter_map(end).collect())
}

/// Which locks recovery releases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whose {
    /// Those that carry the transaction's tag.
    Own,
    /// Those of every record that its log names, whoever holds them by now: wrong, and planted.
    Anybodys,
}

/// Finds out how `id` ended, whose log is the area of `coordinator`, and makes it final, by its protocol's hooks.
///
/// # Errors
/// The fabric's; `Usage`, if its coordinator has logged others since.
pub(crate) async fn resolve_logged<P: Protocol>(
    protocol: &P,
    cx: &Context,
    (id, asker): (TxnId, Asker),
    coordinator: u32,
) -> Result<Resolution, Failure> {
    let heads = logs::heads(cx, coordinator..coordinator + 1).await?;
    let (mine, others): (Vec<Head>, Vec<Head>) =
        heads.found.iter().partition(|head| head.tag == id);
    let mut left: Vec<Unsettled<P::Entry>> = logs::entries(cx, &mine).await?;
    if left.is_empty() {
        heads.whole(cx)?;
        if is_gone(others.iter().map(|head| head.tag), id, asker) {
            let allowed = "a transaction whose coordinator has not written since";
            return Err(cx.explain(Explanation::usage("resolve", id, allowed)));
        }
        // No node has the log, so no node has data of it; locks without data may remain, and are
        // taken away once its owner's life is recovered.
        return Ok(Resolution::Aborted);
    }
    protocol.decide(cx, &mut left).await?;
    protocol.apply(cx, &left).await?;
    protocol.release(cx, &left).await?;
    left[0].decision.ok_or_else(|| {
        let allowed = "a transaction whose coordinator did not know how it ended";
        cx.explain(Explanation::usage("resolve", id, allowed))
    })
}

/// Every transaction of a dead life that has a valid entry, in any area: its coordinators' numbers need
/// not be known.
///
/// # Errors
/// The fabric's.
pub(crate) async fn enumerate_logged<E: Entry>(
    cx: &Context,
    dead: NodeId,
) -> Result<Vec<Unsettled<E>>, Failure> {
    let numbers = 0..cx.database().catalog.options().coordinators_max;
    let mut heads = logs::heads(cx, numbers).await?.found;
    heads.retain(|head| head.tag.node() == dead);
    logs::entries(cx, &heads).await
}

/// A transaction that stands in a log, whatever has become of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Logged {
    /// Which.
    pub id: TxnId,
    /// The first words of the records that its entry names.
    pub records: Vec<Address>,
}

/// What stands in a life's logs.
///
/// # Errors
/// The fabric's.
pub async fn logged(cx: &Context, life: NodeId) -> Result<Vec<Logged>, Failure> {
    cx.database().protocol.logged(cx, life).await
}

/// See [`logged`].
pub(crate) async fn logged_by<P: Protocol>(
    protocol: &P,
    cx: &Context,
    life: NodeId,
) -> Result<Vec<Logged>, Failure> {
    let left = protocol.enumerate(cx, life).await?;
    let seen = |it: Unsettled<P::Entry>| Logged { id: it.entry.tag(), records: it.entry.records() };
    Ok(left.into_iter().map(seen).collect())
}

/// A planted mistake, for judges to notice: undoes a transaction that stands in a log, whole, as a recovery
/// would that has it wrong.
///
/// # Errors
/// The fabric's.
pub async fn plant_undone(cx: &Context, id: TxnId) -> Result<(), Failure> {
    cx.database().protocol.plant_undone(cx, id).await
}

/// See [`plant_undone`].
pub(crate) async fn plant_undone_by<P: Protocol>(
    protocol: &P,
    cx: &Context,
    id: TxnId,
) -> Result<(), Failure> {
    let mut left = protocol.enumerate(cx, id.node()).await?;
    left.retain(|it| it.entry.tag() == id);
    left.iter_mut().for_each(|it| it.decision = Some(Resolution::Aborted));
    protocol.apply(cx, &left).await
}

/// Recovers whoever is expelled, opens their shards elsewhere, and takes part in sweeps, until `stop`: one coroutine of each compute node
/// that is to take part runs this, on a port of its own. `report` is told what was found.
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
        // A node that runs nothing would keep a change waiting.
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
        // Others run in between, however short the pause.
        cx.port.yield_now().await;
        cx.port.sleep(Nanos(pace.look_every_ns)).await;
    }
    Ok(())
}

fn is_fenced(cx: &Context) -> bool {
    cx.port.last_error() == Some(FabricError::Fenced)
}

/// Whether no dead life that is not recovered has left anything in a coordinator's log area, or ever will:
/// one that is only taken for dead writes on until its access is gone, also after its area was looked at.
///
/// # Errors
/// The fabric's.
pub async fn is_settled(cx: &Context, coordinator: u32) -> Result<bool, Failure> {
    let dead = cx.database().membership.unrecovered();
    if dead.is_empty() {
        return Ok(true);
    }
    // While one of them is left no configuration is opened but with the map of now; and if all are
    // recovered meanwhile, the area is free, whatever an old map shows.
    cx.follow();
    revoke(cx, &dead, &cx.groups.whole().nodes()).await?;
    let heads = logs::heads(cx, coordinator..coordinator + 1).await?;
    Ok(!heads.found.iter().any(|head| dead.contains(&head.tag.node())))
}

/// Revokes a life's access at every memory node that lives; when this returns, nothing of it will ever
/// land.
///
/// # Errors
/// `Fenced`, if the caller's own access is gone.
pub async fn revoke_everywhere(cx: &Context, whom: NodeId) -> Result<(), Failure> {
    revoke(cx, &[whom], &cx.groups.whole().nodes()).await
}

/// Revokes the access of some lives at some memory nodes, all at once.
///
/// # Errors
/// As [`revoke_everywhere`].
pub(crate) async fn revoke(
    cx: &Context,
    lives: &[NodeId],
    nodes: &[NodeSlot],
) -> Result<(), Failure> {
    let pairs = nodes.iter().flat_map(|node| lives.iter().map(move |life| (*life, *node)));
    let asked: Vec<_> = pairs.map(|(life, node)| cx.port.post_revoke(life, node)).collect();
    for each in asked {
        let answer = match each {
            Ok(detached) => cx.port.settle(detached).await,
            Err(error) => Err(error),
        };
        match answer {
            // A node that is down executes nothing.
            Ok(()) | Err(FabricError::NodeDown(_)) => {}
            Err(error) => return Err(cx.port.note_failure(error).into()),
        }
    }
    Ok(())
}
