//! Tests that the local backend keeps the contract: the order within a round, atomic lines, faults, and another
//! process on the same memory.
//!
//! Invariant checked: the observations of real threads and processes agree with a model, or the observed values
//! themselves show that they are correct. Tests that need two threads at the same time say so, and are skipped on a
//! machine with one core.

#![allow(clippy::disallowed_methods, reason = "drives real threads and watches real time")]

use crate::one_core;
use proptest::prelude::*;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use tarn_fabric::address::{Address, GROUPS_MAX, GroupId, Incarnation, NodeId, NodeSlot, Target};
use tarn_fabric::error::FabricError;
use tarn_fabric::executor::block_on;
use tarn_fabric::local::{Backing, LineAtomicity, LocalConfig, LocalFabric, Mapping, NodeMemory};
use tarn_fabric::port::Port;
use tarn_fabric::round::{BufferOffset, Round, VerbIndex};

const MEMORY_VARIABLE: &str = "TARN_TEST_MEMORY";
const STRIPED: LineAtomicity = LineAtomicity::Striped { bits: 10 };

fn fabric(atomicity: LineAtomicity) -> Arc<LocalFabric> {
    let group_bytes = 1 << 20;
    let backing = Backing::Private;
    LocalFabric::new(&LocalConfig { group_bytes, atomicity, backing, ..LocalConfig::default() })
        .unwrap()
}

fn compute(slot: u16) -> NodeId {
    NodeId { slot: NodeSlot(slot), incarnation: Incarnation(1) }
}

fn at(offset: u64) -> Target {
    Address::new(GroupId(0), offset).at(NodeSlot(0))
}

fn outcome(port: &Port, round: &mut Round) -> Result<(), FabricError> {
    block_on(port.execute(round)).map_err(|error| *error)
}

fn run(port: &Port, round: &mut Round) {
    assert_eq!(outcome(port, round), Ok(()));
}

// These tests compare the order and the granularity of verbs with a model.

#[derive(Clone, Debug)]
enum Step {
    Read { offset: u64, len: usize },
    Write { offset: u64, bytes: Vec<u8> },
    Cas { word: u64, guess: bool, new: u64 },
    Faa { word: u64, addend: u64 },
    Masked { word: u64, compare_mask: u64, expected: u64, swap_mask: u64, new: u64 },
}

const ARENA: u64 = 1024;

fn step() -> impl Strategy<Value = Step> {
    let span = (0..ARENA, 0usize..300)
        .prop_map(|(offset, len)| (offset, len.min((ARENA - offset) as usize)));
    let word = (0..ARENA / 8).prop_map(|index| index * 8);
    let small = any::<u64>().prop_map(|bits| bits & 0x0101_0101_0101_0101);
    prop_oneof![
        span.clone().prop_map(|(offset, len)| Step::Read { offset, len }),
        (span, any::<u8>()).prop_map(|((offset, len), first)| Step::Write {
            offset,
            bytes: (0..len).map(|n| first.wrapping_add(n as u8)).collect(),
        }),
        (word.clone(), any::<bool>(), any::<u64>()).prop_map(|(word, guess, new)| Step::Cas {
            word,
            guess,
            new
        }),
        (word.clone(), any::<u64>()).prop_map(|(word, addend)| Step::Faa { word, addend }),
        (word, small.clone(), small, any::<u64>(), any::<u64>()).prop_map(
            |(word, compare_mask, expected, swap_mask, new)| Step::Masked {
                word,
                compare_mask,
                expected,
                swap_mask,
                new
            }
        ),
    ]
}

enum Expected {
    Bytes(BufferOffset, Vec<u8>),
    Found(VerbIndex, u64),
}

