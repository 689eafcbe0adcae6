//! Tests of random mode: all orders that the contract allows happen, and no order that the contract
//! forbids happens.

use crate::common::{at, compute, fabric, port};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use tarn_fabric::address::NodeSlot;
use tarn_fabric::backend::Endpoint;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::block_on;
use tarn_fabric::port::Port;
use tarn_fabric::round::{BufferOffset, Round};
use tarn_sim::config::{Chaos, Mode};
use tarn_sim::fabric::SimFabric;
use tarn_sim::scheduler::{Ended, Scheduler};

const LINES: usize = 4;

fn random(seed: u64) -> SimFabric {
    fabric("cx5-100g", Mode::Random(Chaos::of(seed)), seed)
}

/// Fills whole lines of a round's buffer with words that are all `value`.
fn lines_of(round: &mut Round, value: u64) -> BufferOffset {
    let lines = round.reserve_lines(LINES * 64);
    (0..LINES * 8).for_each(|word| round.set_word(lines.plus(word * 8), value));
    lines
}

/// One node writes four lines again and again, and another node reads them. Each line that the reader
/// sees is whole, and the reader sees every mixture of old and new lines.
#[test]
fn lines_are_whole_and_land_in_any_order() {
    let mixtures = RefCell::new(BTreeSet::new());
    for seed in 0..400 {
        let fabric = random(seed);
        let mut scheduler = Scheduler::new(&fabric);
        let (writer, reader) = (port(&fabric, 0, 0), port(&fabric, 1, 0));
        let by = writer.clone();
        scheduler.spawn(&writer, async move {
            let mut round = Round::new();
            for value in 1..20 {
                round.clear();
                let lines = lines_of(&mut round, value);
                round.write(at(1024), lines, LINES * 64);
                by.execute(&mut round).await.unwrap();
            }
        });
        let (by, mixtures) = (reader.clone(), &mixtures);
        scheduler.spawn(&reader, async move {
            let mut round = Round::new();
            for _ in 0..20 {
                round.clear();
                let lines = round.read(at(1024), LINES * 64);
                by.execute(&mut round).await.unwrap();
                let seen: [u64; LINES] = std::array::from_fn(|line| {
                    let words = round.words(lines.plus(line * 64), 8);
                    assert!(words.iter().all(|word| *word == words[0]), "a torn line");
                    words[0]
                });
                let newest = *seen.iter().max().unwrap();
                mixtures.borrow_mut().insert(seen.map(|value| value == newest));
            }
        });
        assert_eq!(scheduler.run_until(Nanos(1 << 40)), Ended::Finished);
    }
    let mixtures = mixtures.into_inner();
    assert_eq!(mixtures.len(), (1 << LINES) - 1, "every mixture, but for none new: {mixtures:?}");
}

/// Sends a READ and a WRITE of one word in one batch. Returns whether the READ ever saw the value
/// that the WRITE of its own batch wrote.
async fn overtakes(by: &Port, is_fenced: bool) -> bool {
    let mut round = Round::new();
    let mut overtook = false;
    for value in 1..30 {
        round.clear();
        let seen = round.read(at(64), 8);
        let word = round.reserve(8);
        round.set_word(word, value);
        if is_fenced {
            round.fence();
        }
        round.write(at(64), word, 8);
        let after = round.read(at(64), 8);
        by.execute(&mut round).await.unwrap();
        assert_eq!(round.word(after), value, "a READ passed the WRITE before it");
        overtook |= round.word(seen) == value;
    }
    overtook
}

#[test]
fn a_write_overtakes_a_read_unless_it_is_fenced() {
    for (is_fenced, expected) in [(false, true), (true, false)] {
        let fabric = random(5);
        let port = port(&fabric, 0, 0);
        let by = port.clone();
        let future = async move { overtakes(&by, is_fenced).await };
        let found = Scheduler::new(&fabric).block_on(&port, future);
        assert_eq!(found, expected, "fenced: {is_fenced}");
    }
}

#[test]
fn later_rounds_come_after_a_detached_one() {
    for seed in 0..30 {
        let fabric = random(seed);
        let port = port(&fabric, 0, 0);
        let by = port.clone();
        Scheduler::new(&fabric).block_on(&port, async move {
            for value in 1..20 {
                let mut round = Round::new();
                let lines = lines_of(&mut round, value);
                round.write(at(1024), lines, LINES * 64);
                let detached = by.post_detached(&mut round).unwrap();
                round.clear();
                let seen = round.read(at(1024), LINES * 64);
                by.execute(&mut round).await.unwrap();
                (0..LINES).for_each(|line| assert_eq!(round.word(seen.plus(line * 64)), value));
                by.settle(detached).await.unwrap();
            }
        });
    }
}

