//! Revocation takes time, and after the answer to a revocation no verb of the revoked node lands any
//! more.

use crate::common::{at, compute, fabric, port};
use std::cell::{Cell, RefCell};
use tarn_fabric::address::NodeSlot;
use tarn_fabric::clock::Nanos;
use tarn_fabric::error::FabricError;
use tarn_fabric::executor::block_on;
use tarn_fabric::round::Round;
use tarn_sim::config::{Chaos, Mode};
use tarn_sim::fabric::SimFabric;
use tarn_sim::scheduler::{Ended, Scheduler};

const LINES: usize = 4;

/// Reads the first word of each of the four lines, while no coroutine runs.
fn look(fabric: &SimFabric) -> Vec<u64> {
    let mut round = Round::new();
    let lines = round.read(at(1024), LINES * 64);
    block_on(port(fabric, 1, 9).execute(&mut round)).unwrap();
    round.words(lines, LINES * 8).to_vec()
}

/// Node 0 writes four lines again and again until the memory node refuses a WRITE. Meanwhile node 1
/// revokes node 0's access, and reads the lines as soon as the revocation is answered.
fn run(mode: Mode, seed: u64) -> (Nanos, u64, bool) {
    let fabric = fabric("cx5-100g", mode, seed);
    let (writer, other) = (port(&fabric, 0, 0), port(&fabric, 1, 0));
    let (rounds, ended) = (Cell::new(0), RefCell::new(None));
    let (seen, took) = (RefCell::new(Vec::new()), Cell::new(Nanos(0)));
    let mut scheduler = Scheduler::new(&fabric);
    let by = writer.clone();
    let (counted, noted) = (&rounds, &ended);
    scheduler.spawn(&writer, async move {
        let mut round = Round::new();
        for value in 1.. {
            round.clear();
            let lines = round.reserve_lines(LINES * 64);
            (0..LINES * 8).for_each(|word| round.set_word(lines.plus(word * 8), value));
            round.write(at(1024), lines, LINES * 64);
            if let Err(error) = by.execute(&mut round).await {
                *noted.borrow_mut() = Some(*error);
                return;
            }
            counted.set(value);
        }
    });
    let by = other.clone();
    let (seen_then, took_then) = (&seen, &took);
    scheduler.spawn(&other, async move {
        by.sleep(Nanos(20_000 + seed * 37)).await;
        let asked = by.now();
        by.revoke(compute(0), at(1024).node()).await.unwrap();
        took_then.set(by.now() - asked);
        let mut round = Round::new();
        let lines = round.read(at(1024), LINES * 64);
        by.execute(&mut round).await.unwrap();
        *seen_then.borrow_mut() = round.words(lines, LINES * 8).to_vec();
    });
    assert_eq!(scheduler.run_until(Nanos(1 << 40)), Ended::Finished);
    drop(scheduler);
    assert_eq!(ended.into_inner(), Some(FabricError::Fenced), "seed {seed}");
    let seen = seen.into_inner();
    assert_eq!(look(&fabric), seen, "seed {seed}: something landed after the answer");
    (took.get(), rounds.get(), seen.iter().any(|word| *word != seen[0]))
}

#[test]
fn in_timed_mode_revocation_takes_a_round_trip() {
    let (took, rounds, is_mixed) = run(Mode::Timed, 1);
    println!("answered after {} ns; {rounds} rounds before", took.0);
    assert!(took > Nanos(1_000) && took < Nanos(10_000), "{took:?}");
    assert!(rounds > 3 && !is_mixed, "a batch is whole");
}

#[test]
fn in_random_mode_revocation_stops_a_verb_between_its_pieces() {
    let ran: Vec<_> = (0..300).map(|seed| run(Mode::Random(Chaos::of(seed)), seed)).collect();
    let mixed = ran.iter().filter(|(.., is_mixed)| *is_mixed).count();
    println!("{mixed} of {} stopped in the middle of a WRITE", ran.len());
    assert!(mixed > 0 && mixed < ran.len());
}

#[test]
fn a_round_of_a_fenced_node_or_to_a_dead_one_fails() {
    let fabric = fabric("cx5-100g", Mode::Timed, 1);
    let (first, second) = (port(&fabric, 0, 0), port(&fabric, 1, 0));
    let node = NodeSlot(0);
    let mut scheduler = Scheduler::new(&fabric);
    let by = first.clone();
    let revoked = scheduler.block_on(&first, async move { by.revoke(compute(1), node).await });
    assert_eq!(revoked, Ok(()));
    let by = second.clone();
    let refused = scheduler.block_on(&second, async move { by.revoke(compute(0), node).await });
    assert_eq!(refused, Err(FabricError::Fenced));
    fabric.fail_node(node);
    let by = first.clone();
    let down = scheduler.block_on(&first, async move { by.revoke(compute(1), node).await });
    assert_eq!(down, Err(FabricError::NodeDown(node)));
}
