//! The bank: balances are read under a shared lock, and money moves between two accounts under two exclusive locks.
//!
//! Invariants: balances are in a real Redis, whichever service keeps the locks, so that two results differ by their locks. A transfer reads
//! both balances and writes both: without mutual exclusion money appears or vanishes. Locks are taken in the order of the accounts, so that
//! no two transfers wait for each other.
//! After the mobile bank of Zhang et al., OSDI 2024, section 7.9. Its public client sends HDECRBY, which Redis does not know, so that its
//! sums grew; here a transfer writes what it has read, changed by the amount.

use crate::clock;
use crate::connection::{PeerError, Wait};
use crate::dice::Dice;
use crate::locker::{Locker, Turn, run_turns};
use crate::resp::Value;
use crate::store::{self, Sent, Slot, Store};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tarn_locks::trace::Picker;
use tarn_locks::value::{LockId, Mode};

/// The greatest amount of a transfer.
const AMOUNT_MAX: u64 = 100;

/// A bank, and how its customers behave.
#[derive(Clone, Debug)]
pub struct Bank {
    /// Which accounts they choose.
    pub picker: Picker,
    /// Of 100 operations, so many read a balance.
    pub read_percent: u64,
    /// How long they go on.
    pub time: Duration,
    /// Virtual clients of a thread.
    pub depth: usize,
}

/// The next step of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Idle,
    /// It waits for its lock on the account at this place.
    Locks(usize),
    /// It waits for so many balances.
    Reads(usize),
    /// It waits for so many writes.
    Writes(usize),
}

#[derive(Clone, Copy, Debug)]
struct Client {
    step: Step,
    /// In ascending order; the second is used by a transfer only.
    accounts: [LockId; 2],
    count: usize,
    balances: [u64; 2],
    begun: Instant,
}

/// The results of one thread.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Operations.
    pub operations: u64,
    /// Operations that moved money.
    pub transfers: u64,
    /// Attempts to take a lock that were made in vain.
    pub failed: u64,
    /// From the first operation to the end of the last.
    pub time: Duration,
    /// Nanoseconds of each operation.
    pub latencies_ns: Vec<u32>,
}

/// A thread's clients.
#[derive(Debug)]
pub struct Teller<'a, L> {
    bank: &'a Bank,
    locker: L,
    store: Store,
    clients: Vec<Client>,
    dice: Dice,
    work: Work,
    granted: Vec<Slot>,
}