/// Rounds whose order the contract does not fix overtake one another.
#[test]
fn rounds_of_two_coroutines_are_concurrent() {
    let passed = (0..20).any(|seed| {
        let fabric = random(seed);
        let port = port(&fabric, 0, 0);
        let first = RefCell::new(Vec::new());
        let mut scheduler = Scheduler::new(&fabric);
        for _ in 0..2 {
            let (by, first) = (port.clone(), &first);
            scheduler.spawn(&port, async move {
                let mut round = Round::new();
                let faa = round.faa(at(64), 1);
                by.execute(&mut round).await.unwrap();
                first.borrow_mut().push(round.found(faa));
            });
        }
        scheduler.run_until(Nanos(1 << 40));
        drop(scheduler);
        first.into_inner() == [1, 0]
    });
    assert!(passed);
}

/// When access is revoked, some of the lines in flight have landed and the other lines will never land.
#[test]
fn a_fence_leaves_landed_pieces_in_place() {
    let mut landed = BTreeSet::new();
    for seed in 0..200 {
        let fabric = random(seed);
        let (writer, keeper) = (port(&fabric, 0, 0), port(&fabric, 1, 0));
        let mut scheduler = Scheduler::new(&fabric);
        let by = writer.clone();
        scheduler.spawn(&writer, async move {
            let mut round = Round::new();
            let lines = lines_of(&mut round, 1);
            round.write(at(1024), lines, LINES * 64);
            let _ = by.execute(&mut round).await;
        });
        scheduler.run_until(Nanos(900 + seed));
        fabric.fence(compute(0));
        let look = || {
            let mut round = Round::new();
            let seen = round.read(at(1024), LINES * 64);
            block_on(keeper.execute(&mut round)).unwrap(); // the cluster is at rest
            (0..LINES).filter(|line| round.word(seen.plus(line * 64)) == 1).count()
        };
        let at_once = look();
        assert_eq!(scheduler.run_until(Nanos(1 << 40)), Ended::Finished);
        scheduler.drain();
        assert_eq!(look(), at_once, "seed {seed}: it landed after the fence");
        landed.insert(at_once);
    }
    assert!(landed.len() > 2, "{landed:?}");
}

/// In random mode messages are lost, doubled and reordered, but each message that arrives is whole. In
/// timed mode messages arrive once, in order.
#[test]
fn messages_are_lost_doubled_and_delayed_as_the_mode_says() {
    let received = |mode, seed| {
        let fabric = fabric("cx5-100g", mode, seed);
        let (sender, receiver) = (port(&fabric, 0, 0), port(&fabric, 1, 3));
        let mut scheduler = Scheduler::new(&fabric);
        let (by, to) = (sender.clone(), Endpoint { node: NodeSlot(1), thread: 3 });
        scheduler.spawn(&sender, async move {
            for number in 0..100u64 {
                by.send(to, &number.to_le_bytes()).unwrap();
                by.yield_now().await;
            }
        });
        let (by, heard) = (receiver.clone(), Rc::new(RefCell::new(Vec::new())));
        let notes = Rc::clone(&heard);
        scheduler.spawn(&receiver, async move {
            loop {
                by.receive(8, &mut |from, bytes| {
                    assert_eq!(from, Endpoint { node: NodeSlot(0), thread: 0 });
                    notes.borrow_mut().push(u64::from_le_bytes(bytes.try_into().unwrap()));
                });
                by.yield_now().await;
            }
        });
        scheduler.run_until(Nanos(1_000_000));
        drop(scheduler);
        heard.take()
    };
    let all: Vec<u64> = (0..100).collect();
    assert_eq!(received(Mode::Timed, 1), all);
    let mut unkind = Chaos::CALM;
    (unkind.loss_percent, unkind.duplicate_percent) = (20, 20);
    unkind.message_delay_max_ns = 20_000;
    let heard = received(Mode::Random(unkind), 1);
    let distinct: BTreeSet<u64> = heard.iter().copied().collect();
    assert!(distinct.len() < 100 && distinct.len() > 60, "some were lost");
    assert!(distinct.len() < heard.len(), "some came twice");
    assert!(!heard.is_sorted(), "some were overtaken");
    assert_eq!(heard, received(Mode::Random(unkind), 1));
}

