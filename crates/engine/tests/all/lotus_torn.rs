//! Tests of LOTUS's snapshots while other transactions reuse the memory of the versions that the snapshots read.
//!
//! Invariant checked: all lines of a record that a reader accepts come from one transaction. Memory is so small that
//! discarded memory is reused immediately. A reader that has read the record's cell finds some lines of the version
//! that it expects, and some lines of a later version. The first line names a transaction and a key, and may belong
//! to the expected version. Only the checksum reveals the mixture (L16).

use crate::common::race::*;
use crate::common::weak::WeakFabric;
use crate::common::*;
use std::pin::pin;
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::session::transaction::Transaction;
use tarn_fabric::address::NodeSlot;
use tarn_store::placement::catalog::Placement;
use tarn_store::schema::{Cells, ColumnId, ColumnType, TableSchema};

/// A column in the last line of a record, while `A` is in the first line.
const LAST: ColumnId = ColumnId(2);
/// The number of updates while the reader waits. The memory is too small for as many versions.
const UPDATES: u64 = 150;
/// The number of lines that the test tries: the number of lines of a record, and some more lines.
const LINES: usize = 30;

/// Returns the values that a reader has seen in the first and the last line. The reader had fetched `lines` lines
/// when a writer began that sets both values to the same number. With different seeds, the lines are fetched in
/// different orders.
fn seen_beside_a_writer(variant: &str, lines: usize, seed: u64) -> (u64, u64) {
    // A chunk has space for two such records.
    let large = TableSchema::new("large", 1).column("a", ColumnType::U64);
    let large = large.column("b", ColumnType::Bytes(1500)).column("c", ColumnType::U64);
    let mut shape = Shape::of(&[large]).protocol("lotus").variant(variant).nodes(1, 1);
    shape.options.placement = Placement::Table;
    (shape.options.log_bytes, shape.options.coordinators_max) = (8192, 2);
    (shape.options.chunk_bytes, shape.options.spare_bytes) = (4096, 0);
    let fabric = WeakFabric::new(&shape, seed);
    fabric.calm();
    let [owner, other] = [0, 1].map(|slot| fabric.context(slot, 0));
    let retry = Retry { pause_max_ns: 20, ..Retry::default() };
    let mut writer = Coordinator::new(owner, 0, retry);
    let mut reader = Coordinator::new(other.clone(), 1, retry);
    let both = |tx: &mut Transaction<'_>, row, value: u64| {
        [A, LAST].iter().for_each(|column| tx.set(row, *column, value));
    };
    let inserted = writer.transact(async |tx| {
        let row = tx.insert(TABLE, KEY);
        tx.fetch().await?;
        both(tx, row, 0);
        Ok(())
    });
    fabric.block_on(inserted).expect("there is memory for it");
    let mut reading = pin!(reader.transact_read_only(async |tx| {
        let row = tx.get_row(TABLE, KEY).await?.expect("there");
        Ok((row.u64(A), row.u64(LAST)))
    }));
    let at = other.database().protocol.info().phases.iter().position(|it| *it == "read_record");
    let is_there = || other.metrics.snapshot().phases[at.expect("a phase")] > 0;
    while !is_there() {
        assert!(poll(&mut reading).is_pending());
        fabric.step();
    }
    (0..lines).for_each(|_| fabric.step());
    fabric.hold(other.node.id, NodeSlot(0));
    for value in 1..=UPDATES {
        let updated = writer.transact(async |tx| {
            let row = tx.update(TABLE, KEY, Cells::ALL);
            tx.fetch().await?;
            both(tx, row, value);
            Ok(())
        });
        fabric.block_on(updated).expect("discarded memory is used again");
    }
    fabric.land(other.node.id, NodeSlot(0));
    fabric.block_on(reading).expect("it is tried again")
}

#[test]
fn a_version_is_read_whole_even_if_its_memory_is_reused_at_once() {
    let all = || (0..LINES).flat_map(|lines| (0..20).map(move |seed| (lines, seed)));
    let mut later = 0;
    for (lines, seed) in all() {
        let (first, last) = seen_beside_a_writer("corrected", lines, seed);
        assert_eq!(first, last, "after {lines} lines, seed {seed}");
        later += usize::from(first > 0);
    }
    assert!(later > 0, "some read again");
    let is_torn = |&(lines, seed): &(usize, u64)| {
        let (first, last) = seen_beside_a_writer("corrected,-checksum", lines, seed);
        first != last
    };
    let missed = all().find(is_torn).expect("the planted bug goes unnoticed");
    println!("without the checksum: torn after {} lines, seed {}", missed.0, missed.1);
}
