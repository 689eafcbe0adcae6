//! The steps of recovery and resolution, in an order that is the same for every protocol.
//!
//! Invariant: each protocol has its own type for the log entries that it finds, so only this file calls the
//! protocol's recovery functions.

use super::{EntryOf, Protocol};
use crate::cluster::rules::Phase;
use crate::site::Context;
use crate::steps::settle::logs::{self, Head};
use crate::steps::settle::{Asker, Log as _, Turn, Unsettled, enumerate_logged, is_gone};
use tarn_fabric::address::{Address, NodeId};
use tarn_store::ids::{Explanation, Failure, Resolution, TxnId};
use tarn_store::log::Entry;

/// Settles every transaction that a dead incarnation of a node has left in a log, by the recovery functions of the
/// database's protocol. Returns the outcomes of the settled transactions.
///
/// # Errors
/// Returns an error if the fabric cannot complete a verb.
pub(crate) async fn settle_dead<P: Protocol>(
    protocol: &P,
    cx: &Context,
    dead: NodeId,
    turn: &Turn<'_>,
) -> Result<Vec<(TxnId, Resolution)>, Failure> {
    let mut left = enumerate(protocol, cx, dead).await?;
    P::Log::decide(protocol, cx, &mut left).await?;
    turn.writing(P::Log::apply(protocol, cx, &left)).await?;
    turn.writing(P::Log::release(protocol, cx, &left)).await?;
    let end = |each: &Unsettled<EntryOf<P>>| Some((each.entry.tag(), each.decision?));
    Ok(left.iter().filter_map(end).collect())
}

/// Returns every transaction of a dead incarnation that has left a valid log entry.
async fn enumerate<P: Protocol>(
    protocol: &P,
    cx: &Context,
    dead: NodeId,
) -> Result<Vec<Unsettled<EntryOf<P>>>, Failure> {
    protocol.enter(cx, Phase::Resolve);
    enumerate_logged(cx, dead).await
}

/// Finds out the outcome of the transaction `id` and makes it final, by the recovery functions of the database's
/// protocol. The log area of `coordinator` contains the log entry of this transaction.
///
/// # Errors
/// A failure of the fabric; `Usage`, if the coordinator has logged other transactions since.
pub(crate) async fn resolve_logged<P: Protocol>(
    protocol: &P,
    cx: &Context,
    (id, asker): (TxnId, Asker),
    coordinator: u32,
) -> Result<Resolution, Failure> {
    protocol.enter(cx, Phase::Resolve);
    let heads = logs::heads(cx, coordinator..coordinator + 1).await?;
    let (mine, others): (Vec<Head>, Vec<Head>) =
        heads.found.iter().partition(|head| head.tag == id);
    let mut left: Vec<Unsettled<EntryOf<P>>> = logs::entries(cx, &mine).await?;
    if left.is_empty() {
        heads.whole(cx)?;
        if is_gone(others.iter().map(|head| head.tag), id, asker) {
            let allowed = "a transaction whose coordinator has logged no other one since";
            return Err(cx.explain(Explanation::usage("resolve", id, allowed)));
        }
        // No node has the transaction's log entry, so no node has data of this transaction. Locks without data may
        // remain; they are removed after the owner's incarnation is recovered.
        return Ok(Resolution::Aborted);
    }
    P::Log::decide(protocol, cx, &mut left).await?;
    P::Log::apply(protocol, cx, &left).await?;
    P::Log::release(protocol, cx, &left).await?;
    left[0].decision.ok_or_else(|| {
        let allowed = "a transaction whose outcome was unknown to its coordinator";
        cx.explain(Explanation::usage("resolve", id, allowed))
    })
}

/// A transaction that has an entry in a log, with any outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Logged {
    /// The transaction's tag.
    pub id: TxnId,
    /// The addresses of the first words of the records that the transaction's log entry names.
    pub records: Vec<Address>,
}

/// See [`crate::recovery::logged`].
pub(crate) async fn logged_by<P: Protocol>(
    protocol: &P,
    cx: &Context,
    life: NodeId,
) -> Result<Vec<Logged>, Failure> {
    let left = enumerate(protocol, cx, life).await?;
    let seen =
        |it: Unsettled<EntryOf<P>>| Logged { id: it.entry.tag(), records: it.entry.records() };
    Ok(left.into_iter().map(seen).collect())
}

/// See [`crate::recovery::plant_undone`].
pub(crate) async fn plant_undone_by<P: Protocol>(
    protocol: &P,
    cx: &Context,
    id: TxnId,
) -> Result<(), Failure> {
    let mut left = enumerate(protocol, cx, id.node()).await?;
    left.retain(|it| it.entry.tag() == id);
    left.iter_mut().for_each(|it| it.decision = Some(Resolution::Aborted));
    P::Log::apply(protocol, cx, &left).await
}
