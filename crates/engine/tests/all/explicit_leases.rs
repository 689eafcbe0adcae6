//! Tests of explicit leases, which count readers. A writer waits if a transaction reads, or may read, the records
//! that the writer writes.
//!
//! Invariant checked: a writer waits for a reader on another node and on its own node. A writer waits for a reader
//! that began after the writer had asked another node, and for a reader of a range. A writer also waits for
//! incarnations that cannot receive its question, and for no other incarnations. No reader stays counted, however its
//! transaction ended. When a writer asks about readers, its locks already keep new readers away.

#![allow(clippy::disallowed_methods, reason = "leases are measured by real time")]

use crate::common::budget::{add_one, phase, read};
use crate::common::*;
use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tarn_check::{Isolation, check};
use tarn_engine::services::ServiceOptions;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::session::transaction::Transaction;
use tarn_engine::site::ComputeNode;
use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::block_on;
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::schema::range::{IndexKey, Scan};
use tarn_store::schema::{Cells, TableId};

const T: TableId = TableId(0);
/// The length of leases. A lease is longer than the reads of a test take. A writer that waits takes longer than a
/// lease, so the test notices the wait.
const LEASE_NS: u32 = 8_000_000;
const LEASE: Duration = Duration::from_nanos(LEASE_NS as u64);

fn world(near: bool) -> World {
    let shape = Shape::of(&[narrow("t", 4000)]).protocol("oocc").variant("corrected,-implicit");
    let mut shape = shape.leasing_reads(LEASE_NS);
    shape.near = near;
    World::new(&shape)
}

/// The effect of one update on its writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Made {
    Wait,
    Go,
}

fn update(by: &mut Coordinator, keys: &[u64]) -> Made {
    writing(by, async |tx| add_one(tx, T, keys).await)
}

