//! Removes strays: locks of a recovered incarnation of a node, whose transactions had written nothing.
//!
//! Invariant: a stray is removed only by a CAS that expects its exact tag, and only if the incarnation that the tag
//! names is recovered. After the recovery, none of that incarnation's verbs can take effect, and each of its
//! transactions that wrote is settled. No later transaction has the same tag. So a thread that meets a stray may
//! remove it, at any time and any number of times.

use crate::protocol;
use crate::site::Context;
use crate::site::metrics::RecoveryEvent;
use crate::steps::settle::is_stray;
use tarn_fabric::round::Round;

/// Removes the lock that refused this thread's last transaction, if that lock is a stray. Otherwise the lock's
/// transaction may be in doubt. If this thread may settle that transaction, the function settles it. Returns whether
/// the lock was removed. If so, the caller's transaction may try again immediately.
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
