//! Windows and waits. An exploration has no clock, so windows and waits are its only aspect of time.
//!
//! Invariant: consider waits that began after a window opened and ended before the window closes. In
//! a chain of waits, each wait begins after the end of the previous wait. If the lengths of such a
//! chain add up to the window's lease, no actor can find the window shorter than the lease. Otherwise
//! the actor may find the window shorter than the lease. An actor may always find a window longer
//! than its lease. For each open window the explorer keeps the length of the longest such chain of
//! waits. For each wait that has begun, the explorer keeps the windows that were open at the wait's
//! beginning. With each of these windows it keeps the chain that the window had seen at that time.
//! Because of these chains, the lengths of waits that overlap are not added up.
//!
//! The opening and closing of a window and the beginning and end of a wait are separate steps. The
//! order of two of these steps matters only in three cases:
//! - the opening of a window and the beginning of a wait: the order decides whether that wait counts in
//!   that window;
//! - the beginning of one wait and the end of another: the order decides whether one wait follows the
//!   other;
//! - the end of a wait and the closing of a window.
//!
//! The explorer explores only the orders that forbid the fewest answers.
//! `docs/design/0011-explorer.md` gives the reason for this rule.

use super::config::Planted;
use super::hash::{Digest, chain, mix};
use super::machine::{Machine, Status};
use super::trace::What;
use super::transition::Transition;
use std::task::Poll;

/// The step of time that a coroutine requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    Open,
    Close { lease_ns: u64 },
    Begin,
    End { length_ns: u64 },
}

/// The possible steps of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimeStep {
    Open,
    Shorter,
    Longer,
    Begin,
    End,
}

/// The effect of a transition on windows and waits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct TimeFootprint {
    opened: bool,
    closed: bool,
    began: bool,
    ended: bool,
}

impl TimeFootprint {
    /// The footprint of a transition without a step of time.
    pub(crate) const NONE: TimeFootprint =
        TimeFootprint { opened: false, closed: false, began: false, ended: false };

    /// The footprint of a transition with all possible steps of time.
    pub(crate) const ALL: TimeFootprint =
        TimeFootprint { opened: true, closed: true, began: true, ended: true };

    /// Returns whether a wait has begun. The explorer must not move the beginning of a wait to a
    /// later time.
    pub(crate) fn has_begun(self) -> bool {
        self.began
    }

    pub(crate) fn join(&mut self, other: TimeFootprint) {
        self.opened |= other.opened;
        self.closed |= other.closed;
        self.began |= other.began;
        self.ended |= other.ended;
    }

    /// Returns whether the order of two transitions with these footprints may matter.
    #[inline]
    pub(crate) fn meets(self, other: TimeFootprint) -> bool {
        let one_way = |a: TimeFootprint, b: TimeFootprint| {
            a.opened && b.began || a.began && b.ended || a.ended && b.closed
        };
        one_way(self, other) || one_way(other, self)
    }
}

/// One coroutine's window and wait.
#[derive(Clone, Default, Debug)]
struct Of {
    asked: Option<Asked>,
    answered: Option<TimeStep>,
    /// The length of the longest chain of waits that the coroutine's window has seen. `None` means that
    /// no window is open.
    window_ns: Option<u64>,
    /// The windows that were open when the coroutine's wait began and still are open. Each entry has
    /// the window's actor and the longest chain that the window had seen when the wait began.
    wait: Vec<(u8, u64)>,
}

/// The windows and waits of all actors.
#[derive(Default, Debug)]
pub(crate) struct Time {
    of: Vec<Of>,
    planted: Option<Planted>,
}

impl Time {
    /// Removes all actors.
    pub(crate) fn reset(&mut self, planted: Option<Planted>) {
        self.of.clear();
        self.planted = planted;
    }

    /// Adds an actor.
    pub(crate) fn admit(&mut self) {
        self.of.push(Of::default());
    }

