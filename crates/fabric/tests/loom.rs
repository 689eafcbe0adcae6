//! Models of the local backend's synchronisation: striped sequence locks, gates, and rings of datagrams. Loom runs
//! each model with every interleaving, and with every value that a machine with a weaker memory order may return.
//!
//! Run the models with `cargo xtask loom`. In an ordinary build, this file is empty. The models run the backend's own
//! code on loom's atomics (`crates/fabric/src/local/sync.rs`).
//!
//! Invariant checked: each model passes, and fails if any one of the orderings or fences that it justifies is
//! removed. The models do not include `membarrier(2)` and copies by vector instructions. In a model, a copy accesses
//! words in any order, which is weaker than the real copy. The models are bounded: at most three preemptions, one
//! WRITE, and five datagrams.

#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;
use std::sync::Arc;
use tarn_fabric::address::{Address, GroupId, Incarnation, NodeId, NodeSlot};
use tarn_fabric::backend::Endpoint;
use tarn_fabric::local::Region;
use tarn_fabric::local::modelled::{Mailboxes, Site, WriteEpoch, plant, run};
use tarn_fabric::local::quiesce::Faults;
use tarn_fabric::round::Round;

const PREEMPTIONS: usize = 3;
const WORDS: usize = 3;

fn check(site: Option<Site>, model: fn()) {
    plant(site);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.max_branches = 20_000;
    builder.check(model);
}

/// One line of memory and its stripe.
struct Line {
    words: [AtomicU64; 8],
    stripe: AtomicU32,
}

impl Line {
    fn new() -> Arc<Line> {
        let words = std::array::from_fn(|_| AtomicU64::new(0));
        Arc::new(Line { words, stripe: AtomicU32::new(0) })
    }

    fn region(&self) -> Region<'_> {
        // SAFETY: the words and the stripe exist as long as `self`. There is one stripe, so the mask is 0. A word in
        // a model takes more than 8 bytes, and the backend's arithmetic takes this into account.
        unsafe { Region::new(self.words.as_ptr(), 64, &self.stripe, 0, 0, true) }
    }
}

fn is_whole(words: &[u64]) -> bool {
    words.iter().all(|word| *word == words[0])
}

/// Models a READ and a WRITE by the functions for any byte range.
fn region_words() {
    let line = Line::new();
    let other = Arc::clone(&line);
    let writer = thread::spawn(move || {
        other.region().write_words(0, &[7; WORDS], true).expect("nobody dies");
    });
    let mut seen = [0; WORDS];
    line.region().read_words(0, &mut seen).expect("nobody dies");
    assert!(is_whole(&seen), "torn: {seen:?}");
    writer.join().expect("no panic");
}

/// Models a WRITE of bytes, whose words are stored without any order.
fn region_bytes() {
    let line = Line::new();
    let other = Arc::clone(&line);
    let writer = thread::spawn(move || {
        other.region().write(0, &[7; 8 * WORDS]).expect("nobody dies");
    });
    let mut seen = [0; WORDS];
    line.region().read_words(0, &mut seen).expect("nobody dies");
    assert!(is_whole(&seen), "torn: {seen:?}");
    writer.join().expect("no panic");
}

/// Models two writers of one line. Only one writer at a time may hold the stripe.
fn two_writers() {
    let line = Line::new();
    let other = Arc::clone(&line);
    let writer = thread::spawn(move || {
        other.region().write(0, &[7; 8 * WORDS]).expect("nobody dies");
    });
    line.region().write_words(0, &[5; WORDS], true).expect("nobody dies");
    writer.join().expect("no panic");
    let mut seen = [0; WORDS];
    line.region().read_words(0, &mut seen).expect("nobody dies");
    assert!(is_whole(&seen) && seen[0] != 0, "torn: {seen:?}");
}

/// Models a READ and a WRITE as verbs of a round, which the fast path executes.
fn round_verbs() {
    let line = Line::new();
    let other = Arc::clone(&line);
    let target = || Address::new(GroupId(0), 0).at(NodeSlot(0));
    let writer = thread::spawn(move || {
        let mut round = Round::new();
        let value = round.reserve(8 * WORDS);
        round.bytes_mut(value, 8 * WORDS).fill(7);
        round.write(target(), value, 8 * WORDS);
        assert!(run(&other.region(), &mut round), "nobody else writes");
    });
    let mut round = Round::new();
    let seen = round.read(target(), 8 * WORDS);
    if run(&line.region(), &mut round) {
        assert!(is_whole(round.words(seen, WORDS)), "torn: {:?}", round.words(seen, WORDS));
    }
    writer.join().expect("no panic");
}

