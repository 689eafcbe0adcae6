//! What recovery and resolution make of transactions, by what they have left in logs.
//!
//! Invariant: idempotent. Whoever does it again comes to the same verdicts; a lock is taken away only by CAS of its very tag.
//!
//! Map: [`logs`] reads areas; `undo` and `redo` decide, write and release by entries of old and of new bytes; `bulk` sends all
//! verbs of a step in few rounds; `turn` is one coroutine's right to recover.

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

/// Who asks how a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asker {
    /// Its own thread, and nothing was logged under its coordinator's number since: what stands in the
    /// area beside it is older.
    Itself,
    /// Anybody else, at any time: another's entry in the area may be older or have replaced it.
    Another,
}

/// Which locks recovery releases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whose {
    /// Those that carry the transaction's tag.
    Own,
    /// Those of every record that its log names, whoever holds them by now: wrong, and planted.
    Anybodys,
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

/// Whether a lock's word is a stray.
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

/// What a system writes down of a transaction, and what recovery does with it.
#[expect(async_fn_in_trait, reason = "called within the engine only")]
pub trait Log<P> {
    /// An entry as it is written, and what recovery finds out about it.
    type Entry: Entry;

    /// Has each of them committed?
    ///
    /// # Errors
    /// The fabric's, here and below; all of them are idempotent.
    async fn decide(
        system: &P,
        cx: &Context,
        left: &mut [Unsettled<Self::Entry>],
    ) -> Result<(), Failure>;

    /// Writes back what the aborted have changed, or what the committed have not, then makes their entries invalid.
    ///
    /// # Errors
    /// As above.
    async fn apply(
        system: &P,
        cx: &Context,
        left: &[Unsettled<Self::Entry>],
    ) -> Result<(), Failure>;

    /// Releases what they still hold.
    ///
    /// # Errors
    /// As above.
    async fn release(
        system: &P,
        cx: &Context,
        left: &[Unsettled<Self::Entry>],
    ) -> Result<(), Failure>;
}

impl Whose {
    /// Which locks the recovery of this variant releases.
    pub(crate) fn of(system: &impl Described) -> Whose {
        if system.keeps(Rule::ReleaseOwn) { Whose::Own } else { Whose::Anybodys }
    }
}