    fn has(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    fn at(&mut self, actor: u8) -> &mut Of {
        &mut self.of[usize::from(actor)]
    }

    /// Records that an actor requests a step of time.
    pub(crate) fn ask(&mut self, actor: u8, asked: Asked) {
        self.at(actor).asked = Some(asked);
    }

    /// Returns the steps that may answer an actor's request.
    pub(crate) fn steps_of(&self, actor: usize) -> impl Iterator<Item = TimeStep> {
        let (first, second) = match self.of[actor].asked {
            None => (None, None),
            Some(Asked::Open) => (Some(TimeStep::Open), None),
            Some(Asked::Begin) => (Some(TimeStep::Begin), None),
            Some(Asked::End { .. }) => (Some(TimeStep::End), None),
            Some(Asked::Close { lease_ns }) => {
                let may_be_shorter = self.may_be_shorter(actor, lease_ns);
                (Some(TimeStep::Longer), may_be_shorter.then_some(TimeStep::Shorter))
            }
        };
        first.into_iter().chain(second)
    }

    fn may_be_shorter(&self, actor: usize, lease_ns: u64) -> bool {
        let seen_ns = self.of[actor].window_ns.unwrap_or(u64::MAX);
        seen_ns < lease_ns || self.has(Planted::WaitsForgotten)
    }

    /// Returns the actor that waits for the answer whether its window was shorter than its lease.
    pub(crate) fn closing(&self) -> Option<u8> {
        let is_closing = |of: &Of| matches!(of.asked, Some(Asked::Close { .. }));
        self.of.iter().position(is_closing).map(|actor| actor as u8)
    }

    /// Returns whether the actor has requested a step of time.
    pub(crate) fn is_asked(&self, actor: u8) -> bool {
        self.of[usize::from(actor)].asked.is_some()
    }

    /// Takes a step of time. Returns the footprint of the step.
    pub(crate) fn take(&mut self, actor: u8, step: TimeStep) -> TimeFootprint {
        let none = TimeFootprint::NONE;
        let asked = self.at(actor).asked.take().expect(
            "the actor asked for the step that is \
                                                        taken",
        );
        self.at(actor).answered = Some(step);
        match step {
            TimeStep::Open => {
                self.close(actor);
                self.at(actor).window_ns = Some(0);
                TimeFootprint { opened: true, ..none }
            }
            TimeStep::Shorter | TimeStep::Longer => {
                self.close(actor);
                TimeFootprint { closed: true, ..none }
            }
            TimeStep::Begin => {
                self.at(actor).wait = self.open_windows();
                TimeFootprint { began: true, ..none }
            }
            TimeStep::End => {
                let Asked::End { length_ns } = asked else {
                    unreachable!(
                        "only an actor that \
                    asked for an end takes it"
                    )
                };
                let counted = !self.at(actor).wait.is_empty();
                self.end(actor, length_ns);
                TimeFootprint { ended: counted, ..none }
            }
        }
    }

    fn open_windows(&self) -> Vec<(u8, u64)> {
        let all = self.of.iter().enumerate();
        all.filter_map(|(actor, of)| of.window_ns.map(|ns| (actor as u8, ns))).collect()
    }

    /// Closes the window of an actor, so later waits do not count in the window.
    fn close(&mut self, actor: u8) {
        self.at(actor).window_ns = None;
        self.of.iter_mut().for_each(|of| of.wait.retain(|(window, _)| *window != actor));
    }

    fn end(&mut self, actor: u8, length_ns: u64) {
        let mut wait = std::mem::take(&mut self.at(actor).wait);
        if self.has(Planted::BeginningsForgotten) {
            wait = self.open_windows();
        }
        for (window, before_ns) in wait {
            let planted_sum = self.has(Planted::OverlapsForgotten);
            let seen_ns =
                self.at(window).window_ns.as_mut().expect("a wait lists open windows only");
            let before_ns = if planted_sum { *seen_ns } else { before_ns };
            *seen_ns = before_ns.saturating_add(length_ns).max(*seen_ns);
        }
    }

    /// Removes the window and the wait of an actor that the explorer will never poll again.
    pub(crate) fn leave(&mut self, actor: u8) {
        self.close(actor);
        *self.at(actor) = Of::default();
    }

    /// Returns whether an actor's step is taken without a choice. The explorer opens a window without
    /// a choice if no other actor may begin a wait, because then no actor can observe when the window
    /// opens. The explorer always begins a wait without a choice, because a later beginning leads to
    /// nothing new.
    fn is_at_once(&self, actor: u8, others_begin: bool) -> bool {
        let of = &self.of[usize::from(actor)];
        match of.asked {
            Some(Asked::Open) => !others_begin,
            Some(Asked::Begin) => true,
            Some(Asked::End { .. }) => of.wait.iter().all(|(window, _)| *window == actor),
            Some(Asked::Close { .. }) | None => false,
        }
    }

    /// Returns the digest of open windows, begun waits and answers that no coroutine has fetched.
    pub(crate) fn digest(&self) -> Digest {
        let mut sum: Digest = 0;
        for (actor, of) in self.of.iter().enumerate() {
            let place = (actor as u64) << 32 | 0x71e << 16;
            if let Some(answer) = of.answered {
                sum = sum.wrapping_add(mix(place | 1, answer as u64));
            }
            if let Some(seen_ns) = of.window_ns {
                let seen_ns = if self.has(Planted::ChainsForgotten) { 0 } else { seen_ns };
                sum = sum.wrapping_add(mix(place | 2, seen_ns));
            }
            if !of.wait.is_empty() && !self.has(Planted::OpenForgotten) {
                let open = of.wait.iter();
                let open = open.fold(0, |all, (window, ns)| chain(all, mix((*window).into(), *ns)));
                sum = sum.wrapping_add(chain(mix(place | 3, 0), open));
            }
        }
        sum
    }
}

impl Machine {
    /// Records that the coroutine in this poll requests a step of time. Returns the answer if the step
    /// has been taken.
    pub(crate) fn ask_time(&mut self, asked: Asked) -> Poll<bool> {
        let Some(actor) = self.current.filter(|_| !self.is_detached) else {
            return Poll::Ready(false);
        };
        if let Some(answer) = self.time.at(actor).answered.take() {
            self.observe(mix(0x71e, answer as u64));
            return Poll::Ready(answer == TimeStep::Shorter);
        }
        let is_at_once =
            matches!(asked, Asked::Close { lease_ns: 0 } | Asked::End { length_ns: 0 });
        if is_at_once {
            return Poll::Ready(false);
        }
        self.time.ask(actor, asked);
        self.polled.waits = true;
        Poll::Pending
    }

