//! Tests that drop the future of a transaction between any two parts of the transaction's verbs in flight.
//!
//! Invariant checked: the transaction has happened as a whole or not at all, and no lock stays held. The
//! transaction's successor observes this, and so does the last reader. The successor is the same coordinator, another
//! coordinator of its thread, another coordinator under its number on another thread, or a node that recovers its
//! node. The invariant relies on two rules: rounds that follow a dropped round come after it, and a coordinator
//! number in doubt belongs to its thread. Without the first rule, the test must find a violation.

use crate::common::weak::{RETRY, WeakFabric};
use crate::common::*;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use tarn_engine::admin::inspect;
use tarn_engine::recovery::{self, Attempt, Pace};
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::session::transaction::{IndexKey, Scan, Transaction};
use tarn_engine::site::{ComputeNode, Context};
use tarn_fabric::address::NodeSlot;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::Executor;
use tarn_store::ids::{Failure, Resolution, TxnId};
use tarn_store::schema::{Cells, IndexId, IndexPart, Key, TableId, TableSchema};

const LAYOUTS: [TableId; 3] = [TableId(0), TableId(1), TableId(2)];
const START: u64 = 1_000_000;
/// A table that `mixture` does not access. So transactions on this table meet no locks of `mixture`.
const ASIDE: TableId = TableId(3);

/// The successor of a transaction that the test dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// The same coordinator continues.
    Itself,
    /// Another coordinator of the same thread continues under the same number, because the test dropped the first
    /// coordinator.
    Successor,
    /// Another coordinator continues on another thread of the same node, under the same number.
    OtherThread,
    /// Another node recovers the transaction's node.
    Recovery,
}

const ALL: [Next; 4] = [Next::Itself, Next::Successor, Next::OtherThread, Next::Recovery];

struct Stage {
    fabric: WeakFabric,
    node: Arc<ComputeNode>,
    threads: [Rc<Context>; 2],
    other: Rc<Context>,
}

fn by(cx: &Rc<Context>, number: u32) -> Coordinator {
    let deadline = Some(Nanos(100_000)); // if a lock stays held, the test must not hang
    let retry = Retry { deadline, ..RETRY };
    Coordinator::new(Rc::clone(cx), number, retry)
}

impl Stage {
    fn new(seed: u64) -> Stage {
        Stage::with(seed, None)
    }

    /// Creates the test's cluster with one more table.
    fn with(seed: u64, more: Option<TableSchema>) -> Stage {
        let schemas =
            [narrow("narrow", 8), double("double", 8), apart("apart", 8), narrow("aside", 8)];
        let schemas: Vec<TableSchema> = schemas.into_iter().chain(more).collect();
        // With one group, all logs under one coordinator number are in one place.
        let (nodes, replicas) = [(3, 2), (1, 1), (2, 2)][seed as usize % 3];
        let fabric = WeakFabric::new(&Shape::of(&schemas).nodes(nodes, replicas), seed);
        let id = fabric.database.membership.join(NodeSlot(0)).unwrap();
        let node = Arc::new(ComputeNode::new(Arc::clone(&fabric.database), id));
        let threads = [0, 1].map(|thread| fabric.thread(&node, thread, 0));
        let other = fabric.context(1, 0);
        let stage = Stage { fabric, node, threads, other };
        let mut loader = by(&stage.other, 3);
        for table in [LAYOUTS[0], LAYOUTS[1], LAYOUTS[2], ASIDE] {
            for (key, value) in [(1, START), (2, START), (1000, 1000)] {
                let load = async |tx: &mut Transaction<'_>| {
                    let row = tx.insert(table, key);
                    tx.fetch().await?;
                    tx.set(row, A, value);
                    Ok(())
                };
                stage.fabric.block_on(loader.transact(load)).unwrap();
            }
        }
        stage
    }

    /// Polls a transaction while parts of its verbs are executed, and drops it at a moment that the seed chooses.
    /// Returns the transaction's result if it ended before.
    fn drop_somewhere(&self, run: impl Future<Output = Result<(), Failure>>) -> Option<()> {
        let polls = self.fabric.draw(420);
        let ended = poll_times(pin!(run), polls, || self.fabric.step());
        ended.map(|result| result.expect("nothing is broken"))
    }

    /// Runs the coroutines of an executor until all have ended.
    fn run_all(&self, mut executor: Executor<'_>) {
        let count = executor.live();
        for _ in 0..400_000 {
            if executor.live() == 0 {
                return;
            }
            executor.poll(tarn_fabric::executor::TaskId(self.fabric.draw(count)));
            self.fabric.step();
        }
        panic!("somebody waits for ever");
    }
}

