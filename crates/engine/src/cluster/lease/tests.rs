//! Runs readers, writers and changes of the lease in random order, on several nodes whose clocks drift as far as they
//! may.
//!
//! Invariant checked: a reader that is in lease has seen the new versions of both records of one writer, or of
//! neither. In these tests, true time is a whole number, and a node sees only its own clock. Each reader, writer or
//! node takes one step at a time, so it may be slow at any point. Each test leaves out one rule on purpose and
//! detects that the rule is missing.

use super::*;
use rand::RngExt;
use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};
use tarn_fabric::clock::Nanos;
use tarn_fabric::rng::{Rng, seeded};

const NODES: usize = 2;
const LENGTHS: [u32; 3] = [60, 250, 1_500];
/// The drift limit of these tests is a tenth. Real clocks drift far less. In a test whose steps have length one, only
/// a large drift makes the margins matter.
const PPM: u32 = 100_000;
const TICK_NS: u32 = 4;
const RATES: [u64; 3] = [1_000_000 - PPM as u64, 1_000_000, 1_000_000 + PPM as u64];

/// The rule that a test leaves out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Planted {
    Nothing,
    /// The reader uses the shorter of the leases at its start and end, instead of requiring that the lease has not
    /// changed.
    ShorterOfTwo,
    /// The reader uses the lease that it loaded at its start.
    AtStart,
    /// The writer's wait counts from the moment when it requested the locks.
    FromIssue,
    /// The word of record changes although some nodes still use the previous word.
    NoAcks,
    /// The word of record changes from one length to another in one step.
    OneStep,
}

struct Clock {
    offset: u64,
    rate: u64,
    tick: u64,
}

impl Clock {
    fn shows(&self, now: u64) -> Nanos {
        let exact = self.offset + now * self.rate / 1_000_000;
        Nanos(exact / self.tick * self.tick)
    }
}

#[derive(Clone, Copy)]
struct Reading {
    at_start: LeaseWord,
    first: Nanos,
    /// The versions that the reader found in the records; `None` for a record that it has not read.
    seen: [Option<u64>; 2],
    second: Option<Nanos>,
    /// The reader waits until this time before it reads its last record. So many readers use the whole time that the
    /// lease allows.
    dallies_until: Nanos,
}

/// A writer of both records. Each writer runs on a random node.
#[derive(Clone, Copy)]
enum Writing {
    Not,
    /// The writer requested both locks when its clock showed this time.
    Locking(Nanos),
    /// The writer holds both locks since this time, and has still to load its lease word.
    Locked(Nanos),
    Waiting(Nanos),
    /// The writer stores each record in turn.
    Storing,
}

struct World {
    planted: Planted,
    rng: Rng,
    now: u64,
    drift: Drift,
    clocks: Vec<Clock>,
    /// A reader takes a possible step with a probability of one in `slowness`.
    slowness: u32,
    /// A writer begins with a probability of one in `idleness`.
    idleness: u32,
    /// The number of steps that a writer, or a change of the lease, takes in succession.
    briskness: u32,
    is_eager: bool,
    /// A lock request is granted, and a node notices a new word, with a probability of one in `delay`.
    delay: u32,
    words: [LeaseWord; NODES],
    heard: [LeaseWord; NODES],
    lease: LeaseOfRecord,
    lives: Vec<NodeId>,
    versions: [u64; 2],
    locks: [bool; 2],
    readings: [Option<Reading>; NODES],
    writer: usize,
    writing: Writing,
    in_lease: u64,
    fractured: u64,
    changes: u64,
}

