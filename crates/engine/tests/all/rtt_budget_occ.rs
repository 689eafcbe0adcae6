//! The RTT budget of OCC: the table in `protocol/occ/mod.rs`, asserted by counting.
//!
//! Every assertion below gives the rounds until the reply, the detached rounds (posted before the reply, not
//! awaited), and the verbs of both. One coroutine runs alone. Memory is not near: near memory needs no
//! rounds.

use crate::common::budget::{Cost, add_one, measure, read, reading};
use crate::common::*;
use tarn_engine::session::transaction::Transaction;
use tarn_store::schema::{Cells, TableId};

const NARROW: TableId = TableId(0);
const REPLICAS: [usize; 2] = [1, 3];

/// The cost of updating `records` records of one line: log and data to every replica; the unlocks by CAS are
/// not awaited.
fn writing(replicas: usize, rounds: u64, reads: u64, records: u64) -> Cost {
    let writes = (1 + records) * replicas as u64;
    Cost { rounds, detached: 1, reads, writes, cas: 2 * records }
}

#[test]
fn a_reader_of_several_records_validates_and_a_writer_awaits_four_rounds() {
    for replicas in REPLICAS {
        let schemas = [narrow("narrow", 4000)];
        let mut shape = Shape::of(&schemas).protocol("occ").nodes(replicas, replicas);
        shape.options.placement = tarn_store::placement::catalog::Placement::Table;
        shape.near = false;
        let world = World::new(&shape);
        let (mut cold, mut warm) = (world.coordinator(0, 0), world.coordinator(1, 1024));
        fill(&mut cold, NARROW, 1..10);
        let keys = [1, 2, 3];
        measure(&mut warm, false, async |tx| read(tx, NARROW, &keys).await);
        let one = measure(&mut cold, false, async |tx| read(tx, NARROW, &[1]).await);
        assert_eq!(one, reading(1, 1));
        let several = measure(&mut cold, false, async |tx| read(tx, NARROW, &keys).await);
        assert_eq!(several, reading(2, 6));
        for keys in [&[1][..], &[1, 2]] {
            let count = keys.len() as u64;
            let cost = measure(&mut warm, false, async |tx| add_one(tx, NARROW, keys).await);
            assert_eq!(cost, writing(replicas, 3, count, count));
            let cost = measure(&mut cold, false, async |tx| add_one(tx, NARROW, keys).await);
            assert_eq!(cost, writing(replicas, 4, 2 * count, count));
        }
        let other = async |tx: &mut Transaction<'_>| {
            let row = tx.read(NARROW, 3u64, Cells::ALL);
            add_one(tx, NARROW, &[1]).await?;
            assert!(tx.get(row).is_some());
            Ok(())
        };
        assert_eq!(measure(&mut warm, false, other), writing(replicas, 4, 3, 1));
        world.assert_clean();
    }
}
