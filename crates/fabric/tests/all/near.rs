//! Tests that near memory keeps the contract of rounds: a visit has the same effects as a round with the same verbs.
//!
//! Invariant checked: random visits and rounds of the same verbs leave the same bytes and the same counts. Real
//! threads see only whole lines, and the test would detect torn lines. Visits are refused like rounds. The revocation
//! of a node's access waits for the end of a visit. Tests that need two threads at the same time say so, and are
//! skipped on a machine with one core.

#![allow(clippy::disallowed_methods, reason = "drives real threads and watches real time")]

use crate::one_core;
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tarn_fabric::address::{Address, GroupId, Incarnation, NodeId, NodeSlot, Target};
use tarn_fabric::error::FabricError;
use tarn_fabric::executor::block_on;
use tarn_fabric::local::{Backing, LineAtomicity, LocalConfig, LocalFabric};
use tarn_fabric::port::Port;
use tarn_fabric::round::Round;

const STRIPED: LineAtomicity = LineAtomicity::Striped { bits: 10 };
const ARENA: u64 = 2048;

fn fabric(memory_nodes: usize, atomicity: LineAtomicity) -> Arc<LocalFabric> {
    let (group_bytes, backing) = (1 << 16, Backing::Private);
    let config =
        LocalConfig { memory_nodes, group_bytes, atomicity, backing, ..LocalConfig::default() };
    LocalFabric::new(&config).unwrap()
}

fn compute(slot: u16) -> NodeId {
    NodeId { slot: NodeSlot(slot), incarnation: Incarnation(1) }
}

/// Returns a target in the group of one of two nodes.
fn at(node: u16, offset: u64) -> Target {
    Address::new(GroupId(node), offset).at(NodeSlot(node))
}

