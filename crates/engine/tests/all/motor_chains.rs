//! Tests of Motor's transactions that are declared read-only, on buckets with chains.
//!
//! Invariant checked: a snapshot shows all changes of a transaction or none, even if it shows that a key is absent.
//! To find that a key is absent from a chain, a reader reads the chain block by block.

use crate::common::weak::{RETRY, WeakFabric};
use crate::common::*;
use std::pin::pin;
use std::rc::Rc;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::session::transaction::Transaction;
use tarn_store::ids::Failure;
use tarn_store::schema::{Cells, TableId};

const T: TableId = TableId(0);
/// The number of keys. All keys except a few are in chains.
const KEYS: u64 = 60;
/// The record that counts how often a key was deleted.
const MARK: u64 = 1_000;

async fn take_away(tx: &mut Transaction<'_>, key: u64) -> Result<(), Failure> {
    let (mark, _) = (tx.update(T, MARK, Cells::ALL), tx.delete(T, key));
    tx.fetch().await?;
    tx.set(mark, A, 1u64);
    Ok(())
}

async fn bring_back(tx: &mut Transaction<'_>, key: u64) -> Result<(), Failure> {
    let (mark, row) = (tx.update(T, MARK, Cells::ALL), tx.insert(T, key));
    tx.fetch().await?;
    tx.set(mark, A, 0u64);
    tx.set(row, A, key);
    Ok(())
}

#[test]
fn an_absence_found_in_a_chain_belongs_to_the_snapshot() {
    let fabric = WeakFabric::new(&Shape::of(&[narrow("t", 8)]).protocol("motor"), 5);
    fabric.calm();
    let contexts = [0, 1].map(|slot| fabric.context(slot, 0));
    let [mut writer, mut reader] = [0, 1].map(|number| {
        contexts[number].growth.enable(false);
        Coordinator::new(Rc::clone(&contexts[number]), number as u32, RETRY)
    });
    for key in (1..=KEYS).chain([MARK]) {
        let fill = async |tx: &mut Transaction<'_>| {
            let row = tx.insert(T, key);
            tx.fetch().await?;
            tx.set(row, A, if key == MARK { 0 } else { key });
            Ok(())
        };
        fabric.block_on(writer.transact(fill)).expect("there is room");
    }
    for turn in 0..600 {
        let key = 1 + turn % KEYS;
        let seen = {
            let mut read = pin!(reader.transact_read_only(async |tx: &mut Transaction<'_>| {
                let rows = [key, MARK].map(|key| tx.read(T, key, Cells::ALL));
                tx.fetch().await?;
                Ok((tx.get(rows[0]).is_some(), tx.get(rows[1]).expect("there").u64(A)))
            }));
            let steps = fabric.draw(40);
            let early = poll_times(read.as_mut(), steps, || fabric.step());
            let gone = async |tx: &mut Transaction<'_>| take_away(tx, key).await;
            fabric.block_on(writer.transact(gone)).expect("nobody is in its way");
            match early {
                Some(seen) => seen,
                None => fabric.block_on(read),
            }
        };
        let (is_there, times) = seen.expect("it is tried until it can be");
        assert_eq!(is_there, times == 0, "turn {turn}, key {key}: half of a transaction");
        let back = async |tx: &mut Transaction<'_>| bring_back(tx, key).await;
        fabric.block_on(writer.transact(back)).expect("nobody is in its way");
    }
}
