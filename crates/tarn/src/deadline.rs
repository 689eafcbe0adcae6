//! The deadline of a call, which also covers the body of a transaction.
//!
//! Invariant: a call that ends before its first poll has failed to be ready [`POLLS`] times reads no clock. A commit
//! that has begun is never given up, so a missed deadline leaves no outcome unknown.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use tarn_engine::site::Context;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::IN_TURN;

/// Under executors that poll in turn, the number of polls between two looks at the clock. A poll takes tens of
/// nanoseconds, so the looks are microseconds apart, and most transactions end before the first look.
const POLLS: u32 = 64;

/// The deadline of a call.
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    after: Option<Nanos>,
    /// Whether the protocol lets a transaction be given up in its body.
    ends_bodies: bool,
}

/// The work that a call is doing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Phase {
    /// The call prepares a try, or pauses after one.
    #[default]
    Between,
    /// The body of the transaction runs.
    Body,
    /// The transaction commits, or pauses after a commit that was refused.
    Commit,
}

/// The course of one call.
#[derive(Default)]
pub(crate) struct Course {
    phase: Cell<Phase>,
    is_late: Cell<bool>,
}

impl Course {
    #[inline]
    pub(crate) fn set(&self, phase: Phase) {
        self.phase.set(phase);
    }

    pub(crate) fn is_in_body(&self) -> bool {
        self.phase.get() == Phase::Body
    }

    /// Begins a body. Returns whether the deadline has passed. Then the caller waits, and the call ends.
    #[inline]
    pub(crate) fn begin_is_late(&self) -> bool {
        let is_late = self.is_late.get();
        self.phase.set(if is_late { Phase::Between } else { Phase::Body });
        is_late
    }
}

impl Deadline {
    pub(crate) fn new(cx: &Rc<Context>, after: Option<Duration>) -> Deadline {
        let after = after.map(|after| Nanos(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)));
        let ends_bodies = cx.database().protocol.info().caps.survives_drops;
        Deadline { after, ends_bodies }
    }

    /// Runs the future of a call, which stays in its place, because it is large. Returns `None` if the deadline passed.
    /// Then the caller drops the future.
    #[inline]
    pub(crate) fn watch<'a, T>(
        self,
        cx: &'a Context,
        course: &'a Course,
        mut call: Pin<&'a mut impl Future<Output = T>>,
    ) -> impl Future<Output = Option<T>> {
        let (mut polls, mut start) = (0, None);
        poll_fn(move |task| {
            if let Poll::Ready(result) = call.as_mut().poll(task) {
                return Poll::Ready(Some(result));
            }
            polls += 1;
            let is_due = polls % POLLS == 0 || course.is_late.get();
            if (is_due || !std::ptr::eq(task.waker(), IN_TURN)) && self.ends(cx, course, &mut start)
            {
                return Poll::Ready(None);
            }
            Poll::Pending
        })
    }

    /// Looks at the clock. Returns whether the call ends now.
    #[cold]
    fn ends(self, cx: &Context, course: &Course, start: &mut Option<Nanos>) -> bool {
        let Some(after) = self.after else { return false };
        let now = cx.port.now();
        let start = *start.get_or_insert(now);
        if now.0.saturating_sub(start.0) <= after.0 {
            return false;
        }
        course.is_late.set(true);
        match course.phase.get() {
            Phase::Between => true,
            Phase::Body => self.ends_bodies,
            Phase::Commit => false,
        }
    }
}
