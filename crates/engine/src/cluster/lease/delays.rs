//! Statistics of transaction delays, which a compute node reports to the lease manager. The statistics are a
//! histogram of the reading times of read-only transactions, and the total times of the phases of read-write
//! transactions.
//!
//! Invariant: only the thread itself writes its counts. So an increment is a load and a store, and needs no
//! allocation. A thread that sums the counts reads each count as it was at some moment. The statistics affect how
//! fast transactions are, never their correctness.
//!
//! The design follows OOCC, section VII ("the coordinator records statistics for read-only transactions, including
//! delays for each phase, commit delays, and omission rates"); the paper does not say how. Durations are counted in
//! buckets whose bounds are powers of 1.1, so a reported percentile exceeds the true one by at most a tenth. A thread
//! knows the length of a reader's window in any case, so counting the reader costs only 1.3 ns (AMD EPYC, alone in a
//! loop, random durations). To learn the end of a stage, a thread must read a clock. So the thread times only one
//! transaction in [`SAMPLE`]; the choice of this transaction costs 1 ns.

use std::sync::atomic::{AtomicU64, Ordering};
use tarn_fabric::clock::Nanos;

/// The number of buckets of the histogram. The last bucket counts every duration longer than the longest lease.
pub const BUCKETS: usize = 176;
/// The sampling interval: a thread times the phases of one read-write transaction in [`SAMPLE`].
pub const SAMPLE: u64 = 64;

/// The number of bits behind the leading one that select a starting bucket. Durations that share these bits differ by
/// less than a sixteenth, so at most one bucket's lower bound lies between them. So a duration belongs to the
/// starting bucket or to the next bucket.
const MANTISSA_BITS: u32 = 4;
const STARTS: usize = 64 << MANTISSA_BITS;

/// The shortest duration of each bucket, in nanoseconds: 1.1 to the power of the bucket's number, rounded up. The
/// final element is a lower bound above the last bucket.
const FLOORS: [u64; BUCKETS + 1] = floors();
/// For each leading bit of a duration and the bits behind it, the bucket of the shortest duration with these bits.
const START: [u8; STARTS] = starts();

const fn floors() -> [u64; BUCKETS + 1] {
    const FRACTION_BITS: u32 = 32;
    let (mut floors, mut power, mut at) = ([u64::MAX; BUCKETS + 1], 1u128 << FRACTION_BITS, 0);
    while at < BUCKETS {
        floors[at] = ((power + (1 << FRACTION_BITS) - 1) >> FRACTION_BITS) as u64;
        power = power * 11 / 10;
        at += 1;
    }
    floors
}

const fn starts() -> [u8; STARTS] {
    let (mut starts, mut key) = ([0; STARTS], 0);
    while key < STARTS {
        let (leading, behind) = (key as u32 >> MANTISSA_BITS, key as u64 % (1 << MANTISSA_BITS));
        let least = ((1u128 << MANTISSA_BITS) + behind as u128) << leading >> MANTISSA_BITS;
        let mut bucket = 0;
        while bucket + 1 < BUCKETS && FLOORS[bucket + 1] as u128 <= least {
            bucket += 1;
        }
        starts[key] = bucket as u8;
        key += 1;
    }
    starts
}

/// Returns the bucket of a duration. The function has no branch, because the processor would mispredict a branch on
/// durations that vary.
#[inline]
fn bucket_of(passed: Nanos) -> usize {
    let ns = passed.0.clamp(1, u64::MAX - 1);
    let leading = ns.ilog2();
    let behind = (ns << (63 - leading) << 1 >> (64 - MANTISSA_BITS)) as usize;
    let bucket = usize::from(START[(leading as usize) << MANTISSA_BITS | behind]);
    // The lower bound after the last bucket is a value that no duration reaches.
    bucket + usize::from(FLOORS[bucket + 1] <= ns)
}

/// The stages of a sampled read-write transaction, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The stage of locks and reads until the commit begins. The stage includes the caller's own work between the
    /// locks and reads.
    Execute,
    /// The stage of validation and log, including upgrades of read locks.
    Validate,
    /// The stage in which the transaction still waits until leases have ended.
    Wait,
    /// The stage that writes data. The stage ends when all replicas have the data.
    Write,
}

impl Stage {
    /// All stages of a transaction, in their order.
    pub const ALL: [Stage; 4] = [Stage::Execute, Stage::Validate, Stage::Wait, Stage::Write];

    /// The name of the stage in reports.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Execute => "execute",
            Stage::Validate => "validate_and_log",
            Stage::Wait => "wait",
            Stage::Write => "write",
        }
    }
}