impl World {
    fn new(planted: Planted, seed: u64) -> World {
        let mut rng = seeded(seed, 0);
        let clocks = (0..NODES).map(|_| Clock {
            offset: rng.random_range(0..1_000),
            rate: RATES[rng.random_range(0..3)],
            tick: rng.random_range(1..=u64::from(TICK_NS)),
        });
        let clocks: Vec<Clock> = clocks.collect();
        let lease = LeaseOfRecord::new(LENGTHS[rng.random_range(0..3)]).expect("short enough");
        let life = |slot| NodeId { slot: NodeSlot(slot as u16), incarnation: Incarnation(1) };
        let slowness = [1, 1, 1, 16][rng.random_range(0..4)];
        let idleness = [4, 64, 256, 1024][rng.random_range(0..4)];
        let briskness = [1, 16][rng.random_range(0..2)];
        let is_eager = rng.random_range(0..2) == 0;
        let delay = [1, 16, 256][rng.random_range(0..3)];
        World {
            planted,
            slowness,
            idleness,
            briskness,
            is_eager,
            delay,
            rng,
            now: 0,
            drift: Drift::new(PPM, TICK_NS).expect("below a million"),
            clocks,
            words: [lease.word(); NODES],
            heard: [lease.word(); NODES],
            lease,
            lives: (0..NODES).map(life).collect(),
            versions: [0; 2],
            locks: [false; 2],
            readings: [None; NODES],
            writer: 0,
            writing: Writing::Not,
            in_lease: 0,
            fractured: 0,
            changes: 0,
        }
    }

    fn step(&mut self) {
        self.now += self.rng.random_range(0..=2);
        match self.rng.random_range(0..8) {
            0..=2 => {
                let node = self.rng.random_range(0..NODES);
                if self.rng.random_range(0..self.slowness) == 0 {
                    self.read(node);
                }
            }
            3..=4 => (0..self.briskness).for_each(|_| self.write()),
            _ => (0..self.briskness).for_each(|_| self.change()),
        }
    }

    fn read(&mut self, node: usize) {
        let (clock, word, now) = (&self.clocks[node], self.words[node], self.now);
        let Some(mut reading) = self.readings[node] else {
            let (first, seen) = (clock.shows(now), [None; 2]);
            let spared = self.rng.random_range(0..60);
            let nearly = u64::from(word.read_ns()) * 9 / 10;
            let dallies = self.rng.random_range(0..4) > 0;
            let until = first + Nanos(if dallies { nearly.saturating_sub(spared) } else { 0 });
            let (at_start, dallies_until) = (word, until);
            let reading = Reading { at_start, first, seen, second: None, dallies_until };
            self.readings[node] = Some(reading);
            return;
        };
        let unseen = [0, 1].into_iter().filter(|&it| reading.seen[it].is_none());
        let unseen: Vec<usize> = unseen.collect();
        if unseen.len() == 1 && clock.shows(now) < reading.dallies_until {
            return;
        }
        if !unseen.is_empty() {
            let record = unseen[self.rng.random_range(0..unseen.len())];
            reading.seen[record] = Some(self.versions[record]);
            // A reader that finds a locked record aborts.
            self.readings[node] = (!self.locks[record]).then_some(reading);
            return;
        }
        let Some(second) = reading.second else {
            reading.second = Some(clock.shows(now));
            self.readings[node] = Some(reading);
            return;
        };
        self.readings[node] = None;
        let words = match self.planted {
            Planted::AtStart => (reading.at_start, reading.at_start),
            Planted::ShorterOfTwo => {
                let shorter = match reading.at_start.read_ns() < word.read_ns() {
                    true => reading.at_start,
                    false => word,
                };
                (shorter, shorter)
            }
            _ => (reading.at_start, word),
        };
        if in_lease(self.drift, words, (reading.first, second)) {
            self.in_lease += 1;
            self.fractured += u64::from(reading.seen[0] != reading.seen[1]);
        }
    }