/// Adds a step to the round and applies it to the model, which executes all steps in order.
fn add(step: &Step, round: &mut Round, model: &mut [u8]) -> Option<Expected> {
    let get = |model: &[u8], at: u64| {
        u64::from_ne_bytes(model[at as usize..at as usize + 8].try_into().unwrap())
    };
    let set = |model: &mut [u8], at: u64, value: u64| {
        model[at as usize..at as usize + 8].copy_from_slice(&value.to_ne_bytes());
    };
    match *step {
        Step::Read { offset, len } => {
            let buffer = round.read(at(offset), len);
            Some(Expected::Bytes(buffer, model[offset as usize..offset as usize + len].to_vec()))
        }
        Step::Write { offset, ref bytes } => {
            let buffer = round.reserve(bytes.len());
            round.bytes_mut(buffer, bytes.len()).copy_from_slice(bytes);
            round.fence(); // a READ or an atomic comes before a later WRITE only with a fence
            round.write(at(offset), buffer, bytes.len());
            model[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
            None
        }
        Step::Cas { word, guess, new } => {
            let old = get(model, word);
            let expected = if guess { old } else { old ^ 1 };
            if guess {
                set(model, word, new);
            }
            Some(Expected::Found(round.cas(at(word), expected, new), old))
        }
        Step::Faa { word, addend } => {
            let old = get(model, word);
            set(model, word, old.wrapping_add(addend));
            Some(Expected::Found(round.faa(at(word), addend), old))
        }
        Step::Masked { word, compare_mask, expected, swap_mask, new } => {
            let old = get(model, word);
            if old & compare_mask == expected & compare_mask {
                set(model, word, (old & !swap_mask) | (new & swap_mask));
            }
            let verb = round.masked_cas(at(word), (expected, compare_mask), (new, swap_mask));
            Some(Expected::Found(verb, old))
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn rounds_agree_with_a_model(
        rounds in prop::collection::vec((any::<bool>(), prop::collection::vec(step(), 1..12)), 1..8),
    ) {
        let port = fabric(STRIPED).port(compute(0), 0, 1);
        let mut model = vec![0; ARENA as usize];
        let mut round = Round::new();
        for (hot, steps) in rounds {
            round.clear();
            if hot {
                round.hot();
            }
            let expected: Vec<Expected> =
                steps.iter().filter_map(|step| add(step, &mut round, &mut model)).collect();
            run(&port, &mut round);
            for expected in expected {
                match expected {
                    Expected::Bytes(at, bytes) => prop_assert_eq!(round.bytes(at, bytes.len()), &bytes[..]),
                    Expected::Found(verb, word) => prop_assert_eq!(round.found(verb), word),
                }
            }
        }
        round.clear();
        let all = round.read(at(0), ARENA as usize);
        run(&port, &mut round);
        prop_assert_eq!(round.bytes(all, ARENA as usize), &model[..]);
    }
}

// These tests check that lines are atomic.

/// One thread writes lines whose eight words are equal, and another thread reads these lines. Returns whether the
/// reader saw a mixture of two lines, at the latest after `limit`.
fn a_torn_line_is_seen(fabric: &Arc<LocalFabric>, limit: Duration) -> bool {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let port = fabric.port(compute(0), 0, 1);
            let (mut round, mut value) = (Round::new(), 0u64);
            while !stop.load(Ordering::Relaxed) {
                round.clear();
                round.hot();
                value += 1;
                let buffer = round.reserve_lines(64);
                (0..8).for_each(|word| round.set_word(buffer.plus(word * 8), value));
                round.write(at(4096), buffer, 64);
                run(&port, &mut round);
            }
        });
        let port = fabric.port(compute(1), 0, 1);
        let (mut round, started, mut torn) = (Round::new(), Instant::now(), false);
        while !torn && started.elapsed() < limit {
            for _ in 0..1000 {
                round.clear();
                round.hot();
                let buffer = round.read(at(4096), 64);
                run(&port, &mut round);
                let first = round.word(buffer);
                torn |= (1..8).any(|word| round.word(buffer.plus(word * 8)) != first);
            }
        }
        stop.store(true, Ordering::Relaxed);
        torn
    })
}

