//! One transaction's locks by name, where a lock service grants them instead of the tables of compute nodes.
//!
//! Invariants: a transaction never waits for a holder. If another transaction holds a lock, the request is refused, as
//! a node's lock table refuses it; so no deadlock arises. The number of a lock is a hash of its name. Names with the
//! same number share one lock, and a transaction requests it once. A reader does not become a writer: the request is
//! refused, and the next try requests the writer's lock at once. A grant brings the timestamps of all earlier holders.
//! An expelled node ends no request. So its locks stay held until recovery has settled its transactions.

use crate::requests::lock_service::{name_of, named};
use crate::services::lock::name::{LockMode, LockName};
use crate::site::Context;
use crate::transaction::lock_set::{LockSet, Served};
use tarn_locks::client::Outcome;
use tarn_locks::value::Mode;
use tarn_store::ids::{AbortReason, Failure, Timestamp};

impl LockSet {
    /// Requests a lock from the service, unless a request of this transaction counts for it already.
    #[cold]
    pub(super) fn ask_service(&mut self, cx: &Context, name: LockName, mode: LockMode) {
        let number = cx.lock_named(name.hash());
        let is_same = |it: &&Served| it.number == number;
        let known = self.served.iter().filter(is_same).map(|it| it.mode).max();
        if known.is_some_and(|known| known < mode) {
            let names = self.served.iter().filter(is_same).map(|it| it.name.hash());
            self.not_upgraded.extend(names);
            self.refused = Some(AbortReason::LockRefused);
            return;
        }
        let mut request = 0;
        if known.is_none() {
            let wanted = if mode == LockMode::Write { Mode::Exclusive } else { Mode::Shared };
            match cx.ask_lock(number, wanted) {
                Some(asked) => request = name_of(asked),
                None => return self.refused = Some(AbortReason::LockRefused),
            }
        }
        if !self.served.iter().any(|it| it.name == name && it.mode >= mode) {
            self.served.push(Served { name, mode, number, request });
        }
    }

    /// Waits until the service has granted or refused all requests.
    ///
    /// # Errors
    /// `LockRefused`: another transaction holds a lock, or no answer came in time. `OwnerLost`: this node was expelled.
    pub(super) async fn collect_service(&mut self, cx: &Context) -> Result<(), Failure> {
        let since = cx.port.now();
        loop {
            if let Some(reason) = self.refused {
                return Err(reason.into());
            }
            if self.served_granted == self.served.len() {
                return Ok(());
            }
            cx.serve_locks();
            if self.note_served(cx) {
                continue;
            }
            let is_late = cx.locks_at_once() || cx.port.now() - since > cx.locks_patience();
            if is_late {
                self.refused = Some(AbortReason::LockRefused);
            } else if !cx.database().membership.is_member(cx.node.id) {
                self.refused = Some(AbortReason::OwnerLost);
            } else {
                cx.port.yield_now().await;
            }
        }
    }

    /// Notes whether the service has granted or refused all requests. Returns false if an answer is missing.
    fn note_served(&mut self, cx: &Context) -> bool {
        for at in self.served_granted..self.served.len() {
            let Served { number, request, .. } = self.served[at];
            if request == 0 {
                continue;
            }
            match cx.lock_outcome(named(request), number) {
                Some(Outcome::Holds(_)) => cx.hear_lock(number),
                Some(Outcome::Asked) => return false,
                Some(Outcome::Queued) | None => {
                    self.refused = Some(AbortReason::LockRefused);
                    return true;
                }
            }
        }
        self.served_granted = self.served.len();
        true
    }

    /// The mode in which the service has granted the lock of this name; `None` if it has not granted it.
    pub(super) fn is_served(&self, name: LockName) -> Option<LockMode> {
        let granted = self.served[..self.served_granted].iter();
        granted.filter(|it| it.name == name).map(|it| it.mode).max()
    }

    /// Ends all requests to the service. Locks of an expelled node stay held.
    #[cold]
    pub(super) fn release_service(&mut self, cx: &Context, committed: Option<Timestamp>) {
        self.served_granted = 0;
        if !cx.database().membership.is_member(cx.node.id) {
            return self.served.clear();
        }
        for it in self.served.drain(..).filter(|it| it.request != 0) {
            cx.tell_lock(it.number, committed);
            cx.end_lock(named(it.request), it.number);
        }
        cx.serve_locks();
    }
}
