//! Traces of lock requests: drawn once, recorded, and replayed by every lock service alike.
//!
//! Invariants: a transaction requests a lock once, in the stronger of the modes that it needs. The same random words give the same trace, and
//! a recorded trace is read as it was written; two traces with the same digest are the same.
//!
//! | bytes | |
//! |---|---|
//! | 0..4 | "TLTR" |
//! | 4 | [`VERSION`] |
//! | 5..8 | 0 |
//! | 8..12 | the number of locks |
//! | 12..16 | the number of transactions |
//!
//! Each transaction: 0..2 the client's machine, 2 the kind, 3 the number of requests; then 4 bytes a request: the lock, and in bit 31
//! whether it is exclusive. All numbers are little-endian.

mod micro;
mod pick;
mod tatp;
mod tpcc;

pub use micro::{Hotspot, Micro, Mix};
pub use pick::{Picker, Skew};
pub use tatp::Tatp;
pub use tpcc::Tpcc;

use crate::value::{LockId, Machine, Mode};
use siphasher::sip::SipHasher24;
use std::fmt;
use std::hash::Hasher;

/// The first bytes of a recorded trace.
const MAGIC: &[u8; 4] = b"TLTR";
/// The version of the format.
pub const VERSION: u8 = 1;
const HEADER_BYTES: usize = 16;
/// The greatest number of locks of a trace: bit 31 of a request is its mode.
pub const LOCKS_MAX: u32 = 1 << 31;
/// The greatest number of requests of one transaction.
pub const REQUESTS_MAX: usize = u8::MAX as usize;

/// A random word: the caller's generator.
pub type Words<'a> = &'a mut dyn FnMut() -> u64;

/// A request of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Wanted(u32);

impl Wanted {
    const EXCLUSIVE: u32 = 1 << 31;

    /// A request.
    #[must_use]
    pub fn new(lock: LockId, mode: Mode) -> Wanted {
        debug_assert!(lock.0 < LOCKS_MAX);
        Wanted(lock.0 | if mode == Mode::Exclusive { Wanted::EXCLUSIVE } else { 0 })
    }

    /// The lock.
    #[must_use]
    pub fn lock(self) -> LockId {
        LockId(self.0 & !Wanted::EXCLUSIVE)
    }

    /// How it is to be held.
    #[must_use]
    pub fn mode(self) -> Mode {
        if self.0 & Wanted::EXCLUSIVE == 0 { Mode::Shared } else { Mode::Exclusive }
    }

    /// Adds a request to those of a transaction. A lock that is there already is requested in the stronger mode.
    pub fn add(to: &mut Vec<Wanted>, lock: LockId, mode: Mode) {
        match to.iter_mut().find(|it| it.lock() == lock) {
            Some(it) => it.0 |= Wanted::new(lock, mode).0,
            None => to.push(Wanted::new(lock, mode)),
        }
    }
}

/// A workload from which transactions are generated.
#[derive(Clone, Debug)]
pub enum Workload {
    /// One request a transaction.
    Micro(Micro),
    /// One shared request a transaction, half of them for few locks, which change.
    Hotspot(Hotspot),
    /// TATP.
    Tatp(Box<Tatp>),
    /// TPC-C.
    Tpcc(Tpcc),
}

impl Workload {
    /// The number of locks.
    #[must_use]
    pub fn locks(&self) -> u32 {
        match self {
            Workload::Micro(micro) => micro.locks(),
            Workload::Hotspot(hotspot) => hotspot.locks,
            Workload::Tatp(tatp) => tatp.locks(),
            Workload::Tpcc(tpcc) => tpcc.locks(),
        }
    }

    /// The names of the kinds of transactions, by their numbers.
    #[must_use]
    pub fn kinds(&self) -> &'static [&'static str] {
        match self {
            Workload::Micro(_) | Workload::Hotspot(_) => &["read", "write"],
            Workload::Tatp(_) => &Tatp::KINDS,
            Workload::Tpcc(_) => &Tpcc::KINDS,
        }
    }

    /// Draws the requests of a machine's next transaction. Returns the number of its kind.
    pub fn draw(&mut self, machine: Machine, words: Words, wanted: &mut Vec<Wanted>) -> u8 {
        wanted.clear();
        match self {
            Workload::Micro(micro) => micro.draw(words, wanted),
            Workload::Hotspot(hotspot) => hotspot.draw(words, wanted),
            Workload::Tatp(tatp) => tatp.draw(words, wanted),
            Workload::Tpcc(tpcc) => tpcc.draw(machine, words, wanted),
        }
    }
}

/// A number below `end`, which is not 0.
fn below(words: Words, end: u64) -> u64 {
    ((u128::from(words()) * u128::from(end)) >> 64) as u64
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Head {
    machine: Machine,
    kind: u8,
    /// The end of its requests.
    end: usize,
}

/// A transaction of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transaction<'a> {
    /// The machine of its client.
    pub machine: Machine,
    /// Its kind: [`Workload::kinds`].
    pub kind: u8,
    /// Its requests, in their order.
    pub wanted: &'a [Wanted],
}

