//! Makes coroutines that stop when their compute node dies.
//!
//! Invariant: after its node has died, a coroutine is not polled again. The state of a dead
//! coroutine is not dropped before the graveyard is dropped, because a process that dies runs no
//! destructors.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Waiting, Poll};
use tarn_engine::requests::serve;
use tarn_engine::site::Context;
use tarn_sim::fabric::SimFabric;
use tarn_sim::scheduler::Scheduler;

/// A coroutine in the form in which the scheduler and the graveyard keep it.
type Coroutine<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
/// The graveyard keeps the coroutines of dead nodes.
pub(crate) type Graveyard<'a> = Rc<RefCell<Vec<Coroutine<'a>>>>;

/// A coroutine that stops when its compute node dies.
struct Mortal<'a> {
    /// The coroutine itself; `None` once the coroutine is in the graveyard.
    body: Option<Coroutine<'a>>,
    is_dead: Rc<Cell<bool>>,
    graveyard: Graveyard<'a>,
}

impl Future for Mortal<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, waiting: &mut Waiting<'_>) -> Poll<()> {
        if self.is_dead.get() {
            let body = self.body.take();
            self.graveyard.borrow_mut().extend(body);
            return Poll::Ready(());
        }
        let body = self.body.as_mut().expect("not polled after its end");
        body.as_mut().poll(waiting)
    }
}

/// A scheduler of mortal coroutines, and the graveyard of the dead coroutines.
pub(crate) struct Lives<'a> {
    pub(crate) scheduler: Scheduler<'a>,
    pub(crate) graveyard: Graveyard<'a>,
}

impl<'a> Lives<'a> {
    /// Makes a scheduler without coroutines.
    pub(crate) fn new(fabric: &SimFabric) -> Lives<'a> {
        Lives { scheduler: Scheduler::new(fabric), graveyard: Graveyard::default() }
    }

    /// Adds a coroutine to a thread; the coroutine dies when `is_dead` becomes true.
    pub(crate) fn spawn(
        &mut self,
        is_dead: &Rc<Cell<bool>>,
        cx: &Context,
        body: impl Future<Output = ()> + 'a,
    ) {
        let (is_dead, graveyard) = (Rc::clone(is_dead), Rc::clone(&self.graveyard));
        let mortal = Mortal { body: Some(Box::pin(body)), is_dead, graveyard };
        self.scheduler.spawn(&cx.port, mortal);
    }

    /// Lets the thread answer requests of other threads, if the protocol sends requests, until
    /// `is_over` is true and the thread has no coordinators.
    pub(crate) fn serve(
        &mut self,
        is_dead: &Rc<Cell<bool>>,
        cx: &Rc<Context>,
        is_over: impl Fn() -> bool + 'a,
    ) {
        if cx.answers() {
            let serving = Rc::clone(cx);
            self.spawn(is_dead, cx, async move {
                serve::run(&serving, || is_over() && !serving.has_coordinators()).await;
            });
        }
    }
}