#[test]
fn striped_lines_are_never_torn_and_plain_copies_are() {
    if one_core() {
        return;
    }
    assert!(!a_torn_line_is_seen(&fabric(STRIPED), Duration::from_secs(2)));
    let planted = fabric(LineAtomicity::PlantedTorn);
    assert!(a_torn_line_is_seen(&planted, Duration::from_secs(60)), "the test sees nothing");
}

#[test]
fn parts_of_words_are_never_torn() {
    if one_core() {
        return;
    }
    let fabric = fabric(STRIPED);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let port = fabric.port(compute(0), 0, 1);
            let (mut round, mut value) = (Round::new(), 0u8);
            while !stop.load(Ordering::Relaxed) {
                round.clear();
                round.hot();
                value = value.wrapping_add(1);
                let buffer = round.reserve(13);
                round.bytes_mut(buffer, 13).fill(value);
                round.write(at(4096), buffer, 13); // writes a word and five bytes of the next word
                run(&port, &mut round);
            }
        });
        let port = fabric.port(compute(1), 0, 1);
        let (mut round, started, mut count) = (Round::new(), Instant::now(), 0u16);
        while started.elapsed() < Duration::from_millis(500) {
            round.clear();
            round.hot();
            // The word's last two bytes are a counter. A WRITE of another part of the word must not lose an increment
            // of this counter.
            let verb = round.faa(at(4104), 1 << 48);
            run(&port, &mut round);
            let bytes = round.found(verb).to_le_bytes();
            let whole = bytes[..5].iter().all(|&byte| byte == bytes[0]);
            if !whole || bytes[5] != 0 || bytes[6..] != count.to_le_bytes() {
                stop.store(true, Ordering::Relaxed);
                panic!("a part of a word: {bytes:?}, count {count}");
            }
            count = count.wrapping_add(1);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// The kind of verb by which a thread publishes its own flag before it reads the other thread's flag.
#[derive(Clone, Copy, Debug)]
enum Publish {
    Word,
    Line,
    Swap,
}

const PAIRS: u64 = 4096;

/// Makes both threads continue at about the same nanosecond.
fn meet(turns: &[AtomicU64; 2], me: usize, turn: u64, starts: &AtomicU64) {
    let now = || EPOCH.elapsed().as_nanos() as u64;
    if me == 0 {
        while turns[1].load(Ordering::SeqCst) < turn {
            std::thread::yield_now();
        }
        starts.store(now() + 1000, Ordering::SeqCst);
        turns[0].store(turn, Ordering::SeqCst);
    } else {
        turns[1].store(turn, Ordering::SeqCst);
        while turns[0].load(Ordering::SeqCst) < turn {
            std::thread::yield_now();
        }
    }
    let start = starts.load(Ordering::SeqCst);
    while now() < start {}
}

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Runs Dekker's test: both threads publish their flags, and then each reads the other's flag. Returns the number of
/// times that neither thread saw the other's flag.
fn both_saw_nothing(publish: Publish, rounds: u64, in_one_round: bool) -> usize {
    let fabric = fabric(STRIPED);
    let turns = [AtomicU64::new(0), AtomicU64::new(0)];
    let starts = AtomicU64::new(0);
    let play = |me: usize| {
        let port = fabric.port(compute(me as u16), 0, 1);
        let mut round = Round::new();
        let mut seen = Vec::new();
        for turn in 0..rounds {
            let lines = [turn % PAIRS * 128, turn % PAIRS * 128 + 64];
            let flag = turn + 1;
            meet(&turns, me, flag, &starts);
            round.clear();
            round.hot();
            let bytes = if matches!(publish, Publish::Line) { 64 } else { 8 };
            let buffer = round.reserve_lines(64);
            (0..8).for_each(|word| round.set_word(buffer.plus(word * 8), flag));
            match publish {
                Publish::Swap => _ = round.faa(at(lines[me]), 1 << 40),
                _ => round.write(at(lines[me]), buffer, bytes),
            }
            if !in_one_round {
                run(&port, &mut round);
                round.begin();
                round.hot();
            }
            let other = round.read(at(lines[1 - me]), bytes);
            run(&port, &mut round);
            let fresh = match publish {
                Publish::Swap => round.word(other) >> 40 == turn / PAIRS + 1,
                _ => round.word(other) == flag,
            };
            seen.push(fresh);
        }
        seen
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| play(1));
        let mine = play(0);
        mine.iter().zip(other.join().unwrap()).filter(|(a, b)| !**a && !b).count()
    })
}

