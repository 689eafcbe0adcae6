//! Coroutines that can die with their compute node.
//!
//! Invariant: a coroutine of a node that has stopped is never polled again, and is not dropped before the
//! run is over and its access is gone: it does nothing any more, not even what a dropped transaction
//! does. Which phase of the protocol each was in is known at every moment.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Waiting, Poll};
use tarn_engine::context::Context;
use tarn_fabric::address::NodeId;
use tarn_sim::scheduler::Scheduler;

/// A coroutine.
type Coroutine<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
/// The coroutines of the dead.
pub(super) type Graveyard<'a> = Rc<RefCell<Vec<Coroutine<'a>>>>;

/// The phase of a coordinator's transaction; `None`: between two, or executing.
pub(super) type PhaseCell = Rc<Cell<Option<usize>>>;

/// One life of a compute node.
pub(super) struct Life {
    pub(super) id: NodeId,
    has_stopped: Cell<bool>,
    /// Of its coordinators that have not ended.
    phases: RefCell<Vec<PhaseCell>>,
}

impl Life {
    pub(super) fn new(id: NodeId) -> Rc<Life> {
        Rc::new(Life { id, has_stopped: Cell::new(false), phases: RefCell::default() })
    }

    /// Whether its threads have stopped.
    pub(super) fn has_stopped(&self) -> bool {
        self.has_stopped.get()
    }

    /// Its threads stop.
    pub(super) fn stop(&self) {
        self.has_stopped.set(true);
    }

    /// Where each of its coordinators is.
    pub(super) fn phases(&self) -> Vec<Option<usize>> {
        self.phases.borrow().iter().map(|phase| phase.get()).collect()
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
        self.add(life, cx, None, coroutine);
    }

    /// A coordinator, whose phase is watched.
    pub(super) fn spawn_coordinator(
        &mut self,
        life: &Rc<Life>,
        cx: &Rc<Context>,
        phase: &PhaseCell,
        coroutine: impl Future<Output = ()> + 'a,
    ) {
        self.add(life, cx, Some(Rc::clone(phase)), coroutine);
    }

    fn add(
        &mut self,
        life: &Rc<Life>,
        cx: &Rc<Context>,
        phase: Option<PhaseCell>,
        coroutine: impl Future<Output = ()> + 'a,
    ) {
        let mortal = Mortal {
            inner: Some(Box::pin(coroutine)),
            life: Rc::clone(life),
            cx: Rc::clone(cx),
            phase,
            graveyard: Rc::clone(&self.graveyard),
        };
        self.scheduler.spawn(&cx.port, mortal);
    }
}

/// See the module's text.
struct Mortal<'a> {
    /// `None`: buried.
    inner: Option<Coroutine<'a>>,
    life: Rc<Life>,
    cx: Rc<Context>,
    phase: Option<PhaseCell>,
    graveyard: Graveyard<'a>,
}

impl Future for Mortal<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, waiting: &mut Waiting<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.life.has_stopped.get() {
            this.graveyard.borrow_mut().extend(this.inner.take());
            return Poll::Ready(());
        }
        let Some(inner) = &mut this.inner else { return Poll::Ready(()) };
        let (entered, ended) = (this.cx.metrics.phases_entered(), this.cx.metrics.tries_ended());
        let polled = inner.as_mut().poll(waiting);
        if let Some(phase) = &this.phase {
            let metrics = &this.cx.metrics;
            if metrics.phases_entered() != entered {
                phase.set(Some(metrics.last_phase()));
            } else if metrics.tries_ended() != ended {
                phase.set(None);
            }
        }
        polled
    }
}
