//! Revokes the access of lives that are over.
//!
//! Invariant: after a call has returned, no verb of that life will ever land at any memory node that lives.

use crate::site::Context;
use tarn_fabric::address::{NodeId, NodeSlot};
use tarn_fabric::error::FabricError;
use tarn_store::ids::Failure;

/// Revokes a life's access at every memory node that lives. After it has returned, no verb of that life will ever land.
///
/// # Errors
/// `Fenced`, if the caller's own access is gone.
pub async fn revoke_everywhere(cx: &Context, whom: NodeId) -> Result<(), Failure> {
    revoke(cx, &[whom], &cx.groups.whole().nodes()).await
}

/// Revokes the access of some lives at some memory nodes, all at once.
///
/// # Errors
/// Those of [`revoke_everywhere`].
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
