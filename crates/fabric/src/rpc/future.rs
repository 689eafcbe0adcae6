//! The future of a call, and the call's reply.
//!
//! Invariant: a future contains the name of a call, and borrows no state. If a caller drops the future, the call is
//! abandoned. If the abandoned call was not sent yet, it is never sent. If the abandoned call was sent, it keeps its
//! slot until the reply arrives or the deadline passes. A reply owns its bytes, and returns its buffer to the layer
//! when it is dropped.

use super::Rpc;
use super::client::CallId;
use crate::error::FabricError;
use crate::executor::pending;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Completes when the reply has arrived, or when the call has failed.
#[must_use = "dropping a call gives it up"]
pub struct CallFuture {
    rpc: Rpc,
    /// The name of the call, or the error with which the call could not start. After the caller has taken the call's
    /// result, this field is `None`.
    call: Option<Result<CallId, FabricError>>,
}

impl CallFuture {
    pub(super) fn new(rpc: Rpc, call: Result<CallId, FabricError>) -> CallFuture {
        CallFuture { rpc, call: Some(call) }
    }
}

impl Future for CallFuture {
    type Output = Result<Reply, FabricError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let result = match this.call.expect("a future is not polled after its completion") {
            Err(error) => Poll::Ready(Err(error)),
            Ok(id) => this.rpc.shared.state.borrow_mut().take_result(id),
        };
        if result.is_pending() {
            return pending(context);
        }
        this.call = None;
        result.map_ok(|bytes| Reply { bytes, rpc: this.rpc.clone() })
    }
}

impl Drop for CallFuture {
    fn drop(&mut self) {
        let Some(Ok(id)) = self.call else { return };
        // While a panic unwinds through the layer, the layer's state may already be borrowed.
        if let Ok(mut state) = self.rpc.shared.state.try_borrow_mut() {
            state.abandon(id);
        }
    }
}

/// The bytes of a reply.
pub struct Reply {
    bytes: Vec<u8>,
    rpc: Rpc,
}

impl Deref for Reply {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Ok(mut state) = self.rpc.shared.state.try_borrow_mut() {
            state.calls.keep(std::mem::take(&mut self.bytes));
        }
    }
}