/// Moves one unit from record 1 to record 2 of each table, deletes one record and inserts the next record.
async fn mixture(tx: &mut Transaction<'_>, next: u64) -> Result<(), Failure> {
    for table in LAYOUTS {
        let rows = [1u64, 2].map(|key| tx.update(table, key, Cells::ALL));
        tx.delete(table, 1000 + next);
        let fresh = tx.insert(table, 1001 + next);
        tx.fetch().await?;
        let [one, two] = rows.map(|row| tx.get(row).expect("there").u64(A));
        tx.set(rows[0], A, one - 1);
        tx.set(rows[1], A, two + 1);
        tx.set(fresh, A, 1001 + next);
    }
    Ok(())
}

/// Runs a transaction that writes a log.
async fn aside(by: &mut Coordinator) -> Result<(), Failure> {
    by.transact(async |tx| {
        let row = tx.update(ASIDE, 1u64, Cells::ALL);
        tx.fetch().await?;
        let before = tx.get(row).expect("there").u64(A);
        tx.set(row, A, before + 1);
        Ok(())
    })
    .await
}

/// Returns the number of times that `mixture` has happened, computed from the contents of the tables. The number must
/// be the same in each table.
async fn happened(by: &mut Coordinator) -> Result<u64, Failure> {
    by.transact(async |tx| {
        let mut seen = Vec::new();
        for table in LAYOUTS {
            let rows = [1u64, 2].map(|key| tx.read(table, key, Cells::ALL));
            let fresh: Vec<_> =
                (1000..1003u64).map(|key| tx.read(table, key, Cells::ALL)).collect();
            tx.fetch().await?;
            let [one, two] = rows.map(|row| tx.get(row).expect("there").u64(A));
            let there: Vec<bool> = fresh.iter().map(|row| tx.get(*row).is_some()).collect();
            seen.push((START - one, two.wrapping_sub(START), there));
        }
        Ok(seen)
    })
    .await
    .map(|seen| {
        let moved = seen[0].0;
        let there: Vec<bool> = (0..3).map(|at| at == moved).collect();
        assert!(seen.iter().all(|it| *it == (moved, moved, there.clone())), "torn: {seen:?}");
        moved
    })
}

/// Runs the successor of the dropped transaction. The successor settles that transaction.
fn go_on(stage: &Stage, mut gone: Coordinator, next: Next) {
    let (fabric, [cx, beside]) = (&stage.fabric, &stage.threads);
    match next {
        Next::Itself => fabric.block_on(aside(&mut gone)).unwrap(),
        Next::Successor => {
            drop(gone);
            fabric.block_on(aside(&mut by(cx, 0))).unwrap();
        }
        Next::OtherThread => {
            drop(gone);
            go_on_elsewhere(stage, cx, beside);
        }
        Next::Recovery => recover(stage, gone),
    }
}

/// Runs the schedule of one seed. Returns whether the transaction ended before it was dropped, and whether it has
/// happened.
fn run(seed: u64, next: Next, has_planted: bool) -> (bool, bool) {
    let stage = Stage::new(seed);
    let fabric = &stage.fabric;
    if has_planted {
        fabric.let_dropped_rounds_be_passed();
    }
    let [cx, beside] = &stage.threads;
    let mut gone = by(cx, 0);
    let ended = stage.drop_somewhere(gone.transact(async |tx| mixture(tx, 0).await));
    go_on(&stage, gone, next);
    let seen = fabric.block_on(happened(&mut by(&stage.other, 2))).unwrap();
    assert!(ended.is_none() || seen == 1, "acknowledged and lost");
    (0..3_000).for_each(|_| fabric.step());
    let again = fabric.block_on(happened(&mut by(&stage.other, 2))).unwrap();
    assert_eq!(seen, again, "it came later");
    if ended.is_none() {
        // Each logged transaction has a decision, and each transaction that wrote data was logged.
        let all = [cx, beside, &stage.other].into_iter().flat_map(|cx| cx.decisions());
        let committed = all.filter(|(_, decided)| *decided == Resolution::Committed).count();
        assert_eq!(seen, committed as u64, "it was taken for aborted");
    }
    let audit = fabric.block_on(inspect::audit(&stage.other)).unwrap();
    assert!(audit.is_clean(), "{audit}");
    fabric.end();
    (ended.is_some(), seen == 1)
}

