//! Counts the rounds, verbs and messages that a port has sent. Protocols are compared by these counts.
//!
//! Invariant: every verb and message of a port is counted once, when the port sends it, whether or not it succeeds.
//! Counts of bytes are counts of payload bytes, without headers.

use crate::round::{VerbKind, VerbTally};
use std::cell::Cell;
use std::ops::{AddAssign, Sub};

/// The names of the kinds of verbs, in the order of [`Counts::verbs`].
pub const VERB_NAMES: [&str; 5] = ["read", "write", "cas", "faa", "masked_cas"];

/// A snapshot of a port's counters.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// The number of round trips, which is the number of posted rounds. Detached rounds are counted too.
    pub rounds: u64,
    /// The number of verbs of each kind, in the order of [`VERB_NAMES`].
    pub verbs: [u64; 5],
    /// The number of messages sent.
    pub messages: u64,
    /// The number of payload bytes that READs have read and atomics have returned.
    pub bytes_in: u64,
    /// The number of payload bytes that WRITEs, atomics and messages have sent.
    pub bytes_out: u64,
}

impl Counts {
    /// The number of all verbs.
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

/// A port's counters. Only one thread uses a port, so the counters are not atomic.
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
    /// Returns the counts so far.
    pub fn snapshot(&self) -> Counts {
        Counts {
            rounds: self.rounds.get(),
            verbs: std::array::from_fn(|kind| self.verbs[kind].get()),
            messages: self.messages.get(),
            bytes_in: self.bytes_in.get(),
            bytes_out: self.bytes_out.get(),
        }
    }

    /// Counts a posted round, whose verbs have the counts `tally`.
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

    /// Counts a sent message of `bytes` bytes.
    pub fn message(&self, bytes: usize) {
        add(&self.messages, 1);
        add(&self.bytes_out, bytes as u64);
    }
}
