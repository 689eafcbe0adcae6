//! Windows and waits: the part of time that remains where there is no clock.
//!
//! Invariant: consider waits that began after a window opened and ended before it closes, one behind
//! the other. Unless such waits add up to the window's lease, the window may be found shorter than the
//! lease. It may always be found longer. For each open window the longest such chain is kept. For each
//! wait that has begun, the windows open at its beginning are kept, with the chains that they had seen
//! then. So waits that overlap do not add up.
//!
//! Opening, closing, beginning and ending are steps of their own. Their order matters in three cases
//! only:
//! - an opening and a beginning: whether that wait counts in that window;
//! - a beginning and an end: whether one wait is behind the other;
//! - an end and a closing.
//!
//! Among these orders only those that forbid the fewest answers are explored; see
//! `docs/design/0011-explorer.md`.

use super::config::Planted;
use super::hash::{Digest, chain, mix};
use super::machine::{Machine, Status};
use super::trace::What;
use super::transition::Transition;
use std::task::Poll;

/// The step that a coroutine asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    Open,
    Close { lease_ns: u64 },
    Begin,
    End { length_ns: u64 },
}

/// The possible steps.
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
    /// The footprint of no step.
    pub(crate) const NONE: TimeFootprint =
        TimeFootprint { opened: false, closed: false, began: false, ended: false };

    /// The footprint of all possible steps.
    pub(crate) const ALL: TimeFootprint =
        TimeFootprint { opened: true, closed: true, began: true, ended: true };

    /// Whether a wait has begun. A beginning may not be moved to later.
    pub(crate) fn has_begun(self) -> bool {
        self.began
    }

    pub(crate) fn join(&mut self, other: TimeFootprint) {
        self.opened |= other.opened;
        self.closed |= other.closed;
        self.began |= other.began;
        self.ended |= other.ended;
    }

    /// Whether the order of the two may matter.
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
    /// The longest chain of waits that its window has seen; `None` if no window is open.
    window_ns: Option<u64>,
    /// The windows that were open when its wait began and still are, by actor, each with the longest
    /// chain that it had seen.
    wait: Vec<(u8, u64)>,
}

/// See the module's documentation.
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

    /// An actor joins.
    pub(crate) fn admit(&mut self) {
        self.of.push(Of::default());
    }

    fn has(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    fn at(&mut self, actor: u8) -> &mut Of {
        &mut self.of[usize::from(actor)]
    }

    /// An actor asks for a step.
    pub(crate) fn ask(&mut self, actor: u8, asked: Asked) {
        self.at(actor).asked = Some(asked);
    }

    /// The steps that may answer an actor's request.
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

    /// The actor that waits to be told whether its window was shorter.
    pub(crate) fn closing(&self) -> Option<u8> {
        let is_closing = |of: &Of| matches!(of.asked, Some(Asked::Close { .. }));
        self.of.iter().position(is_closing).map(|actor| actor as u8)
    }

    /// Whether the actor is about to take a step.
    pub(crate) fn is_asked(&self, actor: u8) -> bool {
        self.of[usize::from(actor)].asked.is_some()
    }

    /// Takes a step. Returns its footprint.
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

    /// Closes the window of an actor: no wait counts in it any more.
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

    /// An actor will never be polled again.
    pub(crate) fn leave(&mut self, actor: u8) {
        self.close(actor);
        *self.at(actor) = Of::default();
    }

    /// Whether an actor's step is taken without a choice. An opening is if no other actor may begin a
    /// wait: no actor can then tell when it is taken. A beginning always is, because taking it later
    /// leads to nothing new.
    fn is_at_once(&self, actor: u8, others_begin: bool) -> bool {
        let of = &self.of[usize::from(actor)];
        match of.asked {
            Some(Asked::Open) => !others_begin,
            Some(Asked::Begin) => true,
            Some(Asked::End { .. }) => of.wait.iter().all(|(window, _)| *window == actor),
            Some(Asked::Close { .. }) | None => false,
        }
    }

    /// The digest of open windows, begun waits and answers not yet fetched.
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
    /// The coroutine that is being polled asks for a step of time. Returns the answer if the step has
    /// been taken.
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

    /// Calls `each` for the steps of time that one actor may take.
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
