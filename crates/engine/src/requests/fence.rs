//! Revokes the access of ended node incarnations to memory.
//!
//! Invariant: after [`revoke_everywhere`] has returned, no verb of the revoked incarnation will ever take effect at
//! any live memory node.

use crate::site::Context;
use tarn_fabric::address::{NodeId, NodeSlot};
use tarn_fabric::error::FabricError;
use tarn_store::ids::Failure;

/// Revokes an incarnation's access at every live memory node. After this function has returned, no verb of that
/// incarnation will ever take effect.
///
/// # Errors
/// `Fenced`, if the caller's own access is revoked.
pub async fn revoke_everywhere(cx: &Context, whom: NodeId) -> Result<(), Failure> {
    revoke(cx, &[whom], &cx.groups.whole().nodes()).await
}

/// Revokes the access of some incarnations at some memory nodes, all in parallel.
///
/// # Errors
/// The same errors as [`revoke_everywhere`].
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
            // A memory node that is down executes no verb, so there the access needs no revocation.
            Ok(()) | Err(FabricError::NodeDown(_)) => {}
            Err(error) => return Err(cx.port.note_failure(error).into()),
        }
    }
    Ok(())
}
