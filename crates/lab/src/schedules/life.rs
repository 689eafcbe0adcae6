//! Coroutines that can die with their compute node.
//!
//! Invariant: a coroutine of a node that has stopped is never polled again, and is not dropped before the
//! run is over and its access is gone: it does nothing any more, not even what a dropped transaction
//! does. Which phase of the protocol each was in is known at every moment, and of which phases there are
//! rounds on their way that nobody waits for.

use crate::harness::mortal::{Coroutine, Graveyard, Mortal};
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Waiting, Poll};
use tarn_engine::site::Context;
use tarn_fabric::address::NodeId;
use tarn_fabric::backend::Endpoint;
use tarn_sim::fabric::SimFabric;
use tarn_sim::scheduler::Scheduler;

/// The phase of a coordinator's transaction; `None`: between two, or executing.
pub(super) type PhaseCell = Rc<Cell<Option<usize>>>;

/// One life of a compute node.
pub(super) struct Life {
    pub(super) id: NodeId,
    has_stopped: Rc<Cell<bool>>,
    /// Of its coordinators that have not ended.
    phases: RefCell<Vec<PhaseCell>>,
    left_behind: RefCell<Vec<LeftBehind>>,
    fabric: SimFabric,
}

/// A round that nobody waits for.
struct LeftBehind {
    thread: Endpoint,
    phase: usize,
    number: u64,
}

impl Life {
    pub(super) fn new(id: NodeId, fabric: &SimFabric) -> Rc<Life> {
        Rc::new(Life {
            id,
            has_stopped: Rc::default(),
            phases: RefCell::default(),
            left_behind: RefCell::default(),
            fabric: fabric.clone(),
        })
    }

    /// Whether its threads have stopped.
    pub(super) fn has_stopped(&self) -> bool {
        self.has_stopped.get()
    }

    /// Its threads stop.
    pub(super) fn stop(&self) {
        self.has_stopped.set(true);
    }

    /// Where each of its coordinators is, and where transactions are that have rounds on their way and that
    /// nobody waits for any more.
    pub(super) fn phases(&self) -> Vec<Option<usize>> {
        let mut all: Vec<Option<usize>> =
            self.phases.borrow().iter().map(|phase| phase.get()).collect();
        let left_behind = self.left_behind.borrow();
        let on_its_way = left_behind.iter().filter(|it| self.is_on_its_way(it));
        all.extend(on_its_way.map(|it| Some(it.phase)));
        all
    }

    fn is_on_its_way(&self, it: &LeftBehind) -> bool {
        self.fabric.detached_in_flight(it.thread).contains(&it.number)
    }

    /// A poll of a coordinator of `thread` has entered `phase` and does not wait in it: the rounds that are
    /// new are of that phase. Whether there are any.
    fn leave_behind(&self, thread: Endpoint, phase: usize) -> bool {
        let on_their_way = self.fabric.detached_in_flight(thread);
        let left_behind = &mut *self.left_behind.borrow_mut();
        left_behind.retain(|it| it.thread != thread || on_their_way.contains(&it.number));
        let before = left_behind.len();
        let is_known = |all: &[LeftBehind], number: u64| all.iter().any(|it| it.number == number);
        for number in on_their_way {
            if !is_known(&left_behind[..before], number) {
                left_behind.push(LeftBehind { thread, phase, number });
            }
        }
        left_behind.len() > before
    }

    /// How many coordinators it has.
    pub(super) fn coordinators(&self) -> usize {
        self.phases.borrow().len()
    }

    /// A coordinator of it begins.
    pub(super) fn coordinator(&self) -> PhaseCell {
        let phase = PhaseCell::default();
        self.phases.borrow_mut().push(Rc::clone(&phase));
        phase
    }

    /// It has ended.
    pub(super) fn end(&self, phase: &PhaseCell) {
        self.phases.borrow_mut().retain(|other| !Rc::ptr_eq(other, phase));
    }
}

/// Adds coroutines that can die.
pub(super) struct Lives<'s, 'a> {
    pub(super) scheduler: &'s mut Scheduler<'a>,
    pub(super) graveyard: Graveyard<'a>,
}

impl<'a> Lives<'_, 'a> {
    /// One that looks after others.
    pub(super) fn spawn(
        &mut self,
        life: &Rc<Life>,
        cx: &Rc<Context>,
        coroutine: impl Future<Output = ()> + 'a,
    ) {
        self.scheduler.spawn(&cx.port, Mortal::new(coroutine, &life.has_stopped, &self.graveyard));
    }

    /// A coordinator, whose phase is watched.
    pub(super) fn spawn_coordinator(
        &mut self,
        life: &Rc<Life>,
        cx: &Rc<Context>,
        phase: &PhaseCell,
        coroutine: impl Future<Output = ()> + 'a,
    ) {
        let watched = Watched {
            inner: Box::pin(coroutine),
            life: Rc::clone(life),
            cx: Rc::clone(cx),
            phase: Rc::clone(phase),
        };
        self.spawn(life, cx, watched);
    }
}

/// A coordinator whose phase is known at every moment.
struct Watched<'a> {
    inner: Coroutine<'a>,
    life: Rc<Life>,
    cx: Rc<Context>,
    phase: PhaseCell,
}

impl Future for Watched<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, waiting: &mut Waiting<'_>) -> Poll<()> {
        let this = &mut *self;
        let (metrics, phase, inner) = (&this.cx.metrics, &this.phase, &mut this.inner);
        let (entered, ended) = (metrics.snapshot().phases, metrics.tries_ended());
        let polled = inner.as_mut().poll(waiting);
        let (entered_now, has_ended) = (metrics.snapshot().phases, metrics.tries_ended() != ended);
        if entered_now == entered {
            if has_ended {
                phase.set(None);
            }
            return polled;
        }
        let last = metrics.last_phase();
        phase.set(Some(last));
        let is_new = |it: &usize| entered_now[*it] != entered[*it];
        // A try that ended in this poll has left the phase that it came to last; a try that began may wait.
        let passed = (0..entered.len()).filter(is_new).find(|it| *it != last);
        let thread = this.cx.port.endpoint();
        match passed {
            Some(passed) => drop(this.life.leave_behind(thread, passed)),
            None if has_ended && this.life.leave_behind(thread, last) => phase.set(None),
            None => {}
        }
        polled
    }
}