/// The number of measured times of a stage, and the sum of these times.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Spent {
    /// The number of measured times of the stage.
    pub count: u64,
    /// The total time of the stage, in nanoseconds.
    pub sum_ns: u64,
}

/// The delays that one thread has counted, or the sum of several threads' counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delays {
    reads: [u64; BUCKETS],
    in_lease: u64,
    stages: [Spent; Stage::ALL.len()],
}

impl Default for Delays {
    fn default() -> Delays {
        Delays { reads: [0; BUCKETS], in_lease: 0, stages: [Spent::default(); Stage::ALL.len()] }
    }
}

impl Delays {
    /// The number of read-only transactions that had a window.
    pub fn reads(&self) -> u64 {
        self.reads.iter().sum()
    }

    /// The number of read-only transactions that ended within their leases.
    pub fn in_lease(&self) -> u64 {
        self.in_lease
    }

    /// The time that sampled read-write transactions spent in a stage.
    pub fn spent(&self, stage: Stage) -> Spent {
        self.stages[stage as usize]
    }

    /// A duration that is not exceeded by `percent` of a hundred read-only transactions. The returned duration
    /// exceeds the exact percentile by at most a tenth. `None` if no transaction was counted.
    pub fn percentile(&self, percent: u8) -> Option<Nanos> {
        let all = self.reads();
        let wanted = (u128::from(all) * u128::from(percent.min(100))).div_ceil(100).max(1) as u64;
        let mut counted = 0;
        let bucket = self.reads.iter().position(|count| {
            counted += count;
            counted >= wanted
        })?;
        Some(Nanos((FLOORS[bucket + 1] - 1).max(1)))
    }

    /// Adds another thread's counts.
    pub fn add(&mut self, other: &Delays) {
        self.in_lease += other.in_lease;
        for (mine, theirs) in self.reads.iter_mut().zip(other.reads) {
            *mine += theirs;
        }
        for (mine, theirs) in self.stages.iter_mut().zip(other.stages) {
            *mine = Spent { count: mine.count + theirs.count, sum_ns: mine.sum_ns + theirs.sum_ns };
        }
    }

    /// The difference between these counts and an earlier snapshot of the same threads.
    #[must_use]
    pub fn since(&self, earlier: &Delays) -> Delays {
        let mut since = self.clone();
        since.in_lease -= earlier.in_lease;
        for (mine, theirs) in since.reads.iter_mut().zip(earlier.reads) {
            *mine -= theirs;
        }
        for (mine, theirs) in since.stages.iter_mut().zip(earlier.stages) {
            *mine = Spent { count: mine.count - theirs.count, sum_ns: mine.sum_ns - theirs.sum_ns };
        }
        since
    }

    fn words(&self) -> impl Iterator<Item = u64> {
        let stages = self.stages.into_iter().flat_map(|spent| [spent.count, spent.sum_ns]);
        self.reads.into_iter().chain([self.in_lease]).chain(stages)
    }

    /// Appends the counts to a message: {place u8, count u64} for each count that is not 0.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        for (place, word) in self.words().enumerate().filter(|(_, word)| *word != 0) {
            bytes.push(place as u8);
            bytes.extend(word.to_le_bytes());
        }
    }

    /// Decodes the counts from a message; `None` if the message is malformed.
    pub fn decode(bytes: &[u8]) -> Option<Delays> {
        let mut delays = Delays::default();
        let entries = bytes.chunks_exact(ENTRY_BYTES);
        if !entries.remainder().is_empty() {
            return None;
        }
        for entry in entries {
            *delays.word_mut(entry[0])? = u64::from_le_bytes(*entry[1..].first_chunk()?);
        }
        Some(delays)
    }

    fn word_mut(&mut self, place: u8) -> Option<&mut u64> {
        let place = usize::from(place);
        if place < BUCKETS {
            return Some(&mut self.reads[place]);
        }
        let Some(place) = place.checked_sub(BUCKETS + 1) else { return Some(&mut self.in_lease) };
        let spent = self.stages.get_mut(place / 2)?;
        Some(if place.is_multiple_of(2) { &mut spent.count } else { &mut spent.sum_ns })
    }
}

const ENTRY_BYTES: usize = 9;
const _: () = assert!(BUCKETS + 2 * Stage::ALL.len() < 256, "a place is a byte");

/// The delays that one thread counts; see the module's text.
#[derive(Debug)]
pub struct ThreadDelays {
    reads: [AtomicU64; BUCKETS],
    in_lease: AtomicU64,
    stages: [[AtomicU64; 2]; Stage::ALL.len()],
    begun: AtomicU64,
}