#[derive(Clone, Debug)]
enum Step {
    /// Searches for a line that consists of one part or of two parts.
    Find {
        node: u16,
        line: u64,
        lines: usize,
        word: usize,
        wanted: u64,
        halves: bool,
    },
    /// Reads two words of a line.
    Words {
        node: u16,
        line: u64,
        word: u64,
    },
    Write {
        node: u16,
        word: u64,
        words: Vec<u64>,
        private: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let small = 0u64..3;
    let find = (0..2u16, 0..ARENA / 64 - 8, 1..8usize, 0..8usize, small.clone(), any::<bool>());
    let two = (0..2u16, 0..ARENA / 64, 0..7u64);
    let words = prop::collection::vec(small, 1..70);
    let write = (0..2u16, 0..ARENA / 8 - 70, words, any::<bool>());
    prop_oneof![
        find.prop_map(|(node, line, lines, word, wanted, halves)| Step::Find {
            node,
            line,
            lines,
            word: if halves { word % 4 } else { word },
            wanted,
            halves
        }),
        two.prop_map(|(node, line, word)| Step::Words { node, line, word }),
        write.prop_map(|(node, word, words, private)| Step::Write { node, word, words, private }),
    ]
}

/// The result of a step that searches or reads. A search returns the number of the part and the words of its line. A
/// READ of words returns only the words.
type Found = Option<(usize, Vec<u64>)>;

/// The way in which a step uses the bytes of a READ.
enum Look {
    Find { lines: usize, word: usize, wanted: u64, parts: usize },
    Words,
}

/// Executes the steps as one round. For each step that searches for a line, returns the first match with the words of
/// its line.
fn by_round(port: &Port, steps: &[Step]) -> Vec<Found> {
    let mut round = Round::new();
    let mut reads = Vec::new();
    for step in steps {
        match step {
            &Step::Find { node, line, lines, word, wanted, halves } => {
                let read = round.read(at(node, line * 64), lines * 64);
                let parts = if halves { 2 } else { 1 };
                reads.push((read, Look::Find { lines, word, wanted, parts }));
            }
            Step::Words { node, line, word } => {
                reads.push((round.read(at(*node, line * 64 + word * 8), 16), Look::Words));
            }
            Step::Write { node, word, words, private } => {
                let bytes = round.reserve(words.len() * 8);
                round.words_mut(bytes, words.len()).copy_from_slice(words);
                let (to, len) = (at(*node, word * 8), words.len() * 8);
                round.fence(); // a READ comes before a later WRITE only with a fence
                match private {
                    true => round.write_private(to, bytes, len),
                    false => round.write(to, bytes, len),
                }
            }
        }
    }
    block_on(port.execute(&mut round)).unwrap();
    let found = |(read, look): (tarn_fabric::round::BufferOffset, Look)| match look {
        Look::Words => Some((0, round.words(read, 2).to_vec())),
        Look::Find { lines, word, wanted, parts } => {
            let line = |part: usize| round.words(read.plus(part / parts * 64), 8).to_vec();
            let is_it = |part: &usize| line(*part)[part % parts * (8 / parts) + word] == wanted;
            (0..lines * parts).find(is_it).map(|part| (part, line(part)))
        }
    };
    reads.into_iter().map(found).collect()
}

fn by_visit(port: &Port, steps: &[Step]) -> Vec<Found> {
    let near = port.near().expect("near memory");
    near.visit(at(0, 0), |visit| {
        let mut all = Vec::new();
        for step in steps {
            match step {
                &Step::Find { node, line, lines, word, wanted, halves } => {
                    let (mut words, place) = ([9; 8], (at(node, line * 64), lines));
                    let found = match halves {
                        true => visit.find_part::<2>(place, (word, wanted), &mut words),
                        false => visit.find_line(place, (word, wanted), &mut words),
                    };
                    all.push(found.unwrap().map(|part| (part, words.to_vec())));
                }
                Step::Words { node, line, word } => {
                    let words = visit.read_words::<2>(at(*node, line * 64 + word * 8)).unwrap();
                    all.push(Some((0, words.to_vec())));
                }
                Step::Write { node, word, words, private: false } => {
                    visit.write(at(*node, word * 8), words).unwrap();
                }
                Step::Write { node, word, words, private: true } => {
                    visit.write_private(at(*node, word * 8), words).unwrap();
                }
            }
        }
        all
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn visits_and_rounds_have_the_same_effects(
        rounds in prop::collection::vec(prop::collection::vec(step(), 1..10), 1..8),
    ) {
        let ports = [0, 1].map(|_| fabric(2, STRIPED).port(compute(0), 0, 1));
        for steps in rounds {
            prop_assert_eq!(by_visit(&ports[0], &steps), by_round(&ports[1], &steps));
        }
        prop_assert_eq!(ports[0].counts(), ports[1].counts());
        let [one, other] = ports.each_ref().map(|port| {
            let mut round = Round::new();
            let all = [0, 1].map(|node| round.read(at(node, 0), ARENA as usize));
            block_on(port.execute(&mut round)).unwrap();
            all.map(|read| round.bytes(read, ARENA as usize).to_vec())
        });
        prop_assert_eq!(one, other);
    }
}

/// One thread writes lines whose eight words are equal, and another thread reads these lines. Returns whether the
/// reader saw a mixture of two lines.
fn a_torn_line_is_seen(fabric: &Arc<LocalFabric>, limit: Duration) -> bool {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let port = fabric.port(compute(0), 0, 1);
            let (near, mut value) = (port.near().unwrap(), 0u64);
            while !stop.load(Ordering::Relaxed) {
                value = (value + 1) % 16;
                near.visit(at(0, 4096), |visit| visit.write(at(0, 4096), &[value; 8])).unwrap();
            }
        });
        let port = fabric.port(compute(1), 0, 1);
        let (near, started, mut torn) = (port.near().unwrap(), Instant::now(), false);
        while !torn && started.elapsed() < limit {
            for wanted in (0..1000).map(|turn| turn % 16) {
                let mut words = [wanted; 8];
                let place = (at(0, 4096), 1);
                let (found, pair) = near.visit(place.0, |visit| {
                    let found = visit.find_line(place, (3, wanted), &mut words).unwrap();
                    (found, visit.read_words::<2>(at(0, 4096 + 24)).unwrap())
                });
                torn |= found.is_some() && words != [wanted; 8] || pair[0] != pair[1];
            }
        }
        stop.store(true, Ordering::Relaxed);
        torn
    })
}

#[test]
fn lines_are_never_torn_and_plain_copies_are() {
    if one_core() {
        return;
    }
    assert!(!a_torn_line_is_seen(&fabric(1, STRIPED), Duration::from_secs(2)));
    let planted = fabric(1, LineAtomicity::PlantedTorn);
    assert!(a_torn_line_is_seen(&planted, Duration::from_secs(60)), "the test sees nothing");
}

