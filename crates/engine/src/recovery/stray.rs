//! Strays: locks of a recovered life, whose transactions had written nothing.
//!
//! Invariant: a lock is taken away only by CAS of its very tag, and only if the life that the tag names is
//! recovered. Then none of that life's verbs will ever land, every transaction of it that wrote is settled,
//! and no later transaction has its tag. So a thread that meets a stray may take it away, at any time, any
//! number of times.

use crate::protocol;
use crate::site::Context;
use crate::site::metrics::RecoveryEvent;
use crate::steps::settle::is_stray;
use tarn_fabric::round::Round;

/// Takes away the lock that refused this thread's last transaction, if it is a stray, or if its transaction
/// is in doubt and this thread may settle it. Returns whether it did: then the transaction may try again at
/// once.
pub(crate) async fn free_met(cx: &Context) -> bool {
    let Some((address, word)) = cx.take_blocking_lock() else { return false };
    if !is_stray(cx, word) {
        return cx.settle_met(word).await;
    }
    let mut round = Round::new();
    protocol::of(cx).free_stray(cx, &mut round, (address, word));
    let is_free = cx.port.execute(&mut round).await.is_ok();
    cx.metrics.recovery(RecoveryEvent::StrayMet);
    is_free
}