#[test]
fn of_two_threads_that_write_and_then_read_one_sees_the_other() {
    if one_core() {
        return;
    }
    for publish in [Publish::Word, Publish::Line, Publish::Swap] {
        for in_one_round in [false, true] {
            let both = both_saw_nothing(publish, 100_000, in_one_round);
            assert_eq!(both, 0, "{publish:?}, in one round: {in_one_round}");
        }
    }
}

#[test]
fn a_fenced_node_changes_nothing_more() {
    let fabric = fabric(STRIPED);
    for slot in 1..20 {
        std::thread::scope(|scope| {
            let zombie = scope.spawn(|| {
                let port = fabric.port(compute(slot), 0, 1);
                let mut round = Round::new();
                loop {
                    round.clear();
                    // The round is long, so that the revocation happens in the middle of the round.
                    (0..20_000).for_each(|_| _ = round.faa(at(64), 1));
                    if let Err(error) = outcome(&port, &mut round) {
                        break error;
                    }
                }
            });
            let port = fabric.port(compute(0), slot, 1);
            let mut round = Round::new();
            let mut look = || {
                round.clear();
                let word = round.read(at(64), 8);
                run(&port, &mut round);
                round.word(word)
            };
            let start = look();
            while look() < start + 10_000 {}
            fabric.fence(compute(slot));
            let settled = look();
            (0..1_000).for_each(|_| assert_eq!(look(), settled));
            assert_eq!(zombie.join().unwrap(), FabricError::Fenced);
        });
    }
    let mut round = Round::new();
    round.faa(at(64), 1);
    let later = fabric.port(compute(1), 1, 1);
    assert_eq!(outcome(&later, &mut round), Err(FabricError::Fenced));
    let next_life = NodeId { slot: NodeSlot(1), incarnation: Incarnation(2) };
    assert_eq!(outcome(&fabric.port(next_life, 0, 1), &mut round), Ok(()));
}

#[test]
fn a_dead_node_answers_nothing_and_the_others_live() {
    let backing = Backing::Private;
    let config =
        LocalConfig { memory_nodes: 2, backing, group_bytes: 1 << 20, ..LocalConfig::default() };
    let fabric = LocalFabric::new(&config).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let hammer = scope.spawn(|| {
            let port = fabric.port(compute(1), 0, 1);
            let mut round = Round::new();
            loop {
                round.clear();
                (0..20_000).for_each(|_| _ = round.faa(at(64), 1));
                if let Err(error) = outcome(&port, &mut round) {
                    stop.store(true, Ordering::Relaxed);
                    break error;
                }
            }
        });
        let memory = fabric.node(NodeSlot(0)).regions(1);
        while memory[0].word(64).load(Ordering::Relaxed) < 1000 {}
        fabric.fail_node(NodeSlot(0));
        let settled = memory[0].word(64).load(Ordering::Relaxed);
        while !stop.load(Ordering::Relaxed) {
            assert_eq!(memory[0].word(64).load(Ordering::Relaxed), settled);
        }
        assert_eq!(hammer.join().unwrap(), FabricError::NodeDown(NodeSlot(0)));
    });
    let mut round = Round::new();
    round.faa(Address::new(GroupId(1), 64).at(NodeSlot(1)), 1);
    assert_eq!(outcome(&fabric.port(compute(0), 0, 1), &mut round), Ok(()));
}