/// Memory that a thread may access only while it is inside a gate, or after it has excluded all other threads.
struct Guarded(UnsafeCell<u64>);

// SAFETY: the model checks that no two threads access the memory at the same time.
unsafe impl Sync for Guarded {}
// SAFETY: as above, the model checks all accesses.
unsafe impl Send for Guarded {}

/// Models the revocation of a node's access while one of the node's threads may be inside a round.
fn gate() {
    let node = NodeId { slot: NodeSlot(0), incarnation: Incarnation(1) };
    let (faults, memory) = (Arc::new(Faults::new(1)), Arc::new(Guarded(UnsafeCell::new(0))));
    let gate = faults.register(node);
    let before = faults.epoch();
    let of_thread = (Arc::clone(&faults), Arc::clone(&memory));
    let inside = thread::spawn(move || {
        let (faults, memory) = of_thread;
        // The steps of a round: the thread announces that it is inside, and then checks whether a fault was declared.
        let _inside = gate.enter();
        if faults.epoch() == before {
            memory.0.with_mut(|_| ());
        }
    });
    faults.fence(node);
    memory.0.with_mut(|_| ());
    inside.join().expect("no panic");
}

/// Models a writer of two records, each with its lock, and a reader that reads both records once.
fn stillness() {
    let records = || [(); 2].map(|()| AtomicU64::new(0));
    let shared = Arc::new((WriteEpoch::default(), records(), records()));
    let other = Arc::clone(&shared);
    let writer = thread::spawn(move || {
        let (stillness, locks, data) = &*other;
        for lock in locks {
            lock.store(1, Ordering::Relaxed);
        }
        stillness.raise();
        for datum in data {
            datum.store(7, Ordering::Relaxed);
        }
        for lock in locks {
            lock.store(2, Ordering::Release);
        }
    });
    let (stillness, locks, data) = &*shared;
    let since = stillness.moment();
    let seen = [0, 1].map(|at| {
        let lock = locks[at].load(Ordering::Acquire);
        (lock != 1).then(|| data[at].load(Ordering::Relaxed))
    });
    if stillness.is_still(since)
        && let [Some(first), Some(second)] = seen
    {
        assert!(first == second, "fractured: {first}, {second}");
    }
    writer.join().expect("no panic");
}

/// Models two writers and a reader. The first writer's lock excludes readers from its record, and the reader reads
/// once.
fn stillness_of_validated() {
    validated(0);
}

/// Models the same as `stillness_of_validated`, but the lock that the first writer holds first lets readers pass.
fn stillness_of_marked() {
    validated(MARKED);
}

/// The word of a lock that lets readers pass. If a record has such a lock, readers read the record again.
const MARKED: u64 = 3;

/// A first writer locks one record, and then validates another record, which a second writer writes. A reader may see
/// the second writer's write and not yet the first writer's write. In that case, the reader's values must be those of
/// a time before the first writer's validation.
fn validated(before: u64) {
    let records = || [(); 2].map(|()| AtomicU64::new(0));
    let shared = Arc::new((WriteEpoch::default(), records(), records()));
    let (first, second) = (Arc::clone(&shared), Arc::clone(&shared));
    shared.1[0].store(before, Ordering::Relaxed);
    let first = thread::spawn(move || {
        let (stillness, locks, data) = &*first;
        locks[0].store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst); // the fence at the end of the first writer's round
        let seen = locks[1].load(Ordering::Acquire);
        if seen != 0 || data[1].load(Ordering::Relaxed) != 0 {
            locks[0].store(0, Ordering::Release);
            return false;
        }
        stillness.raise();
        data[0].store(7, Ordering::Relaxed);
        locks[0].store(2, Ordering::Release);
        true
    });
    let second = thread::spawn(move || {
        let (stillness, locks, data) = &*second;
        locks[1].store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst); // the fence at the end of this writer's round
        stillness.raise();
        data[1].store(7, Ordering::Relaxed);
        locks[1].store(2, Ordering::Release);
    });
    let (stillness, locks, data) = &*shared;
    let since = stillness.moment();
    let mut is_marked = false;
    let seen = [0, 1].map(|at| {
        let lock = locks[at].load(Ordering::Acquire);
        is_marked |= lock == MARKED;
        (lock != 1).then(|| data[at].load(Ordering::Relaxed))
    });
    let mut is_one = stillness.is_still(since);
    if is_marked {
        let lock = locks[0].load(Ordering::Acquire);
        is_one &= lock != 1 && Some(data[0].load(Ordering::Relaxed)) == seen[0];
    }
    let has_committed = first.join().expect("no panic");
    second.join().expect("no panic");
    if is_one && has_committed {
        assert!(seen != [Some(0), Some(7)], "behind the second, in front of the first");
    }
}