#[test]
fn equal_seeds_give_equal_runs() {
    let digest = |seed| {
        let fabric = random(seed);
        let port = port(&fabric, 0, 0);
        let by = port.clone();
        let future = async move { overtakes(&by, false).await };
        Scheduler::new(&fabric).block_on(&port, future);
        fabric.digest()
    };
    for seed in 0..10 {
        assert_eq!(digest(seed), digest(seed));
        assert_ne!(digest(seed), digest(seed + 100));
    }
}

/// A protocol that relies on time reads its node's clock. The reading of the clock never falls. The
/// true time lies within the interval that the node computes, and the node's clock measures sleeps.
/// The clocks of two nodes differ by no more than the bounds allow.
#[test]
fn nodes_see_their_own_clocks() {
    let mut apart = 0;
    for seed in 0..30 {
        let chaos =
            Chaos { clock_offset_max_ns: 5_000, clock_drift_max_ppm: 1_000, ..Chaos::of(seed) };
        let fabric = fabric("cx5-100g", Mode::Random(chaos), seed);
        let seen = RefCell::new(Vec::new());
        let mut scheduler = Scheduler::new(&fabric);
        for (slot, thread) in [(0, 0), (0, 1), (1, 0)] {
            let (by, seen) = (port(&fabric, slot, thread), &seen);
            scheduler.spawn(&by.clone(), async move {
                let mut round = Round::new();
                for _ in 0..30 {
                    let (now, interval, truth) = (by.now(), by.clock(), by.observed());
                    assert!(interval.earliest <= truth && truth <= interval.latest, "seed {seed}");
                    let bound = Nanos(5_020 + truth.0 / 990);
                    assert!(interval.latest - interval.earliest <= bound + bound, "seed {seed}");
                    assert!(truth - now <= bound && now - truth <= bound, "seed {seed}");
                    seen.borrow_mut().push((slot, truth, now));
                    by.sleep(Nanos(700)).await;
                    assert!(by.now() >= now + Nanos(700), "seed {seed}: it slept too short");
                    round.clear();
                    round.faa(at(64), 1);
                    by.execute(&mut round).await.unwrap();
                }
            });
        }
        assert_eq!(scheduler.run_until(Nanos(1 << 40)), Ended::Finished);
        drop(scheduler);
        let mut seen = seen.into_inner();
        seen.sort_by_key(|(_, truth, _)| *truth);
        for slot in [0, 1] {
            let mine = seen.iter().filter(|(of, ..)| *of == slot).map(|(.., now)| *now);
            assert!(mine.is_sorted(), "seed {seed}: the clock of node {slot} fell");
        }
        // In the order of true time, some later readings of one node's clock are lower than earlier
        // readings of another node's clock. Readings that are compared without their intervals would
        // be misleading.
        apart += u32::from(!seen.iter().map(|(.., now)| *now).is_sorted());
    }
    assert!(apart > 20, "clocks differed in {apart} of 30 runs");
}

/// If the bug of torn lines is planted, readers see half of one value and half of the next value.
#[test]
fn planted_torn_lines_are_torn() {
    let torn = (0..20).any(|seed| {
        let chaos = Chaos { planted_torn_lines: true, ..Chaos::of(seed) };
        let fabric = fabric("cx5-100g", Mode::Random(chaos), seed);
        let torn = RefCell::new(false);
        let mut scheduler = Scheduler::new(&fabric);
        for slot in [0, 1] {
            let (by, torn) = (port(&fabric, slot, 0), &torn);
            scheduler.spawn(&by.clone(), async move {
                let mut round = Round::new();
                for value in 1..20 {
                    round.clear();
                    if slot == 0 {
                        let lines = lines_of(&mut round, value);
                        round.write(at(1024), lines, 64);
                    } else {
                        round.read(at(1024), 64);
                    }
                    by.execute(&mut round).await.unwrap();
                    let words = round.words(round.verbs()[0].buffer(), 8);
                    *torn.borrow_mut() |= words.iter().any(|word| *word != words[0]);
                }
            });
        }
        assert_eq!(scheduler.run_until(Nanos(1 << 40)), Ended::Finished);
        drop(scheduler);
        torn.into_inner()
    });
    assert!(torn);
}
