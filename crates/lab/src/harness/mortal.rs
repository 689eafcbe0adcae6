//! A coroutine that dies with its compute node.
//!
//! Invariant: after its node has died it is not polled again, and nothing of it is dropped before the graveyard is: a process that dies
//! runs no destructors.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Waiting, Poll};

/// A coroutine.
pub(crate) type Coroutine<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
/// The coroutines of the dead.
pub(crate) type Graveyard<'a> = Rc<RefCell<Vec<Coroutine<'a>>>>;

/// See the module's text.
pub(crate) struct Mortal<'a> {
    /// `None`: buried.
    body: Option<Coroutine<'a>>,
    is_dead: Rc<Cell<bool>>,
    graveyard: Graveyard<'a>,
}

impl<'a> Mortal<'a> {
    /// One that dies when `is_dead` says so.
    pub(crate) fn new(
        body: impl Future<Output = ()> + 'a,
        is_dead: &Rc<Cell<bool>>,
        graveyard: &Graveyard<'a>,
    ) -> Mortal<'a> {
        let (is_dead, graveyard) = (Rc::clone(is_dead), Rc::clone(graveyard));
        Mortal { body: Some(Box::pin(body)), is_dead, graveyard }
    }
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
