//! Tests of rounds whose futures are dropped while their verbs are in flight.
//!
//! Invariant checked: at each memory node, each effect of a dropped round happens before the verbs that
//! its port sends to the node afterwards, or never happens. So a port that reads the lines of its
//! dropped round sees all of the round's effects (the contract of `Backend::abandon`).

use crate::common::cases::is_all;
use crate::common::toy::{Do, Op, Toy, program};
use crate::common::{at, fabric, port};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use tarn_fabric::address::{Address, GroupId, NodeSlot, Target};
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::block_on;
use tarn_fabric::port::Port;
use tarn_fabric::round::Round;
use tarn_sim::config::{Chaos, Mode};
use tarn_sim::explore::{FaultBudget, Reduction};
use tarn_sim::scheduler::Scheduler;

const LINES: usize = 6;

/// Adds a WRITE of lines whose words are all `value`.
fn write(round: &mut Round, to: Target, value: u64) {
    let lines = round.reserve_lines(LINES * 64);
    (0..LINES * 8).for_each(|word| round.set_word(lines.plus(word * 8), value));
    round.write(to, lines, LINES * 64);
}

/// Sends a round and drops its future after `pause`, if the round is not done by then. Returns
/// whether the round was dropped.
async fn drop_after(by: &Port, round: &mut Round, pause: Nanos) -> bool {
    let mut execute = pin!(by.execute(round));
    let mut sleep = pin!(by.sleep(pause));
    poll_fn(|waiting| match execute.as_mut().poll(waiting) {
        Poll::Ready(_) => Poll::Ready(false),
        Poll::Pending => sleep.as_mut().poll(waiting).map(|()| true),
    })
    .await
}

/// Reads the first word of each line.
async fn look(by: &Port, from: Target) -> [u64; LINES] {
    let mut round = Round::new();
    let seen = round.read(from, LINES * 64);
    by.execute(&mut round).await.expect("nothing is broken");
    std::array::from_fn(|line| round.word(seen.plus(line * 64)))
}

/// Drops rounds after pauses of every length. The function reads the lines immediately after each
/// drop, and again much later. Counts the dropped rounds.
async fn drop_and_look(by: &Port, seed: u64, dropped: &Cell<u32>) {
    for value in 1..25 {
        let mut round = Round::new();
        write(&mut round, at(1024), value);
        let pause = Nanos((value + seed) % 12 * 250);
        dropped.set(dropped.get() + u32::from(drop_after(by, &mut round, pause).await));
        let at_once = look(by, at(1024)).await;
        by.sleep(Nanos(200_000)).await;
        let later = look(by, at(1024)).await;
        assert_eq!(at_once, later, "seed {seed}, {value}: some of it came later");
    }
}

#[test]
fn verbs_after_a_dropped_round_land_after_it() {
    for mode in [|_| Mode::Timed, |seed| Mode::Random(Chaos::of(seed))] {
        let dropped = Cell::new(0);
        for seed in 0..60 {
            let fabric = fabric("cx5-100g", mode(seed), seed);
            let port = port(&fabric, 0, 0);
            let (by, dropped) = (port.clone(), &dropped);
            Scheduler::new(&fabric)
                .block_on(&port, async move { drop_and_look(&by, seed, dropped).await });
        }
        assert!(dropped.get() > 600, "{} dropped", dropped.get());
    }
}

/// Coroutines of one thread share the thread's connections. If one coroutine drops its round, the
/// rounds that other coroutines had sent before stay concurrent with the dropped round. Each
/// coroutine still sees its own rounds in order.
#[test]
fn coroutines_beside_a_dropped_round_go_on() {
    let dropped = Cell::new(0);
    for seed in 0..60 {
        let fabric = fabric("cx5-100g", Mode::Random(Chaos::of(seed)), seed);
        let port = port(&fabric, 0, 0);
        let mut scheduler = Scheduler::new(&fabric);
        for coroutine in 0..4u64 {
            let (by, dropped) = (port.clone(), &dropped);
            scheduler.spawn(&port, async move {
                let own = at(1024 + coroutine * 1024);
                for value in 1..20 {
                    let mut round = Round::new();
                    write(&mut round, own, value);
                    let pause = Nanos((value + seed + coroutine) % 9 * 300);
                    let is_dropped = drop_after(&by, &mut round, pause).await;
                    dropped.set(dropped.get() + u32::from(is_dropped));
                    assert_eq!(look(&by, own).await, [value; LINES], "it was not cut");
                }
            });
        }
        scheduler.run_until(Nanos(1 << 40));
        assert_eq!(scheduler.live(), 0);
    }
    assert!(dropped.get() > 600, "{} dropped", dropped.get());
}