/// Tests that another coordinator under the number begins immediately on another thread. The first thread continues
/// some time later.
fn go_on_elsewhere(stage: &Stage, cx: &Rc<Context>, beside: &Rc<Context>) {
    let (fabric, ends) = (&stage.fabric, Cell::new(0));
    let later = Nanos(fabric.draw(600) as u64);
    let mut executor = Executor::new();
    executor.spawn(async {
        aside(&mut by(beside, 0)).await.unwrap();
        ends.set(ends.get() + 1);
    });
    executor.spawn(async {
        cx.port.sleep(later).await;
        let nothing: Result<(), Failure> = by(cx, 5).transact(async |_| Ok(())).await;
        nothing.unwrap();
        ends.set(ends.get() + 1);
    });
    stage.run_all(executor);
    assert_eq!(ends.get(), 2);
}

/// Declares the node dead while its verbs are in flight. Then another node recovers the dead node.
fn recover(stage: &Stage, gone: Coordinator) {
    let (fabric, dead) = (&stage.fabric, stage.node.id);
    fabric.database.membership.expel(dead);
    let found = fabric.block_on(recovery::recover(&stage.other, dead)).unwrap();
    assert!(matches!(found, Attempt::Recovered(_)), "{found:?}");
    fabric.block_on(recovery::sweep(&stage.other, Pace::UNPACED)).unwrap();
    drop(gone);
}

fn seeds() -> u64 {
    crate::common::seeds(120)
}

#[test]
fn a_transaction_dropped_with_verbs_in_flight_is_whole_for_the_next_one() {
    for next in ALL {
        let (mut happened, mut not, mut ended) = (0, 0, 0);
        for seed in 0..seeds() {
            match run(seed, next, false) {
                (true, _) => ended += 1,
                (false, true) => happened += 1,
                (false, false) => not += 1,
            }
        }
        println!("{next:?}: {ended} ended; dropped: {happened} happened, {not} did not");
        assert!(happened > 0 && not > 0, "{next:?}: {happened} happened, {not} did not");
    }
}

#[test]
fn without_order_behind_dropped_rounds_half_transactions_stay() {
    for next in [Next::Itself, Next::Successor] {
        let fails = |seed: &u64| catch_unwind(AssertUnwindSafe(|| run(*seed, next, true))).is_err();
        let found = (0..seeds()).find(fails);
        println!("{next:?}: found by seed {found:?}");
        assert!(found.is_some(), "{next:?}: not found");
        let fails =
            |seed: &u64| catch_unwind(AssertUnwindSafe(|| run_ordered(*seed, next, true))).is_err();
        let found = (0..8 * seeds()).find(fails);
        println!("{next:?}: of a split found by seed {found:?}");
        assert!(found.is_some(), "{next:?}: of a split: not found");
    }
}

/// Asks `times` times how a transaction ended. If a lock or a change of configuration prevents an answer, the
/// function tries again.
async fn ask(by: &mut Coordinator, id: TxnId, times: u32) -> Vec<Resolution> {
    let mut told = Vec::new();
    for _ in 0..times {
        told.push(by.resolve(id).await.expect("its thread runs"));
        by.context().port.yield_now().await;
    }
    told
}

