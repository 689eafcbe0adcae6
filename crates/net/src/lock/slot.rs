//! A request that waits, and the task or thread that waits for it.
//!
//! Invariant: an outcome is set once and taken once.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Wake, Waker};
use std::thread::Thread;
use tarn_locks::service::{Grant, Refusal};
use tarn_locks::value::{LockId, Mode, RequestId};

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) lock: LockId,
    pub(crate) mode: Mode,
    /// It ends when it is known to wait.
    pub(crate) is_try: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    outcome: Option<Result<Grant, Refusal>>,
    is_over: bool,
    request: Option<RequestId>,
    waker: Option<Waker>,
}

impl Slot {
    pub(crate) fn new(lock: LockId, mode: Mode, is_try: bool) -> Arc<Slot> {
        Arc::new(Slot { lock, mode, is_try, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with a slot locked")
    }

    /// The request's name in this life of the machine.
    pub(crate) fn request(&self) -> Option<RequestId> {
        self.state().request
    }

    pub(crate) fn set_request(&self, request: Option<RequestId>) {
        self.state().request = request;
    }

    /// Whether there is no outcome yet, and the caller still waits.
    pub(crate) fn waits(&self) -> bool {
        !self.state().is_over
    }

    /// Sets the outcome and wakes the caller. Returns whether the caller waited.
    pub(crate) fn end(&self, outcome: Result<Grant, Refusal>) -> bool {
        let mut state = self.state();
        if state.is_over {
            return false;
        }
        (state.is_over, state.outcome) = (true, Some(outcome));
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        true
    }

    /// The outcome, if there is one.
    pub(crate) fn take(&self) -> Option<Result<Grant, Refusal>> {
        self.state().outcome.take()
    }

    /// Sets the waker of an outcome that is still to come. Returns the outcome if it has come.
    pub(crate) fn take_or_wait(&self, waker: &Waker) -> Option<Result<Grant, Refusal>> {
        let mut state = self.state();
        let outcome = state.outcome.take();
        if outcome.is_none() && !state.waker.as_ref().is_some_and(|it| it.will_wake(waker)) {
            state.waker = Some(waker.clone());
        }
        outcome
    }

    /// Sets the waker.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        self.state().waker = Some(waker.clone());
    }

    /// Wakes the caller although there is no outcome. Returns whether the caller waits.
    pub(crate) fn nudge(&self) -> bool {
        let state = self.state();
        let waker = state.waker.clone().filter(|_| !state.is_over);
        drop(state);
        waker.map(Waker::wake).is_some()
    }

    /// The caller does not wait any more. Returns an outcome that it has not taken.
    pub(crate) fn close(&self) -> Option<Result<Grant, Refusal>> {
        let mut state = self.state();
        state.is_over = true;
        state.outcome.take()
    }
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static WAKER: Waker = Waker::from(Arc::new(Unpark(std::thread::current())));
}

/// The waker of this thread.
pub(crate) fn thread_waker() -> Waker {
    WAKER.with(Waker::clone)
}