/// A trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    locks: u32,
    heads: Vec<Head>,
    wanted: Vec<Wanted>,
}

/// A recorded trace that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceError {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
    /// The values that are allowed.
    pub allowed: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trace: {} = {}; allowed: {}", self.field, self.value, self.allowed)
    }
}

impl std::error::Error for TraceError {}

fn refuse<T>(field: &'static str, value: u64, allowed: impl Into<String>) -> Result<T, TraceError> {
    Err(TraceError { field, value, allowed: allowed.into() })
}

impl Trace {
    /// A trace of `locks` locks without transactions.
    #[must_use]
    pub fn new(locks: u32) -> Trace {
        Trace { locks, heads: Vec::new(), wanted: Vec::new() }
    }

    /// Draws a trace: machines 1 to `machines` in turn.
    pub fn drawn(
        workload: &mut Workload,
        (transactions, machines): (usize, u16),
        words: Words,
    ) -> Trace {
        let mut trace = Trace::new(workload.locks());
        let mut wanted = Vec::new();
        for number in 0..transactions {
            let machine = Machine(1 + (number % usize::from(machines.max(1))) as u16);
            let kind = workload.draw(machine, words, &mut wanted);
            trace.push(machine, kind, &wanted);
        }
        trace
    }

    /// Appends a transaction.
    ///
    /// # Panics
    /// If it has more than [`REQUESTS_MAX`] requests, or requests a lock that the trace does not have.
    pub fn push(&mut self, machine: Machine, kind: u8, wanted: &[Wanted]) {
        assert!(wanted.len() <= REQUESTS_MAX, "{} requests", wanted.len());
        assert!(wanted.iter().all(|it| it.lock().0 < self.locks), "a lock out of range");
        self.wanted.extend_from_slice(wanted);
        self.heads.push(Head { machine, kind, end: self.wanted.len() });
    }

    /// The number of locks.
    #[must_use]
    pub fn locks(&self) -> u32 {
        self.locks
    }