#[test]
fn verbs_outside_a_region_are_refused() {
    let fabric = fabric(STRIPED);
    let port = fabric.port(compute(0), 0, 1);
    let mut round = Round::new();
    let end = 1 << 20;
    round.read(at(end - 64), 64);
    assert_eq!(outcome(&port, &mut round), Ok(()));
    for target in [at(end - 63), at(end), Address::new(GroupId(1), 0).at(NodeSlot(0))] {
        round.clear();
        round.read(target, 64);
        assert_eq!(outcome(&port, &mut round), Err(FabricError::OutOfBounds(target)));
    }
    round.clear();
    round.cas(Address::new(GroupId(0), 0).at(NodeSlot(9)), 0, 1);
    assert_eq!(outcome(&port, &mut round), Err(FabricError::NodeDown(NodeSlot(9))));
}

#[test]
fn an_address_in_an_unknown_group_reaches_no_node() {
    let config = LocalConfig {
        memory_nodes: 3,
        group_bytes: 1 << 16,
        backing: Backing::Private,
        ..LocalConfig::default()
    };
    let fabric = LocalFabric::new(&config).unwrap();
    let port = fabric.port(compute(0), 0, 1);
    for (node, group) in [(0, 3), (0, 5), (1, 3), (2, 3), (0, GROUPS_MAX as u16 - 1)] {
        let target = Address::new(GroupId(group), 64).at(NodeSlot(node));
        let mut round = Round::new();
        round.read(target, 64);
        assert_eq!(outcome(&port, &mut round), Err(FabricError::OutOfBounds(target)));
    }
}

// These tests use a second process.

const INCREMENTS: u64 = 100_000;

/// The work that both processes do: they count by CAS and by FAA, write lines whose words show whether they are
/// whole, and read such lines.
fn work_on_shared_memory(memory: &NodeMemory, who: u64) {
    let region = memory.regions(1)[0];
    region.word(0).fetch_add(1, Ordering::SeqCst);
    while region.word(0).load(Ordering::SeqCst) < 2 {
        std::thread::yield_now();
    }
    for n in 0..INCREMENTS {
        let word = region.word(64);
        let mut seen = word.load(Ordering::Relaxed);
        while let Err(found) =
            word.compare_exchange_weak(seen, seen + 1, Ordering::SeqCst, Ordering::Relaxed)
        {
            seen = found;
        }
        region.word(128).fetch_add(1, Ordering::SeqCst);
        let value = n * 2 + who;
        region.write(192, bytemuck::bytes_of(&[value; 8])).unwrap();
        let mut line = [0; 8];
        region.read_words(192, &mut line).unwrap();
        assert_eq!(line, [line[0]; 8], "a torn line");
    }
}

/// This function does not test anything by itself. [`another_process_maps_the_same_memory`] starts it in a second
/// process.
#[test]
fn second_process() {
    let Some(path) = std::env::var_os(MEMORY_VARIABLE) else { return };
    work_on_shared_memory(&NodeMemory::open(path.as_ref()).unwrap(), 1);
}

#[test]
fn another_process_maps_the_same_memory() {
    let memory = NodeMemory::create(&[(GroupId(0), 1 << 16)], Backing::Shared, STRIPED).unwrap();
    let path = memory.path().expect("shared memory has a path");
    let mut second = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "local::second_process"])
        .env(MEMORY_VARIABLE, path)
        .spawn()
        .unwrap();
    work_on_shared_memory(&memory, 0);
    assert!(second.wait().unwrap().success());
    let region = memory.regions(1)[0];
    assert_eq!(region.word(64).load(Ordering::SeqCst), 2 * INCREMENTS, "by CAS");
    assert_eq!(region.word(128).load(Ordering::SeqCst), 2 * INCREMENTS, "by FAA");
    let zeros = Mapping::new(1 << 16, Backing::Shared).unwrap();
    assert!(NodeMemory::open(&zeros.path().unwrap()).is_err());
}