/// Tests that all threads get the same answer. Another thread, another node and another coordinator ask by the
/// transaction's identifier alone, while the transaction's own thread continues.
#[test]
fn all_callers_of_resolve_get_the_same_answer_as_memory() {
    let mut ends = [0; 2];
    for seed in 0..seeds() {
        let stage = Stage::new(seed);
        let (fabric, [cx, beside]) = (&stage.fabric, &stage.threads);
        let mut gone = by(cx, 0);
        let ended = stage.drop_somewhere(gone.transact(async |tx| mixture(tx, 0).await));
        let open = fabric.database.log_area_owners.in_doubt();
        assert!(ended.is_none() || open.is_empty());
        let told = RefCell::new(Vec::new());
        if let Some(&id) = open.first() {
            let mut executor = Executor::new();
            for (number, thread) in [(4, beside), (5, &stage.other), (6, cx), (7, beside)] {
                let (told, later) = (&told, Nanos(fabric.draw(300) as u64));
                executor.spawn(async move {
                    thread.port.sleep(later).await;
                    let answers = ask(&mut by(thread, number), id, 2).await;
                    told.borrow_mut().extend(answers);
                });
            }
            executor.spawn(async {
                cx.port.sleep(Nanos(fabric.draw(600) as u64)).await;
                aside(&mut gone).await.unwrap();
                let said = ask(&mut gone, id, 1).await;
                told.borrow_mut().extend(said);
            });
            stage.run_all(executor);
        }
        let seen = fabric.block_on(happened(&mut by(&stage.other, 2))).unwrap();
        let told = told.into_inner();
        let said = if seen == 1 { Resolution::Committed } else { Resolution::Aborted };
        assert!(told.iter().all(|it| *it == said), "seed {seed}: {seen}, {told:?}");
        if let Some(&id) = open.first() {
            ends[seen as usize] += 1;
            assert_eq!(told.len(), 9);
            fabric.database.membership.expel(stage.node.id);
            fabric.block_on(recovery::recover(&stage.other, stage.node.id)).unwrap();
            assert_eq!(fabric.block_on(ask(&mut by(&stage.other, 2), id, 1)), [said]);
        }
        fabric.end();
    }
    println!("{} aborted, {} committed", ends[0], ends[1]);
    // Without the rule that the test checks, other threads could get the wrong answer "aborted".
    assert!(ends[1] > 0, "{ends:?}");
}

/// Tests a thread that ended and left a transaction in doubt. No sweep settles this transaction, but the recovery of
/// the thread's node does.
fn ends_with_its_node(stage: &Stage) {
    let (fabric, other, dead) = (&stage.fabric, &stage.other, stage.node.id);
    let swept = fabric.block_on(recovery::sweep(other, Pace::UNPACED)).unwrap();
    assert_eq!(swept.freed, 0, "a lock of the living was taken");
    fabric.database.membership.expel(dead);
    fabric.block_on(recovery::recover(other, dead)).unwrap();
    fabric.block_on(recovery::sweep(other, Pace::UNPACED)).unwrap();
    fabric.block_on(happened(&mut by(other, 2))).unwrap();
    let audit = fabric.block_on(inspect::audit(other)).unwrap();
    assert!(audit.is_clean(), "{audit}");
}

/// Tests that no coordinator writes a log under a number in doubt before recovery, if the number's thread has ended.
#[test]
fn a_number_whose_thread_ended_in_doubt_is_refused() {
    let mut refused = 0;
    for seed in 0..seeds() {
        let mut stage = Stage::new(seed);
        let mut gone = by(&stage.threads[0], 0);
        let ended = stage.drop_somewhere(gone.transact(async |tx| mixture(tx, 0).await));
        drop(gone);
        stage.threads[0] = Rc::clone(&stage.threads[1]);
        let beside = &stage.threads[1];
        match stage.fabric.block_on(aside(&mut by(beside, 0))) {
            Ok(()) => {}
            Err(failure) => {
                assert!(ended.is_none() && failure == Failure::Usage, "{failure}");
                let said = beside.explanation(failure).expect("explained").to_string();
                assert!(
                    said.contains(
                        "coordinator = 0; allowed: a number whose transactions are settled"
                    ),
                    "{said}"
                );
                refused += 1;
                let id = stage.fabric.logged(0).into_iter().find(|tag| tag.node() == stage.node.id);
                if let Some(id) = id {
                    let asked = stage.fabric.block_on(by(beside, 7).resolve_of(id, 0));
                    assert_eq!(asked, Err::<Resolution, _>(Failure::Usage));
                }
                ends_with_its_node(&stage);
            }
        }
        stage.fabric.end();
    }
    println!("{refused} refused");
    assert!(refused > 0);
}

/// A table with fingerprints and an ordered index.
const ORDERED: TableId = TableId(4);

/// The progress of a coordinator that inserts keys one after another, each greater than the previous key.
#[derive(Default)]
struct Told {
    asked: Cell<u64>,
    /// The number of transactions that have begun. When a transaction begins, the work that an earlier transaction
    /// made necessary is done.
    begun: Cell<u64>,
    acknowledged: Cell<u64>,
}