    /// The number of transactions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Whether the trace has no transaction.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// The number of requests of all transactions.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.wanted.len()
    }

    /// The transactions, in their order.
    pub fn transactions(&self) -> impl Iterator<Item = Transaction<'_>> {
        (0..self.heads.len()).map(|at| self.transaction(at))
    }

    /// The transaction at a place.
    ///
    /// # Panics
    /// If the trace is shorter.
    #[must_use]
    pub fn transaction(&self, at: usize) -> Transaction<'_> {
        let Head { machine, kind, end } = self.heads[at];
        let from = if at == 0 { 0 } else { self.heads[at - 1].end };
        Transaction { machine, kind, wanted: &self.wanted[from..end] }
    }

    /// The same trace with fewer locks, each for a range of the former ones.
    #[must_use]
    pub fn coarse(&self, locks: u32) -> Trace {
        let each = self.locks.div_ceil(locks.max(1)).max(1);
        let mut coarse = Trace::new(self.locks.div_ceil(each));
        let mut wanted = Vec::new();
        for it in self.transactions() {
            wanted.clear();
            for fine in it.wanted {
                Wanted::add(&mut wanted, LockId(fine.lock().0 / each), fine.mode());
            }
            coarse.push(it.machine, it.kind, &wanted);
        }
        coarse
    }

    /// Records the trace.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let bytes = HEADER_BYTES + 4 * (self.heads.len() + self.wanted.len());
        let mut out = Vec::with_capacity(bytes);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[VERSION, 0, 0, 0]);
        out.extend_from_slice(&self.locks.to_le_bytes());
        out.extend_from_slice(&(self.heads.len() as u32).to_le_bytes());
        for it in self.transactions() {
            out.extend_from_slice(&it.machine.0.to_le_bytes());
            out.extend_from_slice(&[it.kind, it.wanted.len() as u8]);
            it.wanted.iter().for_each(|wanted| out.extend_from_slice(&wanted.0.to_le_bytes()));
        }
        out
    }

    /// Reads a recorded trace.
    ///
    /// # Errors
    /// The bytes are no trace of this version, or a part of one.
    pub fn from_bytes(bytes: &[u8]) -> Result<Trace, TraceError> {
        let words: Vec<u32> = bytes
            .chunks_exact(4)
            .map(|it| u32::from_le_bytes([it[0], it[1], it[2], it[3]]))
            .collect();
        let length = bytes.len() as u64;
        if words.len() < HEADER_BYTES / 4 || !bytes.len().is_multiple_of(4) {
            return refuse("length", length, "16 bytes or more, in words of 4");
        }
        if bytes[..4] != *MAGIC {
            return refuse("magic", u64::from(words[0]), "\"TLTR\"");
        }
        if words[1] != u32::from(VERSION) {
            return refuse("version", u64::from(words[1]), VERSION.to_string());
        }
        let (locks, transactions) = (words[2], words[3]);
        if locks > LOCKS_MAX {
            return refuse("locks", u64::from(locks), format!("0 to {LOCKS_MAX}"));
        }
        let (mut trace, mut rest) = (Trace::new(locks), &words[4..]);
        for _ in 0..transactions {
            let Some((head, after)) = rest.split_first() else {
                return refuse("length", length, "all transactions that the header counts");
            };
            let [low, high, kind, requests] = head.to_le_bytes();
            let Some((wanted, after)) = after.split_at_checked(usize::from(requests)) else {
                return refuse("length", length, "all requests that a transaction counts");
            };
            let from = trace.wanted.len();
            trace.wanted.extend(wanted.iter().map(|word| Wanted(*word)));
            let mut locks_of = trace.wanted[from..].iter().map(|it| it.lock().0);
            if let Some(lock) = locks_of.find(|lock| *lock >= locks) {
                return refuse("lock", u64::from(lock), format!("less than {locks}"));
            }
            let (machine, end) = (Machine(u16::from_le_bytes([low, high])), trace.wanted.len());
            trace.heads.push(Head { machine, kind, end });
            rest = after;
        }
        if !rest.is_empty() {
            return refuse("length", length, "no bytes after the last transaction");
        }
        Ok(trace)
    }

    /// Names the trace: SipHash-2-4 of its bytes, with a key of zeros.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut hasher = SipHasher24::new();
        hasher.write(&self.to_bytes());
        hasher.finish()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Random words of a seed: SplitMix64.
    pub(crate) fn words(seed: u64) -> impl FnMut() -> u64 {
        let mut state = seed;
        move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = state;
            word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ word >> 31
        }
    }

    fn workloads(seed: u64) -> Vec<Workload> {
        let tatp = Tatp::new(500, &mut words(seed));
        let picker = Picker::new(10_000, Skew::CODE);
        vec![
            Workload::Micro(Micro { mix: Mix::UPDATE_HEAVY, picker, granule: 10 }),
            Workload::Hotspot(Hotspot::new(1_000, 50, 100)),
            Workload::Tatp(Box::new(tatp)),
            Workload::Tpcc(Tpcc::new(2, 3)),
        ]
    }

    #[test]
    fn the_same_seed_gives_the_same_trace_and_another_seed_another() {
        let drawn = |seed| {
            let traces = workloads(seed).into_iter().map(|mut workload| {
                let trace = Trace::drawn(&mut workload, (2_000, 2), &mut words(seed));
                assert_eq!(trace.len(), 2_000);
                assert!(
                    trace.transactions().all(|it| usize::from(it.kind) < workload.kinds().len())
                );
                trace.digest()
            });
            traces.collect::<Vec<_>>()
        };
        assert_eq!(drawn(1), drawn(1));
        assert!(drawn(1).iter().zip(drawn(2)).all(|(one, other)| *one != other));
    }

    #[test]
    fn a_recorded_trace_is_replayed_and_its_parts_are_refused() {
        for mut workload in workloads(3) {
            let trace = Trace::drawn(&mut workload, (50, 2), &mut words(3));
            let bytes = trace.to_bytes();
            assert_eq!(Trace::from_bytes(&bytes), Ok(trace.clone()));
            for cut in 0..bytes.len() {
                assert!(Trace::from_bytes(&bytes[..cut]).is_err(), "{cut}");
            }
            for at in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 0x40;
                assert!(Trace::from_bytes(&other).is_err(), "byte {at}");
            }
            let longer = [&bytes[..], &[0; 4]].concat();
            let error = Trace::from_bytes(&longer).unwrap_err().to_string();
            assert!(error.ends_with("allowed: no bytes after the last transaction"), "{error}");
        }
    }

    #[test]
    fn no_transaction_requests_a_lock_twice() {
        for mut workload in workloads(4) {
            let fine = Trace::drawn(&mut workload, (5_000, 2), &mut words(4));
            for trace in [fine.coarse(fine.locks() / 7), fine.coarse(3), fine] {
                for it in trace.transactions() {
                    let mut locks: Vec<_> = it.wanted.iter().map(|it| it.lock()).collect();
                    locks.sort_unstable();
                    locks.dedup();
                    assert_eq!(locks.len(), it.wanted.len());
                }
            }
        }
    }

    #[test]
    fn a_coarse_lock_covers_a_range_in_the_stronger_mode() {
        let mut trace = Trace::new(10);
        let wanted = [(0, Mode::Shared), (2, Mode::Exclusive), (9, Mode::Shared)];
        trace.push(Machine(1), 0, &wanted.map(|(lock, mode)| Wanted::new(LockId(lock), mode)));
        let coarse = trace.coarse(4);
        assert_eq!(coarse.locks(), 4);
        let of = |at: usize| {
            let it = coarse.transaction(0).wanted[at];
            (it.lock().0, it.mode())
        };
        assert_eq!([of(0), of(1)], [(0, Mode::Exclusive), (3, Mode::Shared)]);
    }
}
