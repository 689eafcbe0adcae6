//! The rounds, verbs and messages that a port has sent: the currency in which protocols are
//! compared.
//!
//! Invariant: every verb and message that leaves a port is counted once, when it is posted,
//! whether or not it succeeds; bytes are payload bytes, without headers.

use crate::round::{VerbKind, VerbTally};
use std::cell::Cell;
use std::ops::{AddAssign, Sub};

/// Kinds of verbs, in the order of [`Counts::verbs`].
pub const VERB_NAMES: [&str; 5] = ["read", "write", "cas", "faa", "masked_cas"];

/// A snapshot of a port's counters.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Round trips: rounds posted, detached ones included.
    pub rounds: u64,
    /// Verbs by kind, in the order of [`VERB_NAMES`].
    pub verbs: [u64; 5],
    /// Messages sent.
    pub messages: u64,
    /// Payload bytes read by READ and returned by atomics.
    pub bytes_in: u64,
    /// Payload bytes written by WRITE, carried by atomics and messages.
    pub bytes_out: u64,
}

impl Counts {
    /// All verbs.
    pub fn verbs_total(&self) -> u64 {
        self.verbs.iter().sum()
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.rounds += other.rounds;
        for (mine, theirs) in self.verbs.iter_mut().zip(other.verbs) {
            *mine += theirs;
        }
        self.messages += other.messages;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
    }
}

impl Sub for Counts {
    type Output = Counts;
    fn sub(self, other: Counts) -> Counts {
        let mut verbs = self.verbs;
        for (mine, theirs) in verbs.iter_mut().zip(other.verbs) {
            *mine -= theirs;
        }
        Counts {
            rounds: self.rounds - other.rounds,
            verbs,
            messages: self.messages - other.messages,
            bytes_in: self.bytes_in - other.bytes_in,
            bytes_out: self.bytes_out - other.bytes_out,
        }
    }
}

/// A port's counters: one thread, no atomics.
#[derive(Default, Debug)]
pub struct Counters {
    rounds: Cell<u64>,
    verbs: [Cell<u64>; 5],
    messages: Cell<u64>,
    bytes_in: Cell<u64>,
    bytes_out: Cell<u64>,
}

#[inline]
fn add(cell: &Cell<u64>, amount: u64) {
    cell.set(cell.get() + amount);
}

impl Counters {
    /// The counts so far.
    pub fn snapshot(&self) -> Counts {
        Counts {
            rounds: self.rounds.get(),
            verbs: std::array::from_fn(|kind| self.verbs[kind].get()),
            messages: self.messages.get(),
            bytes_in: self.bytes_in.get(),
            bytes_out: self.bytes_out.get(),
        }
    }

    /// A round whose verbs come to `tally` was posted.
    #[inline]
    pub fn round(&self, tally: VerbTally) {
        let ((reads, bytes_read), (writes, bytes_written)) = (tally.reads(), tally.writes());
        add(&self.rounds, 1);
        add(&self.verbs[VerbKind::Read as usize], reads);
        add(&self.bytes_in, bytes_read);
        if writes != 0 {
            add(&self.verbs[VerbKind::Write as usize], writes);
            add(&self.bytes_out, bytes_written);
        }
        let atomics = tally.atomics();
        if atomics != [0; 3] {
            self.atomics(atomics);
        }
    }

    fn atomics(&self, counts: [u32; 3]) {
        for (verbs, count) in self.verbs[VerbKind::CompareAndSwap as usize..].iter().zip(counts) {
            add(verbs, u64::from(count));
            add(&self.bytes_in, 8 * u64::from(count));
            add(&self.bytes_out, 16 * u64::from(count));
        }
    }

    /// A message of `bytes` was sent.
    pub fn message(&self, bytes: usize) {
        add(&self.messages, 1);
        add(&self.bytes_out, bytes as u64);
    }
}
