//! Whether transactions still work, asked when a cluster that has lost nodes is mended.
//!
//! Invariant: on every compute node that lives, a thread that ran transactions before commits a write in every group in
//! which anything was loaded. A failure that a fault may still cause is tried again a few times; any other failure, and a
//! thread that does not get there, is a finding.

use super::cluster::Cluster;
use super::desk::Desk;
use std::collections::BTreeMap;
use std::rc::Rc;
use tarn_engine::session::coordinator::Coordinator;
use tarn_fabric::clock::Nanos;
use tarn_store::ids::Failure;
use tarn_store::index::{group_of, hash_of};
use tarn_store::schema::{Cells, ColumnId, TableId};

/// So often a transaction is tried whose thread has not yet noticed a death.
const TRIES_MAX: u32 = 20;
/// How long it waits in between.
const WAIT: Nanos = Nanos(20_000);

/// A record of each group, as far as any was loaded.
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

/// Commits a transaction on each of these records.
pub(super) async fn probe<T>(mut by: Coordinator, records: Vec<(TableId, u64)>, desk: &Desk<T>) {
    'records: for record in records {
        let mut tries = 0;
        while let Err(failure) = touch(&mut by, record).await {
            tries += 1;
            let (cx, node) = (Rc::clone(by.context()), by.context().node.id);
            if !cx.database().membership.is_member(node) {
                // It was expelled meanwhile, for its clock perhaps.
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

/// Writes a record's first column again, as it is; one that was deleted is read.
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