    fn write(&mut self) {
        let (node, now) = (self.writer, self.now);
        let shows = self.clocks[node].shows(now);
        let latest = self.versions[0];
        let halfway =
            |it: &Reading| it.seen.iter().flatten().count() == 1 && it.seen.contains(&Some(latest));
        let is_halfway = self.readings.iter().flatten().any(halfway) && self.is_eager;
        self.writing = match self.writing {
            // Most writers begin when a reader has read one of its two records.
            Writing::Not if !is_halfway && self.rng.random_range(0..self.idleness) > 0 => {
                Writing::Not
            }
            Writing::Not => Writing::Locking(shows),
            Writing::Locking(_) if self.rng.random_range(0..self.delay) > 0 => self.writing,
            Writing::Locking(asked) => match self.locks.iter().position(|it| !it) {
                Some(record) => {
                    self.locks[record] = true;
                    Writing::Locking(asked)
                }
                None if self.planted == Planted::FromIssue => Writing::Locked(asked),
                None => Writing::Locked(shows),
            },
            Writing::Locked(at) => Writing::Waiting(may_write_at(self.drift, self.words[node], at)),
            Writing::Waiting(until) if shows < until => Writing::Waiting(until),
            Writing::Waiting(_) => Writing::Storing,
            Writing::Storing if self.versions[0] == self.versions[1] => {
                self.versions[self.rng.random_range(0..2)] += 1;
                Writing::Storing
            }
            Writing::Storing => {
                self.versions = [self.versions[0].max(self.versions[1]); 2];
                self.locks = [false; 2];
                self.writer = self.rng.random_range(0..NODES);
                Writing::Not
            }
        };
    }

    fn change(&mut self) {
        let node = self.rng.random_range(0..NODES);
        let counting = match self.planted {
            Planted::NoAcks => vec![],
            _ => self.lives.clone(),
        };
        match self.rng.random_range(0..8) {
            // A node receives a word, then uses it and then acknowledges it, at three different moments.
            0..=1 if self.rng.random_range(0..self.delay) > 0 => {}
            0..=1 => self.heard[node] = self.lease.word(),
            2..=3 => self.words[node] = self.heard[node],
            4..=5 => self.lease.acknowledge(self.lives[node], self.words[node]),
            6 => {
                let length = LENGTHS[self.rng.random_range(0..LENGTHS.len())];
                let begun = self.lease.propose(length, &counting).expect("short enough");
                self.changes += u64::from(begun.is_ok_and(|word| !word.is_settled()));
                if self.planted == Planted::OneStep {
                    self.lease.go_on(&[]);
                }
            }
            _ => {
                self.lease.go_on(&counting);
            }
        }
    }
}

/// Returns three numbers: reads in lease, reads in lease that saw only one of a writer's two records, and changes of
/// the lease. The function stops after the first world in which a read saw only one of the two records.
fn run(planted: Planted, worlds: u64) -> (u64, u64, u64) {
    let mut sum = (0, 0, 0);
    for seed in 0..worlds {
        let mut world = World::new(planted, seed);
        for _ in 0..8_000 {
            world.step();
        }
        sum = (sum.0 + world.in_lease, sum.1 + world.fractured, sum.2 + world.changes);
        if world.fractured > 0 {
            break;
        }
    }
    sum
}

#[test]
fn a_reader_in_lease_has_seen_all_of_a_writer_or_nothing() {
    let (in_lease, fractured, changes) = run(Planted::Nothing, 1_000);
    assert_eq!(fractured, 0);
    assert!(in_lease > 10_000, "{in_lease}");
    assert!(changes > 10_000, "{changes}");
}

#[test]
fn each_missing_rule_is_noticed() {
    use Planted::*;
    for planted in [ShorterOfTwo, AtStart, FromIssue, NoAcks, OneStep] {
        let (in_lease, fractured, _) = run(planted, 1_000);
        assert!(fractured > 0, "{planted:?}: {in_lease} in lease, none of them wrong");
    }
}

/// The longest true time that a reader may take, and the shortest true time that a writer may wait, over all clocks
/// and start times.
fn extremes(drift: Drift, length_ns: u32) -> (u64, u64) {
    let word = LeaseWord::new(0, length_ns, length_ns);
    let (mut longest, mut shortest) = (0, u64::MAX);
    for (rate, tick) in RATES.into_iter().flat_map(|rate| (1..=4).map(move |tick| (rate, tick))) {
        let clock = Clock { offset: 0, rate, tick };
        for begun in 1_000..1_012 {
            let shown = |passed| clock.shows(begun + passed);
            let trusts = |&passed: &u64| in_lease(drift, (word, word), (shown(0), shown(passed)));
            let waits = |&passed: &u64| shown(passed) < may_write_at(drift, word, shown(0));
            longest = longest.max((0..).take_while(trusts).count() as u64);
            shortest = shortest.min((0..).take_while(waits).count() as u64);
        }
    }
    (longest, shortest)
}

