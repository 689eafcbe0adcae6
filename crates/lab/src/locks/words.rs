//! Locks that are words of memory nodes: DSLR's tickets, a word that compare-and-swap changes, and one
//! fetch-and-add as a bound.
//!
//! Invariants: a word belongs to one lock. Tickets are served in their order. No word has tokens. A time-out cannot
//! take a ticket back, and neither can a request that is dropped: its thread passes the ticket on later. Each
//! acquire and each release takes [`super::REQUEST_NS`] of the issuing core, as for services of messages. Each further
//! look at a word, and each further swap, costs the price of a verb in the profile. The word of tickets is
//! [`TicketWord`].
//!
//! After Yoon, Chowdhury, Mozafari, "Distributed Lock Management with RDMA: Decentralization without
//! Starvation", SIGMOD 2018. Its counters are set back near their end; here a run with a lock whose counter
//! comes to its end has no result.

use super::client::Task;
use super::system::WordKind;
use super::tally::Tally;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tarn_fabric::address::{Address, GroupId, NodeSlot, Target};
use tarn_fabric::backend::Cost;
use tarn_fabric::clock::Nanos;
use tarn_fabric::port::Port;
use tarn_fabric::round::Round;
use tarn_locks::service::{Grant, LockService, Patience, Refusal};
use tarn_locks::value::{LockId, Machine, Mode, RequestId, Thread, Token};
use tarn_store::layout::{COUNT_MAX, Ticket, TicketWord};

/// The first word.
const FIRST_BYTES: u64 = 4096;
/// Bytes of a lock's word.
const WORD_BYTES: u64 = 8;
/// In a word of compare-and-swap: held exclusively. The bits above count shared holders.
const EXCLUSIVE: u64 = 1;
const ONE_SHARED: u64 = 2;

/// Returns the bytes of memory that a memory node needs for so many locks.
pub(crate) fn group_bytes(locks: u32, nodes: u16) -> u64 {
    FIRST_BYTES + u64::from(locks.div_ceil(u32::from(nodes))) * WORD_BYTES
}

/// A thread that locks words.
pub struct WordSeat {
    port: Port,
    kind: WordKind,
    locks: u32,
    nodes: u16,
    sequence: Cell<u32>,
    tally: Rc<Tally>,
    /// The work of a request, beside the profile's costs of its verb.
    work_ns: u64,
    /// Requests that have ended before their tickets were served.
    left: RefCell<Vec<Task<'static>>>,
}

/// Returns the ticket of a mode.
fn ticket_of(mode: Mode) -> Ticket {
    if mode == Mode::Exclusive { Ticket::Writer } else { Ticket::Reader }
}

async fn look(port: &Port, at: Target, tally: &Tally) -> Result<TicketWord, Refusal> {
    let mut round = Round::new();
    let seen = round.read(at, WORD_BYTES as usize);
    tally.count(|sent| sent.messages += 2);
    port.execute(&mut round).await.map_err(|_| Refusal::Unavailable)?;
    Ok(TicketWord(round.word(seen)))
}

/// Waits until a ticket is served for which no request waits any more, and lets the next one be served.
async fn pass_on(port: Port, at: Target, (ticket, came): (Ticket, TicketWord), tally: Rc<Tally>) {
    loop {
        match look(&port, at, &tally).await {
            Ok(now) if now.is_turn(ticket, came) => break,
            Ok(_) => {}
            // The lock stays held, as by the death of its holder.
            Err(_) => return,
        }
    }
    let mut round = Round::new();
    round.faa(at, ticket.goes());
    tally.count(|sent| sent.messages += 2);
    let _ = port.post_detached(&mut round);
}

impl WordSeat {
    pub(crate) fn new(
        (port, work_ns): (Port, u64),
        kind: WordKind,
        (locks, nodes): (u32, u16),
        tally: &Rc<Tally>,
    ) -> WordSeat {
        let (sequence, tally, left) = (Cell::new(0), Rc::clone(tally), RefCell::default());
        WordSeat { port, kind, locks, nodes, sequence, tally, work_ns, left }
    }

    fn work(&self) {
        self.port.charge(Cost::WorkNanos(self.work_ns));
    }

    fn word(&self, lock: LockId) -> Target {
        let node = (lock.0 % u32::from(self.nodes)) as u16;
        let offset = FIRST_BYTES + u64::from(lock.0 / u32::from(self.nodes)) * WORD_BYTES;
        Address::new(GroupId(node), offset).at(NodeSlot(node))
    }

    async fn add(&self, lock: LockId, addend: u64) -> Result<u64, Refusal> {
        let mut round = Round::new();
        let added = round.faa(self.word(lock), addend);
        self.execute(&mut round).await?;
        Ok(round.found(added))
    }