/// A coroutine that drops a round and yields waits for no event, and is polled again.
#[test]
fn a_coroutine_that_drops_and_yields_goes_on() {
    for mode in [Mode::Timed, Mode::Random(Chaos::of(3))] {
        let fabric = fabric("cx5-100g", mode, 3);
        let port = port(&fabric, 0, 0);
        let by = port.clone();
        Scheduler::new(&fabric).block_on(&port, async move {
            let mut round = Round::new();
            write(&mut round, at(1024), 1);
            assert!(drop_after(&by, &mut round, Nanos(0)).await);
            by.yield_now().await;
            assert_eq!(look(&by, at(1024)).await, [1; LINES]);
        });
    }
}

/// A value of a coroutine. When the coroutine is dropped, this value posts one more round.
struct Last<'a>(&'a Port);

impl Drop for Last<'_> {
    fn drop(&mut self) {
        let mut round = Round::new();
        write(&mut round, at(1024), 2);
        self.0.post_detached(&mut round).expect("nothing is broken");
    }
}

/// A coroutine that is dropped with its scheduler posts its last round at rest, so this round is
/// executed immediately. Earlier rounds of the coroutine that are in flight must not land after its
/// last round.
#[test]
fn no_verb_lands_after_work_at_rest() {
    for mode in [|_| Mode::Timed, |seed| Mode::Random(Chaos::of(seed))] {
        let mut on_its_way = 0;
        for seed in 0..40 {
            let fabric = fabric("cx5-100g", mode(seed), seed);
            let (by, keeper) = (port(&fabric, 0, 0), port(&fabric, 1, 0));
            let done = Cell::new(false);
            let mut scheduler = Scheduler::new(&fabric);
            scheduler.spawn(&by, async {
                let _last = Last(&by);
                let mut round = Round::new();
                write(&mut round, at(1024), 1);
                by.execute(&mut round).await.expect("nothing is broken");
                done.set(true);
            });
            scheduler.run_until(Nanos(400 + 100 * seed));
            if done.get() {
                continue;
            }
            on_its_way += 1;
            drop(scheduler);
            assert_eq!(block_on(look(&keeper, at(1024))), [2; LINES], "seed {seed}");
            let mut scheduler = Scheduler::new(&fabric);
            let waits: Pin<Box<dyn Future<Output = ()>>> =
                Box::pin(async { keeper.sleep(Nanos(1_000_000)).await });
            scheduler.spawn(&keeper, waits);
            scheduler.run_until(Nanos(1 << 40));
            scheduler.drain();
            assert_eq!(block_on(look(&keeper, at(1024))), [2; LINES], "seed {seed}: it came later");
        }
        assert!(on_its_way > 10, "{on_its_way} were on their way");
    }
}

/// Explores a coroutine that drops a WRITE of two lines and reads them. In every order the coroutine's
/// READ returns the final contents of the lines.
#[test]
fn no_verb_passes_a_dropped_round_in_any_order() {
    let lines = Op::Write { node: 0, line: 0, lines: 2, fenced: false };
    let read = || Do::Round(vec![Op::Read { node: 0, line: 0, lines: 2 }]);
    let looker = program(vec![vec![Do::Dropped(vec![lines]), read(), read()]]);
    let other = program(vec![vec![read()]]);
    let toy = Toy::new(&[looker, other], 1, 4);
    let config = tarn_sim::explore::ExploreConfig { faults: FaultBudget::NONE, ..toy.config() };
    for reduction in [Reduction::None, Reduction::States, Reduction::Full] {
        let (outcomes, explored) = toy.outcomes(&config, reduction);
        let others: BTreeSet<_> = outcomes.iter().map(|outcome| &outcome.logs[1]).collect();
        assert!(is_all(&explored) && others.len() == 4, "{others:?}");
        for outcome in &outcomes {
            assert_eq!(outcome.logs[0], [1000; 4], "{outcome:?}");
            assert_eq!(outcome.memory[..2], [1000, 1000], "{outcome:?}");
        }
    }
}

