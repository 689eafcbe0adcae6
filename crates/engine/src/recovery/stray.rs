//! Strays: locks of a recovered life, whose transactions had written nothing.
//!
//! Invariant: a lock is taken away only by CAS of its very tag, and only if the life that the tag names
//! is recovered: then nothing of it will ever land, every transaction of it that wrote is settled, and no
//! later transaction has its tag. So whoever meets one may do it, at any time, any number of times.

use crate::context::Context;
use crate::membership::Standing;
use crate::metrics::RecoveryEvent;
use tarn_fabric::address::Address;
use tarn_fabric::round::Round;
use tarn_store::ids::OwnerTag;

/// Whether a lock's word is a stray.
pub(crate) fn is_stray(cx: &Context, word: u64) -> bool {
    let Some(owner) = OwnerTag::from_word(word) else { return false };
    let node = owner.node();
    node != cx.node.id && cx.database().membership.standing(node) == Standing::Recovered
}

/// Takes away the lock that refused this thread's last transaction, if it is a stray, or a transaction's in doubt that this thread may
/// settle. Whether it was: then the transaction may try again at once.
pub(crate) async fn free_met(cx: &Context) -> bool {
    let Some((address, word)) = cx.take_met() else { return false };
    if !is_stray(cx, word) {
        return cx.settle_met(word).await;
    }
    let mut round = Round::new();
    cx.database().protocol.free_stray(cx, &mut round, (address, word));
    let is_free = cx.port.execute(&mut round).await.is_ok();
    cx.metrics.recovery(RecoveryEvent::StrayMet);
    is_free
}

/// Adds the verb that takes a stray away.
pub(crate) fn plan_free(cx: &Context, round: &mut Round, (address, word): (Address, u64)) {
    let target = cx.groups.primary(address);
    round.cas(target, word, 0);
}