impl<'a, L: Locker> Teller<'a, L> {
    /// A thread's clients, which are idle.
    pub fn new(bank: &'a Bank, locker: L, store: Store, dice: Dice) -> Teller<'a, L> {
        let idle = Client {
            step: Step::Idle,
            accounts: [LockId(0); 2],
            count: 0,
            balances: [0; 2],
            begun: clock::now(),
        };
        let (clients, work) = (vec![idle; bank.depth], Work::default());
        Teller { bank, locker, store, clients, dice, work, granted: Vec::new() }
    }

    /// Serves the clients until the time is over and their operations have ended, and the agents of this thread until all `threads` threads
    /// have counted themselves in `done`.
    ///
    /// # Errors
    /// Redis or the lock service cannot be reached, or answers otherwise than it should.
    pub fn serve(mut self, (done, threads): (&AtomicUsize, usize)) -> Result<Work, PeerError> {
        let turns = self.locker.turns();
        let start = clock::now();
        let mut active = self.clients.len();
        let mut is_begun = false;
        let result = run_turns(&*turns, || {
            if !std::mem::replace(&mut is_begun, true) {
                (0..active).try_for_each(|slot| self.begin(Slot(slot)))?;
            }
            let (ended, turn) = self.turn()?;
            let time = clock::now().duration_since(start);
            for slot in ended {
                match time >= self.bank.time {
                    true => active -= 1,
                    false => self.begin(slot)?,
                }
            }
            if active > 0 {
                return Ok(turn);
            }
            self.work.time = time;
            Ok(Turn::Over)
        });
        done.fetch_add(1, Ordering::SeqCst);
        result?;
        run_turns(&*turns, || {
            let (_, turn) = self.turn()?;
            if turn == Turn::Idle {
                std::thread::yield_now();
            }
            let is_over = done.load(Ordering::SeqCst) >= threads && !self.store.is_awaited();
            Ok(if is_over { Turn::Over } else { Turn::Again })
        })?;
        self.work.failed = self.locker.failed();
        Ok(self.work)
    }

    /// Takes in whatever has arrived. Returns the clients whose operation has ended, and whether there may be more to do.
    fn turn(&mut self) -> Result<(Vec<Slot>, Turn), PeerError> {
        let mut ended = Vec::new();
        self.store.flush()?;
        let mut has_progress = self.locker.poll(&mut self.granted)?;
        self.take_grants()?;
        let sleeps = !has_progress && !self.locker.is_busy();
        let mut wait = if sleeps { Wait::Sleeps } else { Wait::Looks };
        while let Some((slot, sent, value)) = self.store.receive(wait)? {
            (has_progress, wait) = (true, Wait::Takes);
            match sent {
                Sent::Read => self.has_read(slot, &value)?,
                Sent::Write => self.has_written(slot, &mut ended)?,
                Sent::Acquire | Sent::Release => {
                    let (store, granted) = (&mut self.store, &mut self.granted);
                    self.locker.reply((slot, sent), &value, store, granted)?;
                    self.take_grants()?;
                }
            }
            if self.clients[slot.0].step == Step::Idle && sent == Sent::Read {
                ended.push(slot);
            }
        }
        let is_idle = !has_progress && !self.locker.is_busy() && !self.store.is_awaited();
        Ok((ended, if is_idle { Turn::Idle } else { Turn::Again }))
    }

    fn begin(&mut self, slot: Slot) -> Result<(), PeerError> {
        let is_read = self.dice.below(100) < self.bank.read_percent;
        let first = self.pick();
        let mut accounts = [first; 2];
        while !is_read && accounts[1] == first {
            accounts[1] = self.pick();
        }
        accounts.sort_unstable();
        let count = if is_read { 1 } else { 2 };
        let step = Step::Locks(0);
        self.clients[slot.0] =
            Client { step, accounts, count, balances: [0; 2], begun: clock::now() };
        let mode = if is_read { Mode::Shared } else { Mode::Exclusive };
        self.locker.request(slot, accounts[0], mode, &mut self.store)
    }

    fn pick(&mut self) -> LockId {
        LockId(self.bank.picker.pick(&mut || self.dice.word()))
    }

    fn take_grants(&mut self) -> Result<(), PeerError> {
        while let Some(slot) = self.granted.pop() {
            let client = &mut self.clients[slot.0];
            let Step::Locks(place) = client.step else { panic!("a grant without a request") };
            if place + 1 < client.count {
                client.step = Step::Locks(place + 1);
                let lock = client.accounts[place + 1];
                self.locker.request(slot, lock, Mode::Exclusive, &mut self.store)?;
            } else {
                client.step = Step::Reads(client.count);
                client.accounts[..client.count]
                    .iter()
                    .for_each(|account| self.store.read(slot, *account));
            }
        }
        Ok(())
    }

    fn has_read(&mut self, slot: Slot, value: &Value) -> Result<(), PeerError> {
        let client = &mut self.clients[slot.0];
        let Step::Reads(left) = client.step else { panic!("a balance without a question") };
        client.balances[client.count - left] = store::balance(value)?;
        client.step = Step::Reads(left - 1);
        if left > 1 {
            return Ok(());
        }
        if client.count == 1 {
            return self.end(slot);
        }
        let payer = (self.dice.word() & 1) as usize;
        let amount = (1 + self.dice.below(AMOUNT_MAX)).min(client.balances[payer]);
        client.balances[payer] -= amount;
        client.balances[1 - payer] += amount;
        client.step = Step::Writes(2);
        let Client { accounts, balances, .. } = *client;
        accounts
            .iter()
            .zip(balances)
            .for_each(|(account, it)| self.store.write(slot, *account, it));
        Ok(())
    }

    fn has_written(&mut self, slot: Slot, ended: &mut Vec<Slot>) -> Result<(), PeerError> {
        let client = &mut self.clients[slot.0];
        let Step::Writes(left) = client.step else { panic!("a write without a transfer") };
        client.step = Step::Writes(left - 1);
        if left == 1 {
            self.work.transfers += 1;
            self.end(slot)?;
            ended.push(slot);
        }
        Ok(())
    }

    fn end(&mut self, slot: Slot) -> Result<(), PeerError> {
        let Client { accounts, count, begun, .. } = self.clients[slot.0];
        for account in &accounts[..count] {
            self.locker.release(slot, *account, &mut self.store)?;
        }
        self.clients[slot.0].step = Step::Idle;
        self.work.operations += 1;
        self.work.latencies_ns.push(clock::ns_since(begun).min(u64::from(u32::MAX)) as u32);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use crate::fiss::Cluster;
    use crate::redlock::{Literal, Pipelined};
    use crate::report::serve;
    use std::net::SocketAddr;
    use tarn_locks::trace::Skew;

    const ACCOUNTS: u32 = 40;
    const MONEY: u64 = 40 * 50;
    const THREADS: u64 = 2;

    fn bank(depth: usize) -> Bank {
        let picker = Picker::new(ACCOUNTS, Skew::Zipf { theta: 0.99, scattered: true });
        Bank { picker, read_percent: 30, time: Duration::from_millis(150), depth }
    }

    /// Runs a bank on two threads. Returns its transfers, and the money afterwards.
    fn money_after<L: Locker + Send>(
        at: SocketAddr,
        depth: usize,
        mut locker: impl FnMut(&mut Store, u64) -> L,
    ) -> (u64, u64) {
        let bank = bank(depth);
        let mut books = Store::open(at).unwrap();
        books.fill(ACCOUNTS, MONEY / u64::from(ACCOUNTS)).unwrap();
        let tellers = (1..=THREADS).map(|thread| {
            let mut store = Store::open(at).unwrap();
            let locker = locker(&mut store, thread);
            Teller::new(&bank, locker, store, Dice::new(1, thread))
        });
        let works = serve(tellers.collect()).unwrap();
        let transfers = works.iter().map(|it| it.transfers).sum();
        let reads = works.iter().map(|it| it.operations - it.transfers).sum::<u64>();
        assert!(reads > 0);
        (transfers, books.sum(ACCOUNTS).unwrap())
    }

    #[test]
    fn money_is_conserved_under_redlock() {
        let fake = Fake::start();
        let at = fake.address();
        let literal = |_: &mut Store, thread| Literal::open(at, thread, 8).unwrap();
        let (transfers, money) = money_after(at, 8, literal);
        assert_eq!((transfers > 20, money), (true, MONEY));
        let pipelined = |store: &mut Store, thread| Pipelined::open(store, thread, 8).unwrap();
        let (transfers, money) = money_after(at, 8, pipelined);
        assert_eq!((transfers > 20, money), (true, MONEY));
        assert_eq!(fake.keys(), ACCOUNTS as usize, "no lock is left behind");
    }

    #[test]
    fn money_is_conserved_under_fisslock() {
        let fake = Fake::start();
        let cluster = Cluster::start(ACCOUNTS).unwrap();
        let fiss = |_: &mut Store, _| cluster.client(8).unwrap();
        let (transfers, money) = money_after(fake.address(), 8, fiss);
        assert_eq!((transfers > 20, money), (true, MONEY));
    }

    /// A planted fault: each request is granted at once.
    struct NoLock(Vec<Slot>);

    impl Locker for NoLock {
        fn request(
            &mut self,
            slot: Slot,
            _: LockId,
            _: Mode,
            _: &mut Store,
        ) -> Result<(), PeerError> {
            self.0.push(slot);
            Ok(())
        }

        fn release(&mut self, _: Slot, _: LockId, _: &mut Store) -> Result<(), PeerError> {
            Ok(())
        }

        fn poll(&mut self, granted: &mut Vec<Slot>) -> Result<bool, PeerError> {
            granted.append(&mut self.0);
            Ok(!granted.is_empty())
        }

        fn is_busy(&self) -> bool {
            !self.0.is_empty()
        }
    }

    #[test]
    fn a_bank_without_locks_does_not_conserve_its_money() {
        let fake = Fake::start();
        let (transfers, money) = money_after(fake.address(), 8, |_, _| NoLock(Vec::new()));
        assert!(transfers > 100);
        assert_ne!(money, MONEY);
    }
}
