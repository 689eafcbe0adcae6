//! Bells, with which a coroutine waits for another coroutine. Only drivers of a simulation use bells.
//! No simulated component uses bells.
//!
//! Invariant: a ring of a bell wakes the coroutine that has waited longest for this bell. The scheduler
//! polls the woken coroutine at the same moment of virtual time as the ring. If a coroutine rings, this
//! moment is the time of the coroutine's thread. Waiting for a bell costs no virtual time.

use crate::fabric::SimFabric;
use crate::world::{Event, World};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A waiting coroutine: the number of its task, and whether a bell was rung for it.
type Waiter = (u32, Rc<Cell<bool>>);

/// A bell that one coroutine rings to wake another one.
#[derive(Clone)]
pub struct Bell {
    world: Rc<RefCell<World>>,
    waiters: Rc<RefCell<VecDeque<Waiter>>>,
}

impl SimFabric {
    /// Creates a bell with no waiting coroutine.
    pub fn bell(&self) -> Bell {
        Bell { world: Rc::clone(&self.world), waiters: Rc::default() }
    }
}

impl Bell {
    /// Waits until another coroutine rings the bell. Only a coroutine of a scheduler may call this
    /// function.
    pub fn wait(&self) -> Wait<'_> {
        Wait { bell: self, is_rung: None }
    }

    /// Wakes the coroutine that has waited longest for the bell. Returns whether any coroutine was
    /// waiting.
    pub fn ring(&self) -> bool {
        let Some((task, is_rung)) = self.waiters.borrow_mut().pop_front() else { return false };
        is_rung.set(true);
        let world = &mut *self.world.borrow_mut();
        let at_ps = world.now_of_current_ps();
        world.tasks[task as usize].wake_at_ps = at_ps;
        world.queue.push(at_ps, Event::Wake { task });
        true
    }

    /// Wakes all coroutines that wait for the bell.
    pub fn ring_all(&self) {
        while self.ring() {}
    }
}

/// The future that [`Bell::wait`] returns.
pub struct Wait<'a> {
    bell: &'a Bell,
    is_rung: Option<Rc<Cell<bool>>>,
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.is_rung.as_ref().is_some_and(|is_rung| is_rung.get()) {
            return Poll::Ready(());
        }
        let world = &mut *self.bell.world.borrow_mut();
        world.is_registered = true;
        if self.is_rung.is_none() {
            let task = world.current.expect("a scheduler is polling the coroutine");
            let is_rung = Rc::<Cell<bool>>::default();
            self.bell.waiters.borrow_mut().push_back((task, Rc::clone(&is_rung)));
            self.is_rung = Some(is_rung);
        }
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(own) = &self.is_rung {
            self.bell.waiters.borrow_mut().retain(|(_, is_rung)| !Rc::ptr_eq(is_rung, own));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Mode, SimConfig};
    use crate::profile::Profile;
    use crate::scheduler::{Ended, Scheduler};
    use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};
    use tarn_fabric::clock::Nanos;

    #[test]
    fn a_waiting_coroutine_goes_on_when_its_bell_rings_and_in_turn() {
        let fabric = SimFabric::new(&SimConfig {
            memory_nodes: 1,
            replicas: 1,
            compute_nodes: 2,
            group_bytes: 1 << 16,
            profile: Profile::load("cx3-56g").expect("embedded"),
            mode: Mode::Timed,
            seed: 1,
        })
        .expect("a cluster");
        let port =
            |slot| fabric.port(NodeId { slot: NodeSlot(slot), incarnation: Incarnation(1) }, 0, 1);
        let (one, other, bell) = (port(0), port(1), fabric.bell());
        let woken: RefCell<Vec<(u32, u64)>> = RefCell::default();
        let mut scheduler = Scheduler::new(&fabric);
        for number in 0..3 {
            let (bell, woken, one) = (&bell, &woken, &one);
            scheduler.spawn(one, async move {
                bell.wait().await;
                woken.borrow_mut().push((number, one.now().0));
            });
        }
        scheduler.spawn(&other, async {
            for _ in 0..2 {
                other.sleep(Nanos(10_000)).await;
                assert!(bell.ring());
            }
            other.sleep(Nanos(10_000)).await;
            bell.ring_all();
            assert!(!bell.ring(), "nobody is left");
        });
        assert_eq!(scheduler.run_until(Nanos(1_000_000)), Ended::Finished);
        drop(scheduler);
        let woken = woken.into_inner();
        assert_eq!(woken.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2]);
        // The coroutines wake at the moment of the ring, plus the time that switching between
        // coroutines costs.
        for (turn, (_, at_ns)) in (1..).zip(&woken) {
            assert!((turn * 10_000..turn * 10_000 + 500).contains(at_ns), "{woken:?}");
        }
    }
}