fn writing(
    by: &mut Coordinator,
    body: impl AsyncFn(&mut Transaction<'_>) -> Result<(), Failure>,
) -> Made {
    let count = |by: &Coordinator, of| phase(by.context(), of);
    let before = (count(by, "wait_out"), count(by, "nobody_reads"), by.context().port.now());
    block_on(by.transact(body)).expect("nobody is in its way");
    let took = by.context().port.now() - before.2;
    match (count(by, "wait_out") - before.0, count(by, "nobody_reads") - before.1) {
        (1, 0) => {
            assert!(took > Nanos(u64::from(LEASE_NS)), "{took:?}");
            Made::Wait
        }
        (0, 1) => Made::Go,
        other => panic!("{other:?}: it waits, or does not, once"),
    }
}

/// Runs `during` once, after `reader` has read the records of `body` and while the reader's window is open.
fn beside<R>(
    reader: &mut Coordinator,
    body: impl AsyncFn(&mut Transaction<'_>) -> Result<(), Failure>,
    during: impl FnOnce() -> R,
) -> R {
    let (during, made) = (Cell::new(Some(during)), Cell::new(None));
    let read = block_on(reader.transact(async |tx| {
        body(tx).await?;
        if let Some(during) = during.take() {
            made.set(Some(during()));
        }
        Ok(())
    }));
    assert_eq!(read, Ok(()));
    made.into_inner().expect("it ran")
}

fn counted(by: &Coordinator) -> u64 {
    by.context().node.readers().expect("readers are counted").counted()
}

#[test]
fn a_writer_waits_for_readers_of_its_records() {
    for near in [false, true] {
        let world = world(near);
        let [mut writer, mut reader] = [0, 1].map(|slot| world.coordinator(slot, 64));
        fill(&mut writer, T, 1..10);
        assert_eq!(update(&mut writer, &[1, 2]), Made::Go, "nobody reads anything");
        let made = |reader: &mut Coordinator, writer: &mut Coordinator, keys: &[u64]| {
            beside(reader, async |tx| read(tx, T, &[1, 2]).await, || update(writer, keys))
        };
        assert_eq!(made(&mut reader, &mut writer, &[3, 4]), Made::Go);
        assert_eq!(made(&mut reader, &mut writer, &[4, 2]), Made::Wait);
        // In this case the reader runs on the writer's own node.
        let mut own = coordinator(writer.context(), 7);
        assert_eq!(made(&mut own, &mut writer, &[3]), Made::Go);
        assert_eq!(made(&mut own, &mut writer, &[1]), Made::Wait);
        // A read of an absent record counts as a read too: an insert of that record waits, and an insert of another
        // record does not wait.
        let absent = async |tx: &mut Transaction<'_>| {
            tx.get_row(T, 77u64).await?;
            read(tx, T, &[1]).await
        };
        let insert = |writer: &mut Coordinator, key: u64| {
            writing(writer, async |tx| {
                let row = tx.insert(T, key);
                tx.fetch().await?;
                tx.set(row, A, key);
                Ok(())
            })
        };
        assert_eq!(beside(&mut reader, absent, || insert(&mut writer, 78)), Made::Go);
        assert_eq!(beside(&mut reader, absent, || insert(&mut writer, 77)), Made::Wait);
        assert_eq!([&writer, &reader, &own].map(counted), [0; 3]);
        world.assert_clean();
    }
}

#[test]
fn a_writer_also_asks_nodes_that_joined_later() {
    let world = world(false);
    let mut writer = world.coordinator(0, 64);
    fill(&mut writer, T, 1..10);
    assert_eq!(update(&mut writer, &[1]), Made::Go, "he has asked all that there are");
    let mut late = world.coordinator(1, 64);
    let reads = async |tx: &mut Transaction<'_>| read(tx, T, &[1, 2]).await;
    assert_eq!(beside(&mut late, reads, || update(&mut writer, &[1])), Made::Wait);
}

#[test]
fn a_writer_waits_for_a_joined_node_until_it_counts_readers() {
    let world = world(false);
    let mut writer = world.coordinator(0, 64);
    fill(&mut writer, T, 1..10);
    let id = world.database.membership.join(NodeSlot(1)).expect("a first life");
    assert_eq!(update(&mut writer, &[1]), Made::Wait);
    let services = ServiceOptions::direct(1);
    let node = ComputeNode::serving(Arc::clone(&world.database), id, &services).expect("small");
    assert_eq!(update(&mut writer, &[1]), Made::Go, "he counts by now, and nobody");
    drop(node);
}

#[test]
fn a_writer_waits_for_lives_that_do_not_answer() {
    let world = world(false);
    let mut writer = world.coordinator(0, 64);
    fill(&mut writer, T, 1..10);
    let membership = &world.database.membership;
    // This node counts no readers.
    let id = membership.join(NodeSlot(1)).expect("a first life");
    let dumb = Arc::new(ComputeNode::new(Arc::clone(&world.database), id));
    assert_eq!(update(&mut writer, &[1]), Made::Wait);
    drop(dumb);
    assert_eq!(update(&mut writer, &[1]), Made::Go, "it runs nothing any more");
    // This node was expelled, and may still run transactions.
    let second = world.join(2);
    membership.expel(second.id);
    assert_eq!(update(&mut writer, &[1]), Made::Wait);
    let by = NodeId { slot: NodeSlot(0), incarnation: Incarnation(1) };
    membership.claim_recovery(second.id, by);
    assert!(membership.recovered(second.id, by));
    assert_eq!(update(&mut writer, &[1]), Made::Go, "its access is gone");
}

#[test]
fn writers_of_ranges_and_writers_of_rows_wait_for_range_readers() {
    let schema = narrow("t", 4000).ordered("by_key");
    let shape = Shape::of(&[schema]).protocol("oocc").variant("corrected,-implicit");
    let world = World::new(&shape.leasing_reads(LEASE_NS));
    let [mut writer, mut reader] = [0, 1].map(|slot| world.coordinator(slot, 64));
    fill(&mut writer, T, 1..10);
    let by_key = world.database.catalog.index_id("t", "by_key").expect("it is there");
    let scan = async |tx: &mut Transaction<'_>| {
        let range = Scan::range(IndexKey::new().u64(0), IndexKey::new().u64(5));
        let seen = tx.scan(by_key, range.limit(10));
        tx.fetch().await?;
        assert_eq!(tx.scanned(seen).count(), 5);
        Ok(())
    };
    let insert = |writer: &mut Coordinator, key: u64| {
        writing(writer, async |tx| {
            tx.insert_zeros(T, key);
            tx.fetch().await
        })
    };
    // The leaves tell which records are in a range. So a writer that changes leaves waits, and a writer that only
    // updates one record in the range does not wait.
    assert_eq!(beside(&mut reader, scan, || update(&mut writer, &[3])), Made::Go);
    assert_eq!(beside(&mut reader, scan, || insert(&mut writer, 100)), Made::Wait);
    assert_eq!(insert(&mut writer, 101), Made::Go);
    let sought = async |tx: &mut Transaction<'_>| {
        let range = Scan::range(IndexKey::new().u64(3), IndexKey::new().u64(3));
        let seen = tx.scan(by_key, range.limit(1));
        tx.fetch().await?;
        assert_eq!(tx.scanned(seen).count(), 1);
        read(tx, T, &[3]).await
    };
    assert_eq!(beside(&mut reader, sought, || update(&mut writer, &[3])), Made::Wait);
    assert_eq!(counted(&reader), 0);
    world.assert_clean();
}