/// Inserts keys. If an insert leaves little space in a leaf, the leaf is split before the next insert begins.
async fn insert(
    by: &mut Coordinator,
    keys: std::ops::Range<u64>,
    told: &Told,
) -> Result<(), Failure> {
    for key in keys {
        told.asked.set(key + 1);
        let inserted = by.transact(async |tx| {
            told.begun.set(key + 1);
            let row = tx.insert(ORDERED, key);
            tx.fetch().await?;
            tx.set(row, A, key);
            Ok(())
        });
        inserted.await?;
        told.acknowledged.set(key + 1);
    }
    Ok(())
}

/// Returns the number of keys that exist, both in the index and by lookup. The existing keys must be all keys from 0
/// on, without a gap.
async fn keys_there(by: &mut Coordinator, most: u64) -> Result<u64, Failure> {
    by.transact(async |tx| {
        let all = tx.scan(IndexId(0), Scan::prefix(IndexKey::new()));
        let rows: Vec<_> = (0..most).map(|key| tx.read(ORDERED, key, Cells::ALL)).collect();
        tx.fetch().await?;
        let rows: Vec<bool> = rows.into_iter().map(|row| tx.get(row).is_some()).collect();
        let word = |key: Key<'_>| match key {
            Key::Word(word) => word,
            Key::Bytes(_) => panic!("keys are words"),
        };
        let all: Vec<u64> = tx.scanned(all).map(|entry| word(entry.record)).collect();
        Ok((all, rows))
    })
    .await
    .map(|(all, rows)| {
        let count = all.len() as u64;
        assert_eq!(all, (0..count).collect::<Vec<u64>>());
        assert_eq!(rows, (0..most).map(|key| key < count).collect::<Vec<bool>>());
        count
    })
}

/// Runs the schedule of one seed. Returns whether a split was dropped, and whether the outcome of a transaction had
/// to be decided. If the planted bug removes the order after dropped rounds, the test checks only splits.
fn run_ordered(seed: u64, next: Next, has_planted: bool) -> (bool, bool) {
    let stage =
        Stage::with(seed, Some(half("ordered", 64).index("by_key", &[IndexPart::Key; 7], true)));
    let (fabric, [cx, _]) = (&stage.fabric, &stage.threads);
    let (mut gone, told) = (by(cx, 0), Told::default());
    let first = 20 + fabric.draw(16) as u64;
    fabric.block_on(insert(&mut gone, 0..first, &told)).unwrap();
    let most = first + 6;
    let decided = cx.decisions().len();
    if has_planted {
        fabric.let_dropped_rounds_be_passed();
    }
    stage.drop_somewhere(insert(&mut gone, first..most, &told));
    if has_planted && told.asked.get() == told.begun.get() {
        return (false, false);
    }
    go_on(&stage, gone, next);
    let there = fabric.block_on(keys_there(&mut by(&stage.other, 2), most)).unwrap();
    let (asked, begun) = (told.asked.get(), told.begun.get());
    let expected = told.acknowledged.get()..=begun;
    assert!(expected.contains(&there), "{there} keys, {expected:?} expected");
    (0..3_000).for_each(|_| fabric.step());
    let again = fabric.block_on(keys_there(&mut by(&stage.other, 2), most)).unwrap();
    assert_eq!(there, again, "it came later");
    let more = fabric.block_on(insert(&mut by(&stage.other, 2), there..there + 20, &told));
    more.unwrap();
    let audit = fabric.block_on(inspect::audit(&stage.other)).unwrap();
    assert!(audit.is_clean(), "{audit}");
    let settled = cx.decisions().len() + stage.other.decisions().len() > decided;
    fabric.end();
    (asked > begun, asked > begun && settled)
}

#[test]
fn a_split_that_is_dropped_half_way_is_whole_for_the_next_transaction() {
    for next in ALL {
        let (mut splits, mut in_doubt) = (0, 0);
        for seed in 0..2 * seeds() {
            let (is_split, was_in_doubt) = run_ordered(seed, next, false);
            splits += u32::from(is_split);
            in_doubt += u32::from(was_in_doubt);
        }
        println!("{next:?}: {splits} splits dropped, {in_doubt} of them in doubt");
        assert!(splits > 0 && in_doubt > 0, "{next:?}: {splits}, {in_doubt} in doubt");
    }
}