impl Default for ThreadDelays {
    fn default() -> ThreadDelays {
        ThreadDelays {
            reads: [const { AtomicU64::new(0) }; BUCKETS],
            in_lease: AtomicU64::new(0),
            stages: [const { [const { AtomicU64::new(0) }; 2] }; Stage::ALL.len()],
            begun: AtomicU64::new(0),
        }
    }
}

/// Adds `more` to a count. Only the thread that owns the count calls this function.
#[inline]
fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

impl ThreadDelays {
    /// Counts a read-only transaction, with the time that it read and whether it ended within its lease.
    #[inline]
    pub fn note_read(&self, passed: Nanos, is_in_lease: bool) {
        add(&self.reads[bucket_of(passed)], 1);
        add(&self.in_lease, u64::from(is_in_lease));
    }

    /// Counts the beginning of a read-write transaction. Returns whether the thread should time the stages of this
    /// transaction.
    #[inline]
    pub fn samples(&self) -> bool {
        add(&self.begun, 1);
        self.begun.load(Ordering::Relaxed).is_multiple_of(SAMPLE)
    }

    /// Counts the time that a sampled transaction spent in a stage.
    #[cold]
    pub fn note_stage(&self, stage: Stage, passed: Nanos) {
        let [count, sum_ns] = &self.stages[stage as usize];
        add(count, 1);
        add(sum_ns, passed.0);
    }

    /// The sum of this thread's counts so far. Any thread may call this function.
    pub fn snapshot(&self) -> Delays {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let spent =
            |[count, sum_ns]: &[AtomicU64; 2]| Spent { count: load(count), sum_ns: load(sum_ns) };
        Delays {
            reads: std::array::from_fn(|bucket| load(&self.reads[bucket])),
            in_lease: load(&self.in_lease),
            stages: std::array::from_fn(|stage| spent(&self.stages[stage])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::lease::LEASE_NS_MAX;

    #[test]
    fn every_duration_has_the_bucket_that_a_plain_search_finds() {
        let plain = |ns: u64| FLOORS[..BUCKETS].iter().rposition(|floor| *floor <= ns).unwrap_or(0);
        let edges = FLOORS[..BUCKETS].iter().flat_map(|floor| [floor - 1, *floor, floor + 1]);
        for ns in (0..100_000).chain(edges).chain([u64::MAX, u64::MAX / 2, 1 << 40]) {
            assert_eq!(bucket_of(Nanos(ns)), plain(ns), "{ns} ns");
        }
        assert!(FLOORS[BUCKETS - 1] > u64::from(LEASE_NS_MAX), "every lease has a bucket");
        assert!(FLOORS[BUCKETS - 2] < 2 * u64::from(LEASE_NS_MAX), "and no more than that");
    }

    #[test]
    fn a_percentile_is_too_long_by_a_tenth_at_the_most_and_never_too_short() {
        let thread = ThreadDelays::default();
        let durations: Vec<u64> = (1..=1_000).map(|nth| nth * 37).collect();
        durations.iter().for_each(|ns| thread.note_read(Nanos(*ns), false));
        for percent in [1, 50, 80, 99, 100] {
            let exact = durations[usize::from(percent) * 10 - 1];
            let told = thread.snapshot().percentile(percent).expect("some were counted").0;
            assert!((exact..=exact * 11 / 10 + 1).contains(&told), "{percent} %: {exact}, {told}");
        }
        assert_eq!(Delays::default().percentile(80), None);
    }

    #[test]
    fn counts_are_added_up_taken_apart_and_sent() {
        let (one, other) = (ThreadDelays::default(), ThreadDelays::default());
        one.note_read(Nanos(5_000), true);
        let before = one.snapshot();
        one.note_read(Nanos(9_000), false);
        other.note_read(Nanos(9_000), true);
        Stage::ALL.into_iter().for_each(|stage| other.note_stage(stage, Nanos(70 + stage as u64)));
        let mut both = one.snapshot();
        both.add(&other.snapshot());
        assert_eq!((both.reads(), both.in_lease()), (3, 2));
        assert_eq!(both.spent(Stage::Write), Spent { count: 1, sum_ns: 73 });
        let since = both.since(&before);
        assert_eq!((since.reads(), since.in_lease()), (2, 1));
        for delays in [both, since, Delays::default()] {
            let mut bytes = Vec::new();
            delays.encode(&mut bytes);
            assert_eq!(Delays::decode(&bytes), Some(delays));
        }
        assert_eq!(Delays::decode(&[0; 10]), None, "cut off");
        assert_eq!(Delays::decode(&[255; 9]), None, "no such place");
    }

    #[test]
    fn one_in_a_fixed_number_of_reads_is_timed() {
        let thread = ThreadDelays::default();
        let timed = (0..10 * SAMPLE).filter(|_| thread.samples()).count();
        assert_eq!(timed, 10);
    }
}
