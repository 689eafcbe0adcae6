//! One incarnation of a compute node: whether its threads still run, and the phases of its coordinators'
//! transactions.
//!
//! Invariant: the protocol phase of each coordinator is known at every moment. The protocol phases of rounds in
//! flight that no coordinator awaits are known too.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use tarn_engine::site::Context;
use tarn_fabric::address::NodeId;
use tarn_fabric::backend::Endpoint;
use tarn_sim::fabric::SimFabric;

/// The phase of a coordinator's transaction. `None` means that the coordinator is between two
/// transactions, or that the transaction is executing.
pub(super) type PhaseCell = Rc<Cell<Option<usize>>>;

/// One incarnation of a compute node.
pub(super) struct Life {
    pub(super) id: NodeId,
    /// Whether the threads of this incarnation have stopped.
    pub(super) is_dead: Rc<Cell<bool>>,
    /// The phases of this incarnation's coordinators that have not ended.
    phases: RefCell<Vec<PhaseCell>>,
    left_behind: RefCell<Vec<LeftBehind>>,
    fabric: SimFabric,
}

/// A round in flight that no coroutine awaits.
struct LeftBehind {
    thread: Endpoint,
    phase: usize,
    number: u64,
}

impl Life {
    pub(super) fn new(id: NodeId, fabric: &SimFabric) -> Rc<Life> {
        Rc::new(Life {
            id,
            is_dead: Rc::default(),
            phases: RefCell::default(),
            left_behind: RefCell::default(),
            fabric: fabric.clone(),
        })
    }

    /// Returns whether the threads of this incarnation have stopped.
    pub(super) fn has_stopped(&self) -> bool {
        self.is_dead.get()
    }

    /// Returns the phase of each coordinator of this incarnation, and the phases of rounds in flight
    /// that no coroutine awaits any more.
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

    /// The caller calls this function after a poll in which a coordinator of `thread` entered `phase` and left it
    /// without waiting. The function assigns the thread's new rounds to this phase. Returns whether the thread has
    /// new rounds.
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

    /// Returns the number of coordinators of this incarnation.
    pub(super) fn coordinators(&self) -> usize {
        self.phases.borrow().len()
    }

    /// Adds a coordinator that begins in this incarnation.
    pub(super) fn coordinator(&self) -> PhaseCell {
        let phase = PhaseCell::default();
        self.phases.borrow_mut().push(Rc::clone(&phase));
        phase
    }

    /// Removes a coordinator that has ended.
    pub(super) fn end(&self, phase: &PhaseCell) {
        self.phases.borrow_mut().retain(|other| !Rc::ptr_eq(other, phase));
    }
}

/// Wraps the coroutine of a coordinator, so that the coordinator's phase is known at every moment.
pub(super) fn watched<'a>(
    (life, cx, phase): (&Rc<Life>, &Rc<Context>, &PhaseCell),
    coroutine: impl Future<Output = ()> + 'a,
) -> impl Future<Output = ()> + 'a {
    let (life, cx, phase) = (Rc::clone(life), Rc::clone(cx), Rc::clone(phase));
    let mut inner = Box::pin(coroutine);
    poll_fn(move |waiting| {
        let metrics = &cx.metrics;
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
        // If a try ended in this poll, it has left the last phase that it entered. If another try began in this poll,
        // this try may be waiting in its last phase.
        let passed = (0..entered.len()).filter(is_new).find(|it| *it != last);
        let thread = cx.port.endpoint();
        match passed {
            Some(passed) => drop(life.leave_behind(thread, passed)),
            None if has_ended && life.leave_behind(thread, last) => phase.set(None),
            None => {}
        }
        polled
    })
}
