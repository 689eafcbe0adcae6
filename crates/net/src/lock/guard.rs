//! A lock that is held, and a request for one as a future.
//!
//! Invariant: a lock is released when its guard is dropped. A request is given up when its future is dropped; if the lock was granted
//! meanwhile, it is released.

use super::Handle;
use super::slot::Slot;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tarn_locks::service::{Grant, Patience, Refusal};
use tarn_locks::value::{LockId, Mode, Token};

/// A lock that is held until the guard is dropped.
#[must_use = "the lock is released when its guard is dropped"]
#[derive(Debug)]
pub struct LockGuard {
    handle: Arc<Handle>,
    grant: Grant,
    /// The caller releases the grant.
    is_passed_on: bool,
}

impl LockGuard {
    pub(super) fn new(handle: &Arc<Handle>, grant: Grant) -> LockGuard {
        LockGuard { handle: Arc::clone(handle), grant, is_passed_on: false }
    }

    /// The grant, which the caller releases.
    pub(super) fn pass_on(mut self) -> Grant {
        self.is_passed_on = true;
        self.grant
    }

    /// The lock.
    #[must_use]
    pub fn lock(&self) -> LockId {
        self.grant.lock
    }

    /// How the lock is held.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.grant.mode
    }

    /// The fencing token. A resource that checks tokens refuses a holder whose lease has ended, whatever that holder believes.
    #[must_use]
    pub fn token(&self) -> Token {
        self.grant.token
    }

    /// The grant.
    #[must_use]
    pub fn grant(&self) -> Grant {
        self.grant
    }

    /// Whether the machine's lease still runs. The answer may be wrong by the time at which the caller acts on it.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.handle.shared.is_valid(&self.grant)
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if !self.is_passed_on {
            self.handle.shared.release(&self.grant);
        }
    }
}

enum Stage {
    Begins,
    Waits(Arc<Slot>),
    Ended,
}

/// A request for a lock. Any executor may poll it.
#[must_use = "nothing is requested before the future is polled"]
pub struct Acquire {
    handle: Arc<Handle>,
    wanted: (LockId, Mode, Patience),
    stage: Stage,
}

impl std::fmt::Debug for Acquire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acquire").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

impl Acquire {
    pub(super) fn new(handle: &Arc<Handle>, wanted: (LockId, Mode, Patience)) -> Acquire {
        Acquire { handle: Arc::clone(handle), wanted, stage: Stage::Begins }
    }

    fn outcome(&mut self, context: &Context<'_>) -> Poll<Result<Grant, Refusal>> {
        let shared = &self.handle.shared;
        let outcome = match &self.stage {
            Stage::Ended => panic!("a request is polled after its end"),
            Stage::Begins => match shared.begin(self.wanted, context.waker()) {
                Ok(slot) => {
                    self.stage = Stage::Waits(slot);
                    return Poll::Pending;
                }
                Err(outcome) => outcome,
            },
            Stage::Waits(slot) => match slot.take_or_wait(context.waker()) {
                None => return Poll::Pending,
                Some(outcome) => {
                    shared.ended();
                    outcome
                }
            },
        };
        self.stage = Stage::Ended;
        Poll::Ready(outcome)
    }
}

impl Future for Acquire {
    type Output = Result<LockGuard, Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = self.outcome(context);
        outcome.map(|it| it.map(|grant| LockGuard::new(&self.handle, grant)))
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        if let Stage::Waits(slot) = &self.stage {
            self.handle.shared.abandon(slot);
        }
    }
}
