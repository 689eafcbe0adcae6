//! Tests of DrTM's leases on nodes whose clocks have different precision.
//!
//! Invariant checked: a lease lasts until its end for every transaction that relies on it, even if another
//! transaction requests a new lease in its place.

use crate::common::budget::add_one;
use crate::common::weak::{RETRY, WeakFabric};
use crate::common::*;
use std::cell::Cell;
use std::rc::Rc;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::session::transaction::Transaction;
use tarn_engine::site::Context;
use tarn_store::ids::Failure;
use tarn_store::schema::TableId;

const T: TableId = TableId(0);
/// The length of leases, in ticks of the weak fabric. A lease is much longer than a transaction takes.
const LEASE_TICKS: u32 = 5_000;

fn by(cx: &Rc<Context>, number: u32) -> Coordinator {
    Coordinator::new(Rc::clone(cx), number, RETRY)
}

/// Reads key 1 and then key 2. In the first try the function calls `between` between the two reads.
async fn read_both(
    tx: &mut Transaction<'_>,
    between: &Cell<Option<impl FnOnce()>>,
) -> Result<[u64; 2], Failure> {
    let first = tx.get_row(T, 1u64).await?.map(|row| row.u64(A));
    if let Some(between) = between.take() {
        between();
    }
    let second = tx.get_row(T, 2u64).await?.map(|row| row.u64(A));
    Ok([first, second].map(|value| value.expect("it is there")))
}

/// Tests a reader that must not shorten another reader's lease. The first reader has a lease on a record. The second
/// reader knows the time so imprecisely that the lease may have ended from its point of view. The second reader
/// requests a new lease, and computes its end from the earliest possible time. So the new end is before the end of
/// the first lease. A writer that knows the time exactly waits until the end that the lease word states.
#[test]
fn a_transaction_that_cannot_tell_the_end_of_a_lease_does_not_shorten_it() {
    for seed in 0..20 {
        let shape = Shape::of(&[narrow("t", 64)]).protocol("drtm").leasing_reads(LEASE_TICKS);
        let fabric = WeakFabric::new(&shape, seed);
        fabric.calm();
        let [reader, doubter, writer] = [0, 1, 2].map(|slot| fabric.context(slot, 0));
        let [mut reader, mut doubter, mut writer] =
            [(&reader, 1), (&doubter, 2), (&writer, 3)].map(|(cx, number)| by(cx, number));
        fabric
            .block_on(writer.transact(async |tx| {
                for key in [1u64, 2] {
                    tx.insert_zeros(T, key);
                }
                tx.fetch().await
            }))
            .expect("nothing is broken");
        // The error of this clock may be as large as the length of a lease.
        (0..2 * LEASE_TICKS).for_each(|_| fabric.step());
        fabric.doubt_clock(1, u64::from(LEASE_TICKS), u64::from(LEASE_TICKS));

        let between = Cell::new(Some(|| {
            let doubts = async |tx: &mut Transaction<'_>| tx.get_row(T, 1u64).await.map(drop);
            fabric.block_on(doubter.transact(doubts)).expect("nothing is broken");
            let writes = async |tx: &mut Transaction<'_>| add_one(tx, T, &[1, 2]).await;
            fabric.block_on(writer.transact(writes)).expect("nothing is broken");
        }));
        let seen = fabric.block_on(reader.transact(async |tx| read_both(tx, &between).await));
        let [first, second] = seen.expect("nothing is broken");
        assert_eq!(first, second, "seed {seed}: half of what was written");
    }
}
