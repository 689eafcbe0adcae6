//! Tests of changes of readers' leases at the service in one process, while incarnations join, are expelled, and are
//! recovered.
//!
//! Invariant checked: for any two incarnations that may still run, the readers of neither trust their reads for
//! longer than the other's writers wait, at every moment. Each test breaks a rule for nodes or recoverers on purpose,
//! and detects that the rule is broken.

use super::*;
use crate::cluster::lease::{LEASE_NS_MAX, LeasePolicy, NodeLease, NotNow};
use rand::RngExt as _;
use tarn_fabric::rng::{Rng, seeded};

const SLOTS: usize = 3;
const LENGTHS: [u32; 3] = [20, 60, 250];

/// The rule that a test breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Planted {
    Nothing,
    /// A node acknowledges a lease word before it uses the word.
    AcknowledgedFirst,
    /// An incarnation is declared recovered before its access is revoked.
    RecoveredFirst,
    /// An incarnation begins with the last lease word of its slot, and acknowledges the present word.
    JoinedWithTheLast,
}

/// An incarnation that may still run.
struct Running {
    life: NodeId,
    /// The lease word that a thread of the incarnation loads now.
    uses: LeaseWord,
    lease: NodeLease,
    is_recovered: bool,
}

struct World {
    planted: Planted,
    rng: Rng,
    service: EmbeddedMembership,
    running: Vec<Running>,
    /// For each slot, the last lease word that an incarnation of the slot used.
    last: [LeaseWord; SLOTS],
    words: BTreeSet<u16>,
}

impl World {
    fn new(planted: Planted, seed: u64) -> World {
        let service = EmbeddedMembership::new(SLOTS);
        let (running, last, words) = (Vec::new(), [LeaseWord::NONE; SLOTS], BTreeSet::new());
        World { planted, rng: seeded(seed, 0), service, running, last, words }
    }

    fn join(&mut self) {
        let slot = self.rng.random_range(0..SLOTS);
        let at = NodeSlot(slot as u16);
        if self.running.iter().any(|it| it.life.slot == at && !it.is_recovered) {
            return;
        }
        let Ok(life) = self.service.join(at) else { return };
        let lease = NodeLease::of(&self.service, life);
        let has_last = self.planted == Planted::JoinedWithTheLast;
        let uses = if has_last { self.last[slot] } else { lease.load() };
        self.running.push(Running { life, uses, lease, is_recovered: false });
    }

    fn follow(&mut self, at: usize) {
        let it = &mut self.running[at];
        if self.planted == Planted::AcknowledgedFirst {
            let word = self.service.read_lease();
            self.service.acknowledge_read_lease(it.life, word);
            // The incarnation's threads may or may not see the word yet.
            if self.rng.random_range(0..3) > 0 {
                return;
            }
        }
        it.lease.follow(&self.service, it.life);
        it.uses = it.lease.load();
        self.last[usize::from(it.life.slot.0)] = it.uses;
    }

    fn recover(&mut self, at: usize) {
        let dead = self.running[at].life;
        let Some(by) = self.running.iter().map(|it| it.life).find(|it| *it != dead) else { return };
        if !matches!(self.service.claim_recovery(dead, by), Claim::Granted { .. }) {
            return;
        }
        if self.planted == Planted::RecoveredFirst {
            // The incarnation's access is revoked later, or was revoked already.
            self.running[at].is_recovered = self.service.recovered(dead, by);
            return;
        }
        self.running.swap_remove(at);
        assert!(self.service.recovered(dead, by));
    }

    fn step(&mut self) {
        let count = self.running.len().max(1);
        let at = self.rng.random_range(0..count);
        match self.rng.random_range(0..12) {
            0..=1 => self.join(),
            _ if self.running.is_empty() => {}
            2..=6 => self.follow(at),
            7..=8 => {
                let length = LENGTHS[self.rng.random_range(0..LENGTHS.len())];
                let by = self.running[at].life;
                let change = self.service.change_read_lease(by, length).expect("short enough");
                let is_member = self.service.is_member(by);
                assert_eq!(change == ReadLeaseChange::NotMember, !is_member);
            }
            9 => {
                self.service.expel(self.running[at].life);
            }
            _ if self.running[at].is_recovered => {
                self.running.swap_remove(at);
            }
            _ => self.recover(at),
        }
        self.words.insert(self.service.read_lease().change());
    }

    /// Whether there are two incarnations of which one trusts its reads for longer than the other one's writers wait.
    fn is_broken(&self) -> bool {
        let all = || self.running.iter().map(|it| it.uses);
        all().any(|reads| all().any(|waits| reads.read_ns() > waits.wait_ns()))
    }
}

/// Returns the number of different lease words, and whether the invariant was broken in any world.
fn run(planted: Planted, worlds: u64) -> (usize, bool) {
    let mut words = 0;
    for seed in 0..worlds {
        let mut world = World::new(planted, seed);
        for _ in 0..400 {
            world.step();
            if world.is_broken() {
                return (words, true);
            }
        }
        words += world.words.len();
    }
    (words, false)
}

#[test]
fn no_reader_trusts_for_longer_than_any_writer_waits() {
    let (words, is_broken) = run(Planted::Nothing, 500);
    println!("{words} words");
    assert!(!is_broken);
    assert!(words > 2_000, "{words}");
}

#[test]
fn each_planted_mistake_is_noticed() {
    for planted in [Planted::AcknowledgedFirst, Planted::RecoveredFirst, Planted::JoinedWithTheLast]
    {
        assert!(run(planted, 500).1, "{planted:?}");
    }
}

fn lives(service: &EmbeddedMembership) -> [NodeId; 2] {
    [0, 1].map(|slot| service.join(NodeSlot(slot)).expect("a life"))
}