    async fn execute(&self, round: &mut Round) -> Result<(), Refusal> {
        self.tally.count(|sent| sent.messages += 2);
        self.port.execute(round).await.map_err(|_| Refusal::Unavailable)
    }

    /// Takes a ticket, and waits until all tickets before it that exclude it have ended.
    async fn take_ticket(
        &self,
        lock: LockId,
        mode: Mode,
        end: Option<Nanos>,
    ) -> Result<(), Refusal> {
        let ticket = ticket_of(mode);
        let came = TicketWord(self.add(lock, ticket.comes()).await?);
        if came.is_over(COUNT_MAX) {
            let field = format!("tickets of lock {}", lock.0);
            self.tally.stop(&field, COUNT_MAX, format!("less than {COUNT_MAX} in one run"));
            return Err(Refusal::Unavailable);
        }
        let at = self.word(lock);
        let mut waiting = Waiting { seat: self, at, taken: (ticket, came), is_served: false };
        let mut now = came;
        while !now.is_turn(ticket, came) {
            if end.is_some_and(|end| self.port.now() >= end) {
                return Err(Refusal::TimedOut);
            }
            now = look(&self.port, at, &self.tally).await?;
        }
        waiting.is_served = true;
        Ok(())
    }

    /// Changes the word until the change succeeds.
    async fn swap(&self, lock: LockId, mode: Mode, end: Option<Nanos>) -> Result<(), Refusal> {
        let mut expected = 0;
        loop {
            let new = match mode {
                Mode::Exclusive => EXCLUSIVE,
                Mode::Shared => (expected & !EXCLUSIVE) + ONE_SHARED,
            };
            let mut round = Round::new();
            let asked = if mode == Mode::Exclusive { 0 } else { expected & !EXCLUSIVE };
            let swap = round.cas(self.word(lock), asked, new);
            self.execute(&mut round).await?;
            let found = round.found(swap);
            if found == asked {
                return Ok(());
            }
            if end.is_some_and(|end| self.port.now() >= end) {
                return Err(Refusal::TimedOut);
            }
            expected = found;
        }
    }
}

/// A ticket that is not served yet. If its request ends, its thread passes it on later.
struct Waiting<'a> {
    seat: &'a WordSeat,
    at: Target,
    taken: (Ticket, TicketWord),
    is_served: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_served {
            let (port, tally) = (self.seat.port.clone(), Rc::clone(&self.seat.tally));
            let left = pass_on(port, self.at, self.taken, tally);
            self.seat.left.borrow_mut().push(Box::pin(left));
        }
    }
}

impl LockService for WordSeat {
    async fn acquire(
        &self,
        lock: LockId,
        mode: Mode,
        patience: Patience,
    ) -> Result<Grant, Refusal> {
        let locks = self.locks;
        if lock.0 >= locks {
            return Err(Refusal::OutOfRange { lock, locks });
        }
        let end = match patience {
            Patience::Try => Some(Nanos(0)),
            Patience::Nanos(nanos) => Some(self.port.now() + Nanos(nanos)),
            Patience::Forever => None,
        };
        self.work();
        let got = match self.kind {
            WordKind::Dslr => self.take_ticket(lock, mode, end).await,
            WordKind::CompareAndSwap => self.swap(lock, mode, end).await,
            WordKind::Ideal => self.add(lock, 1).await.map(|_| ()),
        };
        match got {
            Err(Refusal::TimedOut) if patience == Patience::Try => return Err(Refusal::Busy),
            got => got?,
        }
        self.sequence.set(self.sequence.get() + 1);
        let endpoint = self.port.endpoint();
        let (machine, thread) = (Machine(endpoint.node.0 + 1), Thread(endpoint.thread));
        let request = RequestId { machine, thread, seq: self.sequence.get() };
        Ok(Grant { lock, request, mode, token: Token::NONE })
    }

    fn release(&self, grant: Grant) {
        self.work();
        let is_exclusive = grant.mode == Mode::Exclusive;
        let addend = match self.kind {
            WordKind::Dslr => ticket_of(grant.mode).goes(),
            WordKind::CompareAndSwap if is_exclusive => EXCLUSIVE.wrapping_neg(),
            WordKind::CompareAndSwap => ONE_SHARED.wrapping_neg(),
            WordKind::Ideal => 1,
        };
        let mut round = Round::new();
        round.faa(self.word(grant.lock), addend);
        self.tally.count(|sent| sent.messages += 2);
        // A release that its node does not take leaves the lock held, as the death of its holder does.
        let _ = self.port.post_detached(&mut round);
    }

    fn poll(&self) -> bool {
        let began = self.port.now();
        let context = &mut Context::from_waker(Waker::noop());
        let mut left = self.left.take();
        left.retain_mut(|it| it.as_mut().poll(context) == Poll::Pending);
        self.left.borrow_mut().append(&mut left);
        self.port.now() > began
    }
}
