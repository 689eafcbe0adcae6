//! The state that the threads of a client share, and the ways in which they drive the socket.
//!
//! Invariants: a thread receives only while it has the inbox. The thread that waits receives for all, so that an answer needs no hop from one
//! thread to another. A thread that stops receiving while others wait wakes one of them, which receives from then on.

use super::core::{Core, LifeWord, Start};
use super::slot::{Slot, thread_waker};
use crate::os::{self, Bell};
use crate::spin::Spin;
use crate::udp::{Inbox, NAP, Socket};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use tarn_locks::service::{Grant, Patience, Refusal};
use tarn_locks::value::{LockId, Mode};

/// A client, as its threads share it.
#[derive(Debug)]
pub(crate) struct Shared {
    core: Mutex<Core>,
    inbox: Mutex<Inbox>,
    pub(crate) socket: Socket,
    pub(crate) bell: Bell,
    pub(crate) spin_ns: u64,
    spin: Spin,
    pub(crate) lease_ns: u64,
    /// Copies of the core's, for guards.
    lease_until_ns: AtomicU64,
    life: AtomicU64,
    /// Threads that wait and receive.
    pub(crate) driving: AtomicUsize,
    /// Threads that will send soon whatever is ready.
    batching: AtomicUsize,
    /// Tasks of other executors that wait.
    pub(crate) tasks: AtomicUsize,
    /// When a thread received last.
    pub(crate) drove_ns: AtomicU64,
    /// The keeper sleeps until a packet comes.
    pub(crate) is_dozing: AtomicBool,
    pub(crate) stop: AtomicBool,
    parked: Mutex<VecDeque<Arc<Slot>>>,
    parked_count: AtomicUsize,
    /// Time-outs of tasks.
    pub(crate) deadlines: Mutex<Vec<(u64, Arc<Slot>, Refusal)>>,
}

impl Shared {
    pub(crate) fn new(
        core: Core,
        socket: Socket,
        spin_ns: u64,
        lease_ns: u64,
    ) -> std::io::Result<Shared> {
        Ok(Shared {
            core: Mutex::new(core),
            inbox: Mutex::new(Inbox::new()),
            socket,
            bell: Bell::new()?,
            spin_ns,
            spin: Spin::new(spin_ns),
            lease_ns,
            lease_until_ns: AtomicU64::new(0),
            life: AtomicU64::new(0),
            driving: AtomicUsize::new(0),
            batching: AtomicUsize::new(0),
            tasks: AtomicUsize::new(0),
            drove_ns: AtomicU64::new(0),
            is_dozing: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            parked: Mutex::default(),
            parked_count: AtomicUsize::new(0),
            deadlines: Mutex::default(),
        })
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().expect("no thread panics with the machine locked")
    }

    /// Publishes the life and the lease for guards.
    pub(crate) fn publish(&self, core: &Core) {
        // A guard reads them in the other order: the lease of a later life comes with that life.
        self.life.store(core.life.0, Ordering::Release);
        self.lease_until_ns.store(core.lease_until_ns.unwrap_or(0), Ordering::Release);
    }

    /// Whether a grant is still held, as far as this machine's clock can tell.
    pub(crate) fn is_valid(&self, grant: &Grant) -> bool {
        let until_ns = self.lease_until_ns.load(Ordering::Acquire);
        LifeWord(self.life.load(Ordering::Acquire)).has(grant) && os::now_ns() < until_ns
    }

    /// Leaves the machine after events of a caller: packets go out now, or soon.
    fn leave(&self, mut core: MutexGuard<'_, Core>) {
        if core.outbox.is_empty() {
            return;
        }
        if self.batching.load(Ordering::Relaxed) == 0 && !core.may_wait() {
            core.flush(&self.socket);
        }
        drop(core);
        if self.is_dozing.load(Ordering::Relaxed) && self.is_dozing.swap(false, Ordering::AcqRel) {
            // Packets may be lost: the keeper sends them again.
            self.bell.ring();
        }
    }

    pub(crate) fn release(&self, grant: &Grant) {
        let now_ns = os::now_ns();
        let mut core = self.core();
        core.release(now_ns, grant);
        self.leave(core);
    }

    /// Gives up a request. A grant that came meanwhile is released.
    fn give_up(&self, slot: &Slot) {
        let now_ns = os::now_ns();
        let mut core = self.core();
        match slot.close() {
            Some(Ok(grant)) => core.release(now_ns, &grant),
            Some(Err(_)) => {}
            None => core.give_up(now_ns, slot),
        }
        self.leave(core);
    }

