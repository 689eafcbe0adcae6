//! The probe checks whether transactions still work after a cluster that has lost nodes is repaired.
//!
//! Invariant: on every living compute node, a thread that ran transactions before must commit a write in every
//! replica group with loaded records. If a fault may still be the cause of a failure, the probe tries again a few
//! times. Any other failure is an error. If a thread cannot commit after these tries, this is also an error.

use super::cluster::Cluster;
use super::desk::Desk;
use std::collections::BTreeMap;
use std::rc::Rc;
use tarn_engine::session::coordinator::Coordinator;
use tarn_fabric::clock::Nanos;
use tarn_store::ids::Failure;
use tarn_store::index::{group_of, hash_of};
use tarn_store::schema::{Cells, ColumnId, TableId};

/// The number of tries of a transaction whose thread has not yet noticed a death.
const TRIES_MAX: u32 = 20;
/// How long the probe waits between two tries.
const WAIT: Nanos = Nanos(20_000);

/// Returns one record of each replica group that contains any loaded record.
pub(super) fn records(cluster: &Cluster) -> Vec<(TableId, u64)> {
    let catalog = &cluster.database.catalog;
    let mut records = BTreeMap::new();
    for write in cluster.loaded().iter() {
        let table = catalog.table(write.table);
        let group = group_of(catalog, table, hash_of(table, write.key));
        records.entry(group.0).or_insert((write.table, write.key));
    }
    records.into_values().collect()
}

/// Commits one transaction on each of these records. A failed commit is recorded as an error.
pub(super) async fn probe<T>(mut by: Coordinator, records: Vec<(TableId, u64)>, desk: &Desk<T>) {
    'records: for record in records {
        let mut tries = 0;
        while let Err(failure) = touch(&mut by, record).await {
            tries += 1;
            let (cx, node) = (Rc::clone(by.context()), by.context().node.id);
            if !cx.database().membership.is_member(node) {
                // The probe's node was expelled during the probe, perhaps because its clock ran wrong.
                break 'records;
            }
            let is_known = matches!(failure, Failure::Fabric | Failure::DeadlineExceeded);
            if !is_known || tries == TRIES_MAX {
                let text = format!("all is mended, and a transaction of {node} fails: {failure}");
                desk.left.borrow_mut().failures.push(text);
                break;
            }
            cx.port.sleep(WAIT).await;
        }
    }
    desk.probes.set(desk.probes.get() - 1);
}

/// Writes the old value of a record's first column again. If the record was deleted, the function only reads its
/// place.
async fn touch(by: &mut Coordinator, (table, key): (TableId, u64)) -> Result<(), Failure> {
    by.transact(async |tx| {
        let row = tx.update(table, key, Cells::ALL);
        tx.fetch().await?;
        let first = tx.get(row).map(|row| row.bytes(ColumnId(0)).to_vec());
        if let Some(bytes) = first {
            tx.set(row, ColumnId(0), &bytes[..]);
        }
        Ok(())
    })
    .await
}
