//! Recovery and resolution: decide the outcomes of transactions by the log entries that the transactions have left.
//!
//! Invariant: all steps of recovery are idempotent. A resolver that repeats the steps reaches the same verdicts.
//! Recovery takes a transaction's lock away only by a CAS that expects this transaction's own tag.
//!
//! Map of the modules:
//! - [`logs`] reads log areas.
//! - `undo` and `redo` decide outcomes, write missing or old bytes, and release locks; `undo` uses log entries of old
//!   bytes, and `redo` those of new bytes.
//! - `bulk` sends all verbs of a step in few rounds.
//! - `turn` gives only one coroutine at a time the right to recover.
//! - `age` decides which of two transactions came first.

mod age;
mod bulk;
pub mod logs;
pub(crate) mod redo;
mod turn;
pub(crate) mod undo;

pub(crate) use age::is_gone;
pub(crate) use bulk::{Answer, Bulk, Wish};
pub use logs::Unsettled;
pub(crate) use turn::Turn;

use crate::cluster::membership::Standing;
use crate::cluster::rules::Rule;
use crate::requests::fence::revoke;
use crate::site::Context;
use crate::steps::Described;
use tarn_fabric::address::{Address, NodeId};
use tarn_fabric::round::Round;
use tarn_store::ids::{Failure, OwnerTag};
use tarn_store::log::Entry;

/// The caller that wants to know the outcome of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asker {
    /// The caller is the transaction's own thread, and has logged nothing since under the transaction's coordinator
    /// number. So any other log entry in the log area is older than the transaction's log entry.
    Itself,
    /// The caller is any other thread, at any moment. Another transaction's log entry in the log area may be older
    /// than this transaction's entry, or may have replaced it.
    Another,
}

/// The locks that recovery releases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whose {
    /// The locks whose words contain the transaction's tag.
    Own,
    /// Recovery releases the locks of every record that the transaction's log names, even if another transaction
    /// holds them by now: a planted bug.
    Anybodys,
}

/// Returns every transaction of a dead node's incarnation that has left a valid log entry in any log area. The caller
/// need not know the numbers of the coordinators that belonged to this incarnation.
///
/// # Errors
/// Returns an error if the fabric cannot complete a verb.
pub(crate) async fn enumerate_logged<E: Entry>(
    cx: &Context,
    dead: NodeId,
) -> Result<Vec<Unsettled<E>>, Failure> {
    let numbers = 0..cx.database().catalog.options().coordinators_max;
    let mut heads = logs::heads(cx, numbers).await?.found;
    heads.retain(|head| head.tag.node() == dead);
    logs::entries(cx, &heads).await
}

/// Returns whether a coordinator's log area contains no log entry of an unrecovered dead incarnation, and will never
/// contain one. An incarnation that is wrongly assumed dead writes until its access to memory is revoked, even after
/// its log area was read. So `is_settled` revokes the memory access of these incarnations before it reads the log
/// area.
///
/// # Errors
/// Returns an error if the fabric cannot complete a verb.
pub async fn is_settled(cx: &Context, coordinator: u32) -> Result<bool, Failure> {
    let dead = cx.database().membership.unrecovered();
    if dead.is_empty() {
        return Ok(true);
    }
    // While any of these incarnations is not recovered, each new configuration has the present map of log areas. If
    // all these incarnations are recovered in the meantime, the log area is free, even if an old map shows the
    // contrary.
    cx.follow();
    revoke(cx, &dead, &cx.groups.whole().nodes()).await?;
    let heads = logs::heads(cx, coordinator..coordinator + 1).await?;
    Ok(!heads.found.iter().any(|head| dead.contains(&head.tag.node())))
}

/// Returns whether a lock word is a stray lock word, because its owner is a node's incarnation that was already
/// recovered.
pub(crate) fn is_stray(cx: &Context, word: u64) -> bool {
    let Some(owner) = OwnerTag::from_word(word) else { return false };
    let node = owner.node();
    node != cx.node.id && cx.database().membership.standing(node) == Standing::Recovered
}

/// Adds the CAS that removes a stray lock word.
pub(crate) fn plan_free(cx: &Context, round: &mut Round, (address, word): (Address, u64)) {
    let target = cx.groups.primary(address);
    round.cas(target, word, 0);
}

/// The log in which a system records its transactions, and the recovery by the log entries.
#[expect(async_fn_in_trait, reason = "called within the engine only")]
pub trait Log<P> {
    /// A log entry, with the facts that recovery finds out about its transaction.
    type Entry: Entry;

    /// Decides for each transaction in `left` whether it has committed.
    ///
    /// # Errors
    /// Returns an error if the fabric cannot complete a verb. All functions of this trait are idempotent.
    async fn decide(
        system: &P,
        cx: &Context,
        left: &mut [Unsettled<Self::Entry>],
    ) -> Result<(), Failure>;

    /// Writes the old bytes of aborted transactions back, or the missing bytes of committed transactions. After these
    /// writes, makes the log entries of these transactions invalid.
    ///
    /// # Errors
    /// Returns the same errors as [`Log::decide`].
    async fn apply(
        system: &P,
        cx: &Context,
        left: &[Unsettled<Self::Entry>],
    ) -> Result<(), Failure>;

    /// Releases the locks that the transactions in doubt still hold.
    ///
    /// # Errors
    /// Returns the same errors as [`Log::decide`].
    async fn release(
        system: &P,
        cx: &Context,
        left: &[Unsettled<Self::Entry>],
    ) -> Result<(), Failure>;
}

impl Whose {
    /// Returns which locks the recovery of this variant of the system releases.
    pub(crate) fn of(system: &impl Described) -> Whose {
        if system.keeps(Rule::ReleaseOwn) { Whose::Own } else { Whose::Anybodys }
    }
}