/// Tests a reader that reads a record at which it was not counted when it began. No writer could notice such a read
/// in time, so the reader is in no lease.
#[test]
fn a_reader_that_learns_further_keys_is_in_no_lease() {
    let schema = narrow("t", 4000).ordered("by_key");
    let shape = Shape::of(&[schema]).protocol("oocc").variant("corrected,-implicit");
    let world = World::new(&shape.leasing_reads(LEASE_NS));
    let mut by = world.coordinator(0, 64);
    fill(&mut by, T, 1..10);
    let by_key = world.database.catalog.index_id("t", "by_key").expect("it is there");
    let scan = async |tx: &mut Transaction<'_>| {
        let range = Scan::range(IndexKey::new().u64(0), IndexKey::new().u64(5));
        let seen = tx.scan(by_key, range.limit(10));
        tx.fetch().await?;
        assert_eq!(tx.scanned(seen).count(), 5);
        Ok::<(), Failure>(())
    };
    let mut in_lease = |body: &mut dyn FnMut(&mut Coordinator)| {
        let before = phase(by.context(), "in_lease");
        body(&mut by);
        phase(by.context(), "in_lease") - before == 1
    };
    macro_rules! runs {
        ($($what:expr),*) => {
            in_lease(&mut |by| {
                block_on(by.transact(async |tx: &mut Transaction<'_>| {
                    $($what(tx).await?;)*
                    Ok(())
                }))
                .expect("alone");
            })
        };
    }
    let two = async |tx: &mut Transaction<'_>| read(tx, T, &[1, 2]).await;
    let third = async |tx: &mut Transaction<'_>| read(tx, T, &[3]).await;
    // The first scan caches the path through the index, so later scans need fewer rounds.
    let _ = runs!(scan);
    assert!(runs!(two) && runs!(scan));
    assert!(!runs!(two, third) && !runs!(two, scan) && !runs!(scan, third) && !runs!(scan, scan));
    assert_eq!(counted(&by), 0);
}

#[test]
fn readers_do_not_stay_counted() {
    let world = world(false);
    let [mut writer, mut reader] = [0, 1].map(|slot| world.coordinator(slot, 64));
    fill(&mut writer, T, 1..10);
    let given_up = block_on(reader.transact(async |tx| {
        read(tx, T, &[1, 2]).await?;
        Err::<(), Failure>(AbortReason::User.into())
    }));
    assert_eq!((given_up, counted(&reader)), (Err(AbortReason::User.into()), 0));
    // This reader is refused, because another transaction has locked the record and will write it.
    let refused = block_on(writer.transact(async |tx| {
        add_one(tx, T, &[1]).await?;
        read(tx, T, &[3]).await?;
        let tries = Cell::new(0);
        let refused = block_on(reader.transact(async |tx| {
            tries.set(tries.get() + 1);
            if tries.get() == 2 {
                return Err(AbortReason::User.into());
            }
            read(tx, T, &[2]).await?;
            read(tx, T, &[3]).await?;
            add_one(tx, T, &[1]).await
        }));
        assert_eq!(refused, Err(Failure::from(AbortReason::User)), "refused, and tried again");
        Ok(())
    }));
    assert_eq!((refused, counted(&reader), counted(&writer)), (Ok(()), 0, 0));
    // This reader's future is dropped before its end.
    {
        let mut dropped = Box::pin(reader.transact(async |tx| {
            read(tx, T, &[1]).await?;
            std::future::pending::<Result<(), Failure>>().await
        }));
        for _ in 0..100 {
            let _ = dropped
                .as_mut()
                .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
        }
        assert_eq!(
            world.database.lease_desk.readers(dropped_node(&world)).expect("it counts").counted(),
            1
        );
    }
    assert_eq!(counted(&reader), 0);
    // A transaction that reads one record commits without validation. After that it is not counted any more.
    block_on(reader.transact(async |tx| read(tx, T, &[1]).await)).expect("alone");
    assert_eq!(counted(&reader), 0);
    world.assert_clean();
}

/// Returns the id of the node that joined second.
fn dropped_node(world: &World) -> NodeId {
    world.database.membership.running()[1]
}

/// A transaction whose future the test polls by hand.
struct Task<'a> {
    future: Pin<Box<dyn Future<Output = Result<(), Failure>> + 'a>>,
    ended: Option<Result<(), Failure>>,
}

impl<'a> Task<'a> {
    fn of(
        by: &'a mut Coordinator,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<(), Failure> + 'a,
    ) -> Task<'a> {
        Task { future: Box::pin(by.transact(body)), ended: None }
    }

    fn poll(&mut self, times: usize) {
        for _ in 0..times {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            if self.ended.is_none()
                && let Poll::Ready(end) = self.future.as_mut().poll(&mut context)
            {
                self.ended = Some(end);
            }
        }
    }
}