/// Models datagrams of one word from one thread to another thread. The model sends more datagrams than the ring has
/// room for.
fn ring() {
    const DATAGRAMS: u64 = 5;
    let endpoint = |node| Endpoint { node: NodeSlot(node), thread: 0 };
    let mailboxes = Arc::new(Mailboxes::default());
    let (mut sender, _mine) = mailboxes.register(endpoint(0));
    let (_theirs, mut receiver) = mailboxes.register(endpoint(1));
    let shared = Arc::clone(&mailboxes);
    let send = thread::spawn(move || {
        for number in 1..=DATAGRAMS {
            sender.send(&shared, endpoint(1), &number.to_le_bytes()).expect("a short one");
        }
    });
    let mut last = 0;
    for _ in 0..3 {
        receiver.receive(2, &mut |_, bytes| {
            let number = u64::from_le_bytes(bytes.try_into().expect("one word"));
            assert!(number > last && number <= DATAGRAMS, "{number} after {last}");
            last = number;
        });
        thread::yield_now();
    }
    send.join().expect("no panic");
}

/// Asserts that the model fails if this site has no ordering, and that it fails because of the values that it
/// observed. A search that reached its bounds does not count, because it has found no wrong value.
fn assert_found(site: Site, model: fn()) {
    let found = std::panic::catch_unwind(|| check(Some(site), model)).expect_err("it is noticed");
    let text = found
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| found.downcast_ref::<&str>().map(ToString::to_string))
        .unwrap_or_default();
    let bounds = ["exceeded", "deadlock"];
    assert!(!text.is_empty() && !bounds.iter().any(|bound| text.contains(bound)), "{text}");
}

/// Defines a test that the model passes. For each site, it also defines a test that the model fails without that
/// site.
macro_rules! models {
    ($($model:ident: $($planted:ident = $site:ident),*;)*) => {$(
        mod $model {
            use super::*;

            #[test]
            fn passes() {
                check(None, super::$model);
            }

            $(#[test]
            fn $planted() {
                assert_found(Site::$site, super::$model);
            })*
        }
    )*};
}

models! {
    region_words: finds_read = StripeRead, finds_read_again = StripeReadAgain,
        finds_released = StripeReleased;
    region_bytes: finds_read = StripeRead, finds_read_again = StripeReadAgain,
        finds_taken = StripeTaken, finds_released = StripeReleased;
    two_writers: finds_released = StripeReleased;
    round_verbs: finds_read = StripeRead, finds_read_again = StripeReadAgain,
        finds_taken = StripeTaken, finds_released = StripeReleased;
    gate: finds_entered = GateEntered, finds_left = GateLeft;
    stillness: finds_ended = StillnessEnded, finds_ended_before = StillnessEndedBefore,
        finds_seen = StillnessSeen, finds_seen_again = StillnessSeenAgain;
    stillness_of_validated: finds_ended = StillnessEnded, finds_ended_before = StillnessEndedBefore,
        finds_seen = StillnessSeen, finds_seen_again = StillnessSeenAgain;
    stillness_of_marked: finds_ended_before = StillnessEndedBefore,
        finds_seen_again = StillnessSeenAgain;
    ring: finds_published = TailPublished, finds_seen = TailSeen,
        finds_given_back = HeadPublished, finds_room_seen = HeadSeen;
}
