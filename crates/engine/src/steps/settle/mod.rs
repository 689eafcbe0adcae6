//! Recovery and resolution: decide how transactions ended, by the entries that they have left in logs.
//!
//! Invariant: idempotent. A resolver that does it again comes to the same verdicts. A lock is taken away only by CAS
//! of its transaction's own tag.
//!
//! Map:
//! - [`logs`] reads areas.
//! - `undo` and `redo` decide, write and release, by entries of old bytes and of new bytes.
//! - `bulk` sends all verbs of a step in few rounds.
//! - `turn` is one coroutine's right to recover.
//! - `age` tells which of two transactions came first.

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

/// The caller that asks how a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asker {
    /// The transaction's own thread, and nothing was logged under its coordinator's number since. So any other entry
    /// in the area is older.
    Itself,
    /// Any other caller, at any time. Another transaction's entry in the area may be older, or may have replaced the
    /// entry.
    Another,
}

/// The locks that recovery releases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whose {
    /// Those that carry the transaction's tag.
    Own,
    /// Those of every record that its log names, whichever transaction holds them by now: a planted bug.
    Anybodys,
}

/// Returns every transaction of a dead life that has a valid entry, in any area. The numbers of the life's
/// coordinators need not be known.
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

/// Returns whether a coordinator's log area holds no entry of a dead life that is not recovered yet, and never will.
/// A life that is only taken for dead writes on until its access is revoked, also after its area was read. So its
/// access is revoked first.
///
/// # Errors
/// The fabric's.
pub async fn is_settled(cx: &Context, coordinator: u32) -> Result<bool, Failure> {
    let dead = cx.database().membership.unrecovered();
    if dead.is_empty() {
        return Ok(true);
    }
    // While one of these lives is left, each new configuration has the present map. If all of them are recovered
    // meanwhile, the area is free, whatever an old map shows.
    cx.follow();
    revoke(cx, &dead, &cx.groups.whole().nodes()).await?;
    let heads = logs::heads(cx, coordinator..coordinator + 1).await?;
    Ok(!heads.found.iter().any(|head| dead.contains(&head.tag.node())))
}

/// Returns whether a lock's word is a stray: its owner is a life that is recovered already.
pub(crate) fn is_stray(cx: &Context, word: u64) -> bool {
    let Some(owner) = OwnerTag::from_word(word) else { return false };
    let node = owner.node();
    node != cx.node.id && cx.database().membership.standing(node) == Standing::Recovered
}

/// Adds the verb that takes a stray away.
pub(crate) fn plan_free(cx: &Context, round: &mut Round, (address, word): (Address, u64)) {
    let target = cx.groups.primary(address);
    round.cas(target, word, 0);
}

/// The log that a system keeps of a transaction, and recovery by its entries.
#[expect(async_fn_in_trait, reason = "called within the engine only")]
pub trait Log<P> {
    /// An entry as it is written, with the facts that recovery finds out about it.
    type Entry: Entry;

    /// Decides of each transaction whether it has committed.
    ///
    /// # Errors
    /// The fabric's, here and below. All of these functions are idempotent.
    async fn decide(
        system: &P,
        cx: &Context,
        left: &mut [Unsettled<Self::Entry>],
    ) -> Result<(), Failure>;

    /// Writes the old bytes of aborted transactions back, or the missing bytes of committed ones. Then makes their
    /// entries invalid.
    ///
    /// # Errors
    /// Those of [`Log::decide`].
    async fn apply(
        system: &P,
        cx: &Context,
        left: &[Unsettled<Self::Entry>],
    ) -> Result<(), Failure>;

    /// Releases the locks that the transactions still hold.
    ///
    /// # Errors
    /// Those of [`Log::decide`].
    async fn release(
        system: &P,
        cx: &Context,
        left: &[Unsettled<Self::Entry>],
    ) -> Result<(), Failure>;
}

impl Whose {
    /// The locks that the recovery of this variant releases.
    pub(crate) fn of(system: &impl Described) -> Whose {
        if system.keeps(Rule::ReleaseOwn) { Whose::Own } else { Whose::Anybodys }
    }
}