#[test]
fn no_reader_trusts_for_longer_than_any_writer_waits_by_true_time() {
    let margins = |ppm, tick| Drift::new(ppm, tick).expect("below a million");
    for length_ns in [20, 60, 250, 1_500] {
        let (longest, shortest) = extremes(margins(PPM, TICK_NS), length_ns);
        assert!(longest <= shortest, "{length_ns}: {longest} and {shortest}");
        assert!(longest > 0 && shortest < 2 * u64::from(length_ns), "{longest} and {shortest}");
        // If one of the two margins is left out, a reader may take longer than a writer waits.
        let (longest, shortest) = extremes(margins(0, TICK_NS), length_ns.max(60));
        assert!(longest > shortest, "{length_ns}: {longest} and {shortest}");
        let (longest, shortest) = extremes(margins(PPM, 1), length_ns);
        assert!(longest > shortest, "{length_ns}: {longest} and {shortest}");
    }
}

#[test]
fn fields_round_trip_and_a_change_is_another_word() {
    let word = LeaseWord::new(u16::MAX, LEASE_NS_MAX - 1, LEASE_NS_MAX);
    assert_eq!((word.change(), word.read_ns()), (u16::MAX, LEASE_NS_MAX - 1));
    assert_eq!((word.wait_ns(), word.is_settled()), (LEASE_NS_MAX, false));
    assert_eq!(LeaseWord::from_word(word.word()), word);
    assert_ne!(LeaseWord::new(1, 9, 9), LeaseWord::new(2, 9, 9));
}

#[test]
fn margins_are_those_of_the_worst_clocks() {
    let drift = Drift::new(1_000, 1).expect("below a million");
    let word = LeaseWord::new(3, 20_000, 20_000);
    let in_lease = |passed: u64| in_lease(drift, (word, word), (Nanos(5), Nanos(5 + passed)));
    assert!(in_lease(19_979) && !in_lease(19_980), "20 ns in 20 µs, and a tick");
    assert_eq!(may_write_at(drift, word, Nanos(5)), Nanos(5 + 20_021));
    assert_eq!(may_write_at(drift, LeaseWord::NONE, Nanos(5)), Nanos(5));
    let none = (LeaseWord::NONE, LeaseWord::NONE);
    assert!(!super::in_lease(drift, none, (Nanos(5), Nanos(5))), "no time is still a tick");
}

#[test]
fn a_change_waits_for_every_node_that_counts() {
    let life = |slot| NodeId { slot: NodeSlot(slot), incarnation: Incarnation(1) };
    let (one, other) = (life(1), life(2));
    let mut lease = LeaseOfRecord::new(10).expect("short enough");
    let missing = Ok(Err(NotNow::Unacknowledged(vec![one])));
    assert_eq!(lease.propose(20, &[one]), missing);
    lease.acknowledge(one, lease.word());
    assert_eq!(lease.propose(10, &[one]), Ok(Ok(LeaseWord::new(0, 10, 10))), "no change");
    assert_eq!(lease.propose(20, &[one]), Ok(Ok(LeaseWord::new(1, 10, 20))));
    lease.acknowledge(one, LeaseWord::new(0, 10, 10));
    assert!(!lease.go_on(&[one, other]), "that was the last word");
    assert_eq!(lease.propose(30, &[one]), Ok(Err(NotNow::OnItsWay)));
    lease.acknowledge(one, lease.word());
    assert_eq!(lease.unacknowledged(&[one, other]), [other]);
    assert!(!lease.go_on(&[one, other]));
    assert!(lease.go_on(&[one]), "the other is recovered, and does not count");
    assert_eq!(lease.word(), LeaseWord::new(2, 20, 20));
    assert!(!lease.go_on(&[one]) && lease.propose(LEASE_NS_MAX + 1, &[one]).is_err());
}