#[test]
fn a_change_of_length_passes_through_the_shorter_lease_and_the_longer_wait() {
    let service = EmbeddedMembership::new(2);
    let [one, other] = lives(&service);
    let missing = NotNow::Unacknowledged(vec![one, other]);
    assert_eq!(service.change_read_lease(one, 10), Ok(ReadLeaseChange::NotNow(missing)));
    let (mine, theirs) = (NodeLease::of(&service, one), NodeLease::of(&service, other));
    let word = LeaseWord::new(1, 0, 10);
    assert_eq!(service.change_read_lease(one, 10), Ok(ReadLeaseChange::Begun(word)));
    assert_eq!(service.change_read_lease(one, 20), Ok(ReadLeaseChange::NotNow(NotNow::OnItsWay)));
    assert!(mine.follow(&service, one) && !mine.follow(&service, one));
    assert_eq!((service.read_lease(), service.read_lease_missing()), (word, vec![other]));
    assert!(theirs.follow(&service, other));
    assert_eq!((service.read_lease(), theirs.load()), (LeaseWord::new(2, 10, 10), word));
    service.acknowledge_read_lease(one, word);
    assert_eq!(service.read_lease_missing(), [one, other], "that was the word before");
    let refused = service.change_read_lease(one, LEASE_NS_MAX + 1).expect_err("too long");
    assert_eq!(refused.field, "read_lease_ns");
    service.leave(other);
    assert_eq!(service.change_read_lease(other, 5), Ok(ReadLeaseChange::NotMember));
}

#[test]
fn a_node_that_delays_a_change_is_expelled_and_counts_until_its_recovery() {
    let terms = LeaseTerms { lease_ns: 1_000, renew_every_ns: 300, drift_ppm: 0 };
    let service = EmbeddedMembership::with_leases(2, terms);
    let [one, silent] = lives(&service);
    let mine = NodeLease::of(&service, one);
    let _theirs = NodeLease::of(&service, silent);
    let tick = |now| {
        for member in [one, silent] {
            service.renew(member);
        }
        service.tick(Nanos(now))
    };
    assert!(tick(0).is_empty() && tick(9_000).is_empty(), "nobody is waited for");
    assert!(matches!(service.change_read_lease(one, 10), Ok(ReadLeaseChange::Begun(_))));
    assert!(mine.follow(&service, one));
    assert!(tick(10_000).is_empty(), "counted from here");
    assert!(matches!(service.change_read_lease(one, 20), Ok(ReadLeaseChange::NotNow(_))));
    assert!(tick(10_999).is_empty());
    assert_eq!(tick(11_000), [silent]);
    service.expel(silent);
    assert_eq!(service.read_lease_missing(), [silent], "it may still run");
    assert!(!mine.follow(&service, one));
    assert_eq!(service.claim_recovery(silent, one), Claim::Granted { before: vec![] });
    assert!(service.recovered(silent, one));
    assert_eq!(service.read_lease(), LeaseWord::new(2, 10, 10));
    assert!(mine.follow(&service, one) && service.read_lease_missing().is_empty());
    assert!(tick(90_000).is_empty());
}

#[test]
fn one_node_at_a_time_adjusts_leases_and_another_takes_over() {
    let policy = LeasePolicy::new(1_000, (10, 1_000)).expect("as it should be");
    let service = EmbeddedMembership::new(3).adjusting_reads(Some(policy));
    let [one, other, third] = [0, 1, 2].map(|slot| service.join(NodeSlot(slot)).expect("a life"));
    assert_eq!(service.read_lease_policy(), Some(policy));
    assert_eq!(service.manage_read_lease(other), Management::Granted);
    assert_eq!(service.manage_read_lease(one), Management::Held { by: other });
    assert_eq!(service.manage_read_lease(other), Management::Granted, "the answer is the same");
    service.expel(other);
    assert_eq!(service.manage_read_lease(other), Management::NotNow);
    assert_eq!(service.manage_read_lease(third), Management::Granted);
    service.retire(third);
    assert_eq!(service.manage_read_lease(third), Management::NotNow, "it runs nothing");
    assert_eq!(
        (service.manage_read_lease(one), service.running()),
        (Management::Granted, vec![one])
    );
    let [alone, _] = lives(&EmbeddedMembership::new(2));
    assert_eq!(EmbeddedMembership::new(2).manage_read_lease(alone), Management::NotNow);
}

#[test]
fn a_manager_that_dies_half_way_needs_no_repair() {
    let policy = LeasePolicy::new(1_000, (10, 1_000)).expect("as it should be");
    let service = EmbeddedMembership::new(2).adjusting_reads(Some(policy));
    let [manager, other] = lives(&service);
    let mine = NodeLease::of(&service, other);
    let theirs = NodeLease::of(&service, manager);
    assert_eq!(service.manage_read_lease(manager), Management::Granted);
    assert!(matches!(service.change_read_lease(manager, 20), Ok(ReadLeaseChange::Begun(_))));
    assert!(theirs.follow(&service, manager) && mine.follow(&service, other));
    // The manager has not used the second word when it dies.
    service.expel(manager);
    assert_eq!(service.manage_read_lease(other), Management::Granted);
    assert!(mine.follow(&service, other));
    assert_eq!(service.read_lease_missing(), [manager], "it may still run");
    assert_eq!(service.claim_recovery(manager, other), Claim::Granted { before: vec![] });
    assert!(service.recovered(manager, other));
    assert_eq!(service.read_lease(), LeaseWord::new(2, 20, 20));
    assert!(matches!(service.change_read_lease(other, 90), Ok(ReadLeaseChange::Begun(_))));
    assert!(mine.follow(&service, other) && mine.follow(&service, other));
    assert_eq!(service.read_lease(), LeaseWord::new(4, 90, 90));
}