    /// Receives, and takes in everything that has come. Returns whether anything has.
    pub(crate) fn pump(&self, inbox: &mut Inbox, waits: bool) -> bool {
        let received = inbox.receive(&self.socket, waits);
        if received == 0 {
            return false;
        }
        let now_ns = os::now_ns();
        let mut core = self.core();
        for at in 0..received {
            let (bytes, source) = inbox.datagram(at);
            core.datagram(bytes, source, now_ns);
        }
        core.flush(&self.socket);
        true
    }

    pub(crate) fn try_inbox(&self) -> Option<MutexGuard<'_, Inbox>> {
        match self.inbox.try_lock() {
            Ok(inbox) => Some(inbox),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => panic!("no thread panics with the inbox locked"),
        }
    }

    /// Wakes a thread that waits, so that it receives.
    pub(crate) fn hand_over(&self) {
        while self.parked_count.load(Ordering::SeqCst) > 0 {
            let slot = self.parked.lock().expect("no thread panics here").pop_front();
            let Some(slot) = slot else { return };
            self.parked_count.fetch_sub(1, Ordering::SeqCst);
            if slot.nudge() {
                return;
            }
        }
    }

    /// Acquires a lock in this thread.
    pub(crate) fn acquire_blocking(
        &self,
        lock: LockId,
        mode: Mode,
        patience: Patience,
    ) -> Result<Grant, Refusal> {
        let begun_ns = os::now_ns();
        let mut core = self.core();
        match core.start(begun_ns, lock, mode) {
            Start::Granted(grant) => {
                core.settle(begun_ns);
                self.leave(core);
                Ok(grant)
            }
            Start::Refused(refusal) => Err(refusal),
            start @ (Start::Waits(_) | Start::Later) => {
                let slot = Slot::new(lock, mode, patience == Patience::Try);
                core.wait_for(begun_ns, &slot, start);
                core.flush(&self.socket);
                drop(core);
                self.wait(&slot, begun_ns, patience)
            }
        }
    }

    fn wait(&self, slot: &Arc<Slot>, begun_ns: u64, patience: Patience) -> Result<Grant, Refusal> {
        let (deadline_ns, refusal) = self.deadline(begun_ns, patience);
        let counted = Counted::new(&self.driving);
        let spin_ns = self.spin.begin();
        let (outcome, now_ns) = loop {
            if let Some(outcome) = slot.take() {
                break (outcome, os::now_ns());
            }
            let now_ns = os::now_ns();
            if now_ns >= deadline_ns {
                self.give_up(slot);
                break (Err(refusal), now_ns);
            }
            let sleeps = now_ns - begun_ns >= spin_ns;
            match self.try_inbox() {
                Some(mut inbox) => self.drive(&mut inbox, sleeps, deadline_ns - now_ns),
                None if !sleeps => std::hint::spin_loop(),
                None => self.park(slot, deadline_ns - now_ns),
            }
        };
        self.spin.end(spin_ns, now_ns - begun_ns < spin_ns);
        self.drove_ns.store(now_ns, Ordering::Relaxed);
        drop(counted);
        self.hand_over();
        outcome
    }

    /// When a request ends, and how.
    fn deadline(&self, begun_ns: u64, patience: Patience) -> (u64, Refusal) {
        match patience {
            Patience::Forever => (u64::MAX, Refusal::TimedOut),
            Patience::Nanos(ns) => (begun_ns.saturating_add(ns), Refusal::TimedOut),
            // An answer that has not come within a lease does not come from this decider.
            Patience::Try => (begun_ns + self.lease_ns, Refusal::Unavailable),
        }
    }

    fn drive(&self, inbox: &mut Inbox, sleeps: bool, left_ns: u64) {
        if !sleeps {
            self.pump(inbox, false);
            return;
        }
        let has_received = if left_ns >= NAP.as_nanos() as u64 {
            self.pump(inbox, true)
        } else {
            os::poll(&mut [os::interest(self.socket.fd(), true, false)], left_ns);
            self.pump(inbox, false)
        };
        if !has_received {
            let mut core = self.core();
            core.maintain(os::now_ns());
            self.publish(&core);
            core.flush(&self.socket);
        }
    }

    /// Sleeps while another thread receives.
    fn park(&self, slot: &Arc<Slot>, left_ns: u64) {
        slot.set_waker(&thread_waker());
        self.parked.lock().expect("no thread panics here").push_back(Arc::clone(slot));
        self.parked_count.fetch_add(1, Ordering::SeqCst);
        // The other thread may have left since: then no thread would receive.
        if slot.waits() && self.try_inbox().is_none() {
            std::thread::park_timeout(NAP.min(std::time::Duration::from_nanos(left_ns)));
        }
    }

    /// Takes in whatever has come, and sends whatever is ready. Returns whether anything came.
    pub(crate) fn poll(&self) -> bool {
        {
            let mut core = self.core();
            if !core.outbox.is_empty() {
                core.flush(&self.socket);
            }
        }
        self.try_inbox().is_some_and(|mut inbox| self.pump(&mut inbox, false))
    }

    /// Runs a future to its end in this thread, which receives meanwhile.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        let woken =
            Arc::new(Woken { thread: std::thread::current(), is_woken: AtomicBool::new(true) });
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        let counted = (Counted::new(&self.driving), Counted::new(&self.batching));
        let (mut busy_ns, mut spin_ns, mut slept) = (os::now_ns(), self.spin.begin(), false);
        let output = loop {
            if woken.is_woken.swap(false, Ordering::AcqRel) {
                if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                    break output;
                }
                self.spin.end(spin_ns, !slept);
                (busy_ns, spin_ns, slept) = (os::now_ns(), self.spin.begin(), false);
            }
            if self.poll() || woken.is_woken.load(Ordering::Acquire) {
                continue;
            }
            let now_ns = os::now_ns();
            if now_ns - busy_ns < spin_ns {
                continue;
            }
            slept = true;
            match self.try_inbox() {
                Some(mut inbox) => self.drive(&mut inbox, true, NAP.as_nanos() as u64),
                None => std::thread::park_timeout(NAP),
            }
        };
        self.drove_ns.store(os::now_ns(), Ordering::Relaxed);
        drop(counted);
        self.poll();
        self.hand_over();
        output
    }

    /// Begins a request of a task. `Err`: it ends at once.
    pub(crate) fn begin(
        &self,
        (lock, mode, patience): (LockId, Mode, Patience),
        waker: &Waker,
    ) -> Result<Arc<Slot>, Result<Grant, Refusal>> {
        let now_ns = os::now_ns();
        let mut core = self.core();
        let start = match core.start(now_ns, lock, mode) {
            Start::Granted(grant) => {
                core.settle(now_ns);
                self.leave(core);
                return Err(Ok(grant));
            }
            Start::Refused(refusal) => return Err(Err(refusal)),
            start => start,
        };
        let slot = Slot::new(lock, mode, patience == Patience::Try);
        slot.set_waker(waker);
        core.wait_for(now_ns, &slot, start);
        drop(core);
        self.tasks.fetch_add(1, Ordering::Relaxed);
        let (deadline_ns, refusal) = self.deadline(now_ns, patience);
        if deadline_ns != u64::MAX {
            let mut deadlines = self.deadlines.lock().expect("no thread panics here");
            deadlines.push((deadline_ns, Arc::clone(&slot), refusal));
        }
        let dozes = self.is_dozing.load(Ordering::Relaxed);
        if dozes || self.batching.load(Ordering::Relaxed) == 0 {
            // Another executor polls: the keeper sends, once the tasks that are ready have run.
            self.bell.ring();
        }
        Ok(slot)
    }

    /// A task's request has ended.
    pub(crate) fn ended(&self) {
        self.tasks.fetch_sub(1, Ordering::Relaxed);
    }

    /// A task gives its request up.
    pub(crate) fn abandon(&self, slot: &Slot) {
        self.give_up(slot);
        self.ended();
    }

    /// Ends the requests whose time is over. Returns the next time-out.
    pub(crate) fn expire(&self, now_ns: u64) -> u64 {
        let mut deadlines = self.deadlines.lock().expect("no thread panics here");
        deadlines.retain(|(_, slot, _)| slot.waits());
        let over: Vec<_> = deadlines.extract_if(.., |(at_ns, ..)| *at_ns <= now_ns).collect();
        let next_ns = deadlines.iter().map(|(at_ns, ..)| *at_ns).min().unwrap_or(u64::MAX);
        drop(deadlines);
        for (_, slot, refusal) in over {
            let mut core = self.core();
            if slot.end(Err(refusal)) {
                core.give_up(now_ns, &slot);
                core.flush(&self.socket);
            }
        }
        next_ns
    }
}

/// Counts itself while it lives.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Counted<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Wakes a thread in [`Shared::block_on`].
struct Woken {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        if self.thread.id() != std::thread::current().id() {
            self.thread.unpark();
        }
    }
}
