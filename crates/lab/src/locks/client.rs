//! Clients that replay a trace, and the thread that runs them.
//!
//! Invariants: the clients of one machine of the trace take its transactions in the order of the trace, each
//! transaction once, and begin again after the last one. A client requests the locks of a transaction one after
//! the other, holds all of them while it works, and then releases them. The work occupies the client's core, so no
//! other client of the core runs meanwhile. Source: `delay` spins in the public code of Zhang, Cheng, Chen, Chen,
//! OSDI 2024. A client whose requests were all granted at once lets the others run before its next transaction:
//! otherwise local locks would keep a core for ever. A request that the service cannot serve ends the run with its
//! reason ([`Tally::stop`]). Clients skip transactions without requests, which the public traces do not have.

use super::TRANSACTION_MAX_NS;
use super::tally::Tally;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use tarn_fabric::backend::Cost;
use tarn_fabric::clock::Nanos;
use tarn_fabric::port::Port;
use tarn_locks::service::{Grant, LockService, Patience, Refusal};
use tarn_locks::trace::{Trace, Transaction, Wanted};
use tarn_locks::value::Machine;

/// A client's coroutine.
pub(crate) type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// The transactions of a trace, by machine.
pub(crate) struct Feed {
    trace: Rc<Trace>,
    /// For each machine of the trace the places of its transactions, and the next one.
    places: Vec<(Vec<u32>, Cell<usize>)>,
}

impl Feed {
    /// Sorts a trace by its machines.
    pub(crate) fn new(trace: &Rc<Trace>) -> Feed {
        let mut places: Vec<(Vec<u32>, Cell<usize>)> = Vec::new();
        let with_requests =
            trace.transactions().enumerate().filter(|(_, it)| !it.wanted.is_empty());
        for (at, it) in with_requests {
            let machine = usize::from(it.machine.0 - 1);
            if places.len() <= machine {
                places.resize(machine + 1, (Vec::new(), Cell::new(0)));
            }
            places[machine].0.push(at as u32);
        }
        Feed { trace: Rc::clone(trace), places }
    }

    /// Returns a machine's next transaction.
    fn next(&self, machine: Machine) -> Transaction<'_> {
        let (places, next) = &self.places[usize::from(machine.0 - 1)];
        let at = next.get();
        next.set((at + 1) % places.len());
        self.trace.transaction(places[at] as usize)
    }
}

/// Waits until a time has passed; other clients of the thread run meanwhile.
#[cfg(test)]
pub(crate) async fn rest(port: &Port, nanos: u64) {
    let end = port.now() + Nanos(nanos);
    poll_fn(|_| if port.now() >= end { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Lets the thread handle its mail and run its other clients.
async fn give_way() {
    let mut has_given_way = false;
    poll_fn(|_| match std::mem::replace(&mut has_given_way, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// Requests a lock. Returns the answer, and whether the request waited for it.
async fn acquire<S: LockService>(
    service: &S,
    wanted: Wanted,
    patience: Patience,
) -> (Result<Grant, Refusal>, bool) {
    let mut has_waited = false;
    let mut answer = pin!(service.acquire(wanted.lock(), wanted.mode(), patience));
    let answer = poll_fn(|context| {
        let polled = answer.as_mut().poll(context);
        has_waited |= polled.is_pending();
        polled
    });
    (answer.await, has_waited)
}

/// One client: replays transactions until the run ends.
pub(crate) async fn replay<S: LockService>(
    service: Rc<S>,
    port: Port,
    (feed, machine): (Rc<Feed>, Machine),
    work_ns: u64,
    tally: Rc<Tally>,
) {
    let mut held: Vec<Grant> = Vec::new();
    loop {
        let it = feed.next(machine);
        let began = port.now();
        let (mut has_timed_out, mut has_waited) = (false, false);
        for wanted in it.wanted {
            let asked = port.now();
            let left = (began + Nanos(TRANSACTION_MAX_NS) - asked).0;
            let (answer, waited) = acquire(&*service, *wanted, Patience::Nanos(left)).await;
            has_waited |= waited;
            match answer {
                Ok(grant) => {
                    held.push(grant);
                    tally.granted(port.now(), port.now() - asked);
                }
                Err(Refusal::TimedOut) => has_timed_out = true,
                Err(refusal) => {
                    let allowed = "requests that the service can grant";
                    return tally.stop("refusal of a request of the trace", refusal, allowed);
                }
            }
            if has_timed_out {
                break;
            }
        }
        if !has_timed_out && work_ns > 0 {
            port.charge(Cost::WorkNanos(work_ns));
        }
        held.drain(..).for_each(|grant| service.release(grant));
        tally.ended(it.kind, port.now() - began, has_timed_out);
        if !has_waited {
            give_way().await;
        }
    }
}

/// The shortest time that a clock shows.
const MOMENT: Nanos = Nanos(1);

/// One thread: handles its mail, and runs its clients in turn. It looks at its mail after each piece of work, so
/// that no grant waits behind the work of several clients. Returns when all clients have ended; a thread without
/// clients serves until the run ends.
pub(crate) async fn attend<S: LockService>(service: Rc<S>, port: Port, mut tasks: Vec<Task<'_>>) {
    let has_clients = !tasks.is_empty();
    let mut next = 0;
    loop {
        let mut has_worked = service.poll();
        poll_fn(|context| {
            // Clients that only look at their requests cost nothing.
            for _ in 0..tasks.len() {
                next %= tasks.len().max(1);
                let began = port.now();
                match tasks[next].as_mut().poll(context) {
                    Poll::Ready(()) => drop(tasks.swap_remove(next)),
                    Poll::Pending => next += 1,
                }
                if port.now() > began {
                    has_worked = true;
                    break;
                }
            }
            Poll::Ready(())
        })
        .await;
        if has_clients && tasks.is_empty() {
            return;
        }
        match has_worked {
            // The next turn begins when this one's work is done.
            true => port.sleep(MOMENT).await,
            false => port.yield_now().await,
        }
    }
}