/// Runs five transactions on three records x, y and z:
/// - The writer of y reads nothing, holds its lock, and is delayed.
/// - A reader of y and z begins, and is delayed before it reads y.
/// - The writer of z has read x, and waits for that reader.
/// - Meanwhile the writer of x writes x, which no transaction reads.
/// - A second reader reads the new x, and y.
///
/// Then y is written, and another transaction reads it. If all these transactions committed, their order would be a
/// cycle. The cycle is: the first reader comes after the writer of y, and that writer after the second reader. The
/// second reader comes after the writer of x, the writer of x after the writer of z, and the writer of z after the
/// first reader. Returns the checker's finding.
fn held_up(variant: &str, (writer_polls, reader_polls): (usize, usize)) -> Option<String> {
    let shape = Shape::of(&[narrow("t", 4)]).protocol("oocc").variant(variant);
    let world = World::new(&Shape { near: false, ..shape.leasing_reads(LEASE_NS) });
    let mut coordinators = [0, 1, 2, 3, 4].map(|slot| world.coordinator(slot, 0));
    fill(&mut coordinators[0], T, 0..40);
    let rounds = |by: &mut Coordinator, key: u64| {
        let before = by.context().port.counts().rounds;
        block_on(by.transact(async |tx| read(tx, T, &[key]).await)).expect("alone");
        by.context().port.counts().rounds - before
    };
    // The first transaction of each coordinator also prepares the coordinator. So the test runs one transaction
    // before.
    coordinators.iter_mut().for_each(|by| _ = rounds(by, 0));
    let by = &mut coordinators[0];
    // For this key y, a fetch reads the record only in its second round.
    let y = (0..40).find(|&key| rounds(by, key) == 2).expect("some have no room at home");
    let mut at_home = (0..40).filter(|&key| rounds(by, key) == 1);
    let [x, z] = [(); 2].map(|()| at_home.next().expect("most have"));
    coordinators.iter_mut().for_each(Coordinator::record_history);
    let [a, b, c, d, e] = &mut coordinators;
    let mut writer_of_y = Task::of(a, async |tx| add_one(tx, T, &[y]).await);
    let mut reader = Task::of(b, async |tx| read(tx, T, &[y, z]).await);
    let mut writer_of_z = Task::of(c, async |tx| {
        tx.read(T, x, Cells::ALL);
        add_one(tx, T, &[z]).await
    });
    let mut writer_of_x = Task::of(d, async |tx| add_one(tx, T, &[x]).await);
    let mut second_reader = Task::of(e, async |tx| read(tx, T, &[x, y]).await);
    writer_of_y.poll(writer_polls);
    // After the writer of y has waited, the reader continues only after this time.
    std::thread::sleep(LEASE / 4);
    reader.poll(reader_polls);
    for others in [&mut writer_of_z, &mut writer_of_x, &mut second_reader] {
        others.poll(20);
    }
    // The writer of y continues first, as far as it can without the other transactions.
    let begun = Instant::now();
    while writer_of_y.ended.is_none() && begun.elapsed() < 2 * LEASE {
        writer_of_y.poll(1);
    }
    let mut all = [writer_of_y, reader, writer_of_z, writer_of_x, second_reader];
    while all.iter().any(|one| one.ended.is_none()) {
        all.iter_mut().for_each(|one| one.poll(1));
    }
    assert!(all.iter().all(|one| one.ended == Some(Ok(()))));
    drop(all);
    let recorded = coordinators.iter_mut().flat_map(Coordinator::take_history).collect();
    let report = check(&history(&world.database, recorded), Isolation::StrictSerializable);
    world.assert_clean();
    report.anomalies.first().map(ToString::to_string)
}

#[test]
fn a_writer_excludes_readers_before_it_asks_for_them() {
    let find = |variant: &str| {
        let polls = (1..6).flat_map(|writer| (1..6).map(move |reader| (writer, reader)));
        polls.into_iter().find_map(|polls| held_up(variant, polls))
    };
    for variant in ["corrected", "corrected,-implicit"] {
        assert_eq!(find(variant), None, "{variant}");
    }
    let begun = Instant::now();
    // The test tries several times, because whether a reader is in lease depends on real time.
    while begun.elapsed() < Duration::from_secs(60) {
        if let Some(finding) = find("corrected,-implicit,-exclusive-if-explicit") {
            assert!(finding.contains("of 5 transactions"), "{finding}");
            return;
        }
    }
    panic!("who asked before he kept readers away: not found");
}