/// Explores a dropped round to two memory nodes. In every order, later rounds execute after the
/// dropped round's batch at each node. If the dropped round's batch at one node is done, later rounds
/// need not wait at that node.
#[test]
fn a_dropped_round_holds_back_only_its_own_connection_at_each_node() {
    let write = |node, line| Op::Write { node, line, lines: 1, fenced: false };
    let read = |node, line| Do::Round(vec![Op::Read { node, line, lines: 1 }]);
    let dropped = Do::Dropped(vec![write(0, 0), write(1, 0)]);
    // The actor `dropper` writes line 1 of the first node after its READ at this node. At this node
    // the READ executes after the dropped WRITE.
    let dropper = vec![dropped, read(0, 0), Do::Round(vec![write(0, 1)]), read(1, 0)];
    let looker = vec![read(0, 1), read(1, 0)];
    let toy = Toy::new(&[program(vec![dropper]), program(vec![looker])], 2, 2);
    let config = tarn_sim::explore::ExploreConfig { faults: FaultBudget::NONE, ..toy.config() };
    for reduction in [Reduction::None, Reduction::States, Reduction::Full] {
        let (outcomes, explored) = toy.outcomes(&config, reduction);
        assert!(is_all(&explored));
        for outcome in &outcomes {
            assert_eq!(outcome.logs[0], [1000; 2], "{outcome:?}");
            assert_eq!(outcome.memory, [1000, 1000, 1000, 0], "{outcome:?}");
        }
        let looks: BTreeSet<&[u64]> = outcomes.iter().map(|it| &it.logs[1][..]).collect();
        // In one of these results, the dropped WRITE had landed at one node while the batch to the
        // other node was still in flight.
        let all: [&[u64]; 4] = [&[0, 0], &[0, 1000], &[1000, 0], &[1000, 1000]];
        assert_eq!(looks, BTreeSet::from(all), "{reduction:?}");
    }
}

/// Tests the rule for dropped rounds in virtual time, with a long batch to one node and a short batch
/// to the other node.
#[test]
fn verbs_after_a_dropped_round_to_two_nodes_land_after_it_at_both() {
    let other = |offset_bytes| Address::new(GroupId(0), offset_bytes).at(NodeSlot(1));
    for mode in [|_| Mode::Timed, |seed| Mode::Random(Chaos::of(seed))] {
        let dropped = Cell::new(0);
        for seed in 0..60 {
            let fabric = fabric("cx5-100g", mode(seed), seed);
            let port = port(&fabric, 0, 0);
            let (by, dropped) = (port.clone(), &dropped);
            Scheduler::new(&fabric).block_on(&port, async move {
                for value in 1..25 {
                    let mut round = Round::new();
                    write(&mut round, at(1024), value);
                    write(&mut round, at(2048), value);
                    let line = round.reserve_lines(64);
                    round.set_word(line, value);
                    round.write(other(1024), line, 8);
                    let pause = Nanos((value + seed) % 12 * 250);
                    dropped
                        .set(dropped.get() + u32::from(drop_after(&by, &mut round, pause).await));
                    let first = if value % 2 == 0 { at(2048) } else { other(1024) };
                    let one = look(&by, first).await[0];
                    let rest = [look(&by, at(1024)).await[5], look(&by, at(2048)).await[5]];
                    let short = look(&by, other(1024)).await[0];
                    by.sleep(Nanos(200_000)).await;
                    let later = [look(&by, at(1024)).await[5], look(&by, at(2048)).await[5]];
                    assert_eq!(
                        (rest, short),
                        (later, look(&by, other(1024)).await[0]),
                        "seed {seed}"
                    );
                    assert_eq!(one, if value % 2 == 0 { later[1] } else { short }, "seed {seed}");
                }
            });
        }
        assert!(dropped.get() > 600, "{} dropped", dropped.get());
    }
}