#[test]
fn a_visit_to_unreachable_memory_fails_as_a_round_does() {
    let fabric = fabric(2, STRIPED);
    let port = fabric.port(compute(1), 0, 1);
    let near = port.near().unwrap();
    let write = |to: Target, words: &[u64]| {
        near.visit(to, |visit| visit.write(to, words)).map_err(|it| *it)
    };
    let as_round = |to: Target, words: &[u64]| {
        let mut round = Round::new();
        let bytes = round.reserve(words.len() * 8);
        round.write(to, bytes, words.len() * 8);
        block_on(port.execute(&mut round)).map_err(|it| *it)
    };
    let end = 1 << 16;
    let places = [at(0, end), at(0, end - 8), at(1, 1 << 30), at(7, 0), at(0, 64), at(1, 64)];
    let compare = || places.map(|to| (write(to, &[0; 2]), as_round(to, &[0; 2])));
    for (visit, round) in compare() {
        assert_eq!(visit, round);
    }
    fabric.fail_node(NodeSlot(1));
    assert_eq!(write(at(1, 64), &[1]), Err(FabricError::NodeDown(NodeSlot(1))));
    for (visit, round) in compare() {
        assert_eq!(visit, round);
    }
    fabric.fence(compute(1));
    assert_eq!(write(at(0, 64), &[1]), Err(FabricError::Fenced));
    let quiet = fabric.port(compute(2), 0, 1);
    let mut words = [9; 8];
    let place = (at(0, 64), 1);
    let found =
        quiet.near().unwrap().visit(place.0, |visit| visit.find_line(place, (0, 0), &mut words));
    assert_eq!((found, words), (Ok(Some(0)), [0; 8]), "nothing was written after it");
}

#[test]
fn revocation_of_access_waits_for_the_end_of_a_visit() {
    if one_core() {
        return;
    }
    let fabric = fabric(1, STRIPED);
    let (inside, revoked) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let port = fabric.port(compute(1), 0, 1);
            let near = port.near().unwrap();
            near.visit(at(0, 64), |visit| {
                inside.store(true, Ordering::SeqCst);
                let until = Instant::now() + Duration::from_millis(50);
                while Instant::now() < until {
                    assert!(!revoked.load(Ordering::SeqCst), "revoked in the middle of a visit");
                    visit.write(at(0, 64), &[7]).unwrap();
                }
            });
            let after = near.visit(at(0, 64), |visit| visit.write(at(0, 64), &[8]));
            assert!(after.is_ok() || revoked_soon(&after));
        });
        while !inside.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        fabric.fence(compute(1));
        revoked.store(true, Ordering::SeqCst);
    });
}

/// Without the assertion, a thread in a nested visit would look as if it was outside. (In builds without debug
/// assertions, this bug once existed.) After a nested visit was refused, the thread is outside. So a revocation of
/// the thread's access does not wait for ever.
#[test]
fn a_nested_visit_is_refused_and_the_next_visit_works() {
    let fabric = fabric(1, STRIPED);
    let port = fabric.port(compute(1), 0, 1);
    let near = port.near().unwrap();
    for _ in 0..3 {
        let nested = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            near.visit(at(0, 64), |_| near.visit(at(0, 64), |_| ()));
        }));
        let said = nested.expect_err("refused");
        assert_eq!(said.downcast_ref(), Some(&"a round or a visit began within a visit"));
        assert_eq!(near.visit(at(0, 64), |visit| visit.write(at(0, 64), &[7])), Ok(()));
    }
    fabric.fence(compute(1));
    let after = near.visit(at(0, 64), |visit| visit.write(at(0, 64), &[8]));
    assert!(revoked_soon(&after));
}

fn revoked_soon(outcome: &Result<(), Box<FabricError>>) -> bool {
    matches!(outcome, Err(error) if **error == FabricError::Fenced)
}

#[test]
fn other_coroutines_run_while_any_request_travels() {
    let fabric = fabric(1, STRIPED);
    let port = fabric.port(compute(0), 0, 1);
    let order = std::cell::RefCell::new(Vec::new());
    let mut executor = tarn_fabric::executor::Executor::new();
    for number in 0..2 {
        let (near, order) = (port.near().unwrap(), &order);
        executor.spawn(async move {
            // The second and the third target do not exist, but a prefetch is only a hint, so such targets are
            // allowed.
            near.ask_own([std::ptr::null(), std::ptr::from_ref(&number).cast()].into_iter());
            near.ask::<2>([at(0, 128), at(0, 1 << 32), at(7, 0), at(0, 192)].into_iter());
            near.travel().await;
            order.borrow_mut().push(number);
            drop(near.travel());
            near.travel().await;
            order.borrow_mut().push(number);
        });
    }
    executor.run();
    drop(executor);
    assert_eq!(order.into_inner(), [0, 1, 0, 1]);
}