    /// Takes a step of time.
    pub(crate) fn take_time(&mut self, actor: u8, step: TimeStep) {
        let asked = self.time.at(actor).asked;
        let did = self.time.take(actor, step);
        self.footprint.actor(1 << actor);
        if !self.config.reduction.has(Planted::TimeForgotten) {
            self.footprint.time.join(did);
        }
        match step {
            TimeStep::Open => self.sharing.open_window(actor),
            TimeStep::Begin => self.sharing.begin_wait(actor),
            _ => {}
        }
        let what = match asked {
            Some(Asked::Close { lease_ns }) => {
                What::WindowClosed { lease_ns, is_shorter: step == TimeStep::Shorter }
            }
            Some(Asked::End { length_ns }) => What::WaitEnded { length_ns },
            Some(Asked::Begin) => What::WaitBegan,
            Some(Asked::Open) | None => What::WindowOpened,
        };
        self.note(Some(actor), what);
        let state = &mut self.actors[usize::from(actor)];
        if matches!(state.status, Status::Waiting | Status::AtGate) {
            state.status = Status::Ready;
        }
    }

    /// Lists the steps of time that may be taken.
    pub(crate) fn time_enabled(&self, list: &mut Vec<Transition>) {
        for actor in 0..self.actors.len() {
            self.time_steps(actor as u8, |transition| list.push(transition));
        }
    }

    /// Calls `each` with each step of time that one actor may take.
    pub(crate) fn time_steps(&self, actor: u8, mut each: impl FnMut(Transition)) {
        for step in self.time.steps_of(actor.into()) {
            each(Transition::Time { actor, step });
        }
    }

    /// Returns a step of time that is taken without a choice.
    pub(crate) fn time_at_once(&self) -> Option<Transition> {
        let alive = self.alive();
        (0..self.actors.len() as u8).find_map(|actor| {
            if !self.time.is_asked(actor) || self.may_ask(actor) {
                return None;
            }
            let forgets = self.config.reduction.has(Planted::WaitersForgotten);
            let others_begin = !forgets && self.sharing.begins_waits(alive & !(1 << actor));
            let step = self.time.steps_of(actor.into()).next()?;
            let is_at_once = self.time.is_at_once(actor, others_begin);
            is_at_once.then_some(Transition::Time { actor, step })
        })
    }
}
