//! Handles missing rows that a transaction needs and that no transaction ever removes: warehouses,
//! districts, customers, items, stocks, orders and their lines.
//!
//! A try that does not find such a row ends immediately. The try may have read versions that never
//! existed together. A commit would discover such an inconsistent read, but this try does not commit.
//! So another transaction, which is validated, reads the row once more. Clause 2.3.6 requires that a
//! missing row is detected and reported.
//!
//! Invariant: a row counts as missing if a validated read does not find it either. A transaction that
//! did not find an existing row runs again, but not forever. If the transaction repeatedly does not
//! find the same row, its reads are faulty, and the tally counts it as overlooking the row.

use super::Tally;
use std::cell::Cell;
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::schema::row::Row;
use tarn_store::schema::{Cells, TableId};
use tarn_engine::session::transaction::Transaction;
use tarn_engine::transaction::working_set::Handle;

/// The row that a try has not found, if the try has failed for this reason.
#[derive(Default)]
pub(super) struct Wanted {
    missed: Cell<Option<(TableId, u64)>>,
    /// The last existing row that was not found, and how often in succession it was not found.
    overlooked: Cell<Option<((TableId, u64), u32)>>,
}

/// The number of successive tries in which a transaction may fail to find one existing row. A correct
/// engine may cause one or even two such failures, because the versions that a transaction reads
/// change between two tries.
const OVERLOOKED_MAX: u32 = 5;

impl Wanted {
    /// Returns the row that was fetched. The row must exist.
    ///
    /// # Errors
    /// The row was not found, so the transaction aborts itself.
    #[inline]
    pub(super) fn row<'a>(
        &self,
        tx: &'a Transaction<'_>,
        (table, key): (TableId, u64),
        handle: Handle,
    ) -> Result<Row<'a>, Failure> {
        match tx.get(handle) {
            Some(row) => Ok(row),
            None => self.miss(tx, table, key),
        }
    }

    #[cold]
    fn miss<R>(&self, tx: &Transaction<'_>, table: TableId, key: u64) -> Result<R, Failure> {
        self.missed.set(Some((table, key)));
        tx.abort()
    }

    /// Returns whether the try has found all rows.
    pub(super) fn is_complete(&self) -> bool {
        self.missed.get().is_none()
    }

    /// Returns whether to run the failed transaction again. If the result is false, the function
    /// counts the row as missing or as overlooked.
    ///
    /// # Errors
    /// If all rows were found, the error is `failure` itself. Otherwise the function reads the rows
    /// again with validation, and returns the error of this read.
    #[cold]
    pub(super) async fn is_again(
        &self,
        coordinator: &mut Coordinator,
        failure: Failure,
        tally: &mut Tally,
    ) -> Result<bool, Failure> {
        let missed = match failure {
            Failure::Abort(AbortReason::User) => self.missed.take(),
            _ => None,
        };
        let Some((table, key)) = missed else { return Err(failure) };
        let is_there = coordinator
            .transact(async |tx| {
                let row = tx.read(table, key, Cells::NONE);
                tx.fetch().await?;
                Ok(tx.existed(row))
            })
            .await?;
        if !is_there {
            tally.missed(table, key);
            return Ok(false);
        }
        tally.looked_again += 1;
        let before = self.overlooked.get().filter(|(row, _)| *row == (table, key));
        let times = before.map_or(0, |(_, times)| times) + 1;
        self.overlooked.set(Some(((table, key), times)));
        if times == OVERLOOKED_MAX {
            tally.overlooked(table, key);
        }
        Ok(times < OVERLOOKED_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;
    use std::sync::Arc;
    use tarn_store::placement::catalog::{Catalog, Options};
    use tarn_engine::site::{ComputeNode, Context, Database};
    use tarn_engine::session::coordinator::Retry;
    use tarn_engine::cluster::membership::{EmbeddedMembership, Membership as _};
    use tarn_engine::protocol::{ALL, AnyProtocol};
    use tarn_store::placement::replica_groups::ReplicaGroups;
    use tarn_store::schema::{ColumnType, TableSchema};
    use tarn_fabric::address::NodeSlot;
    use tarn_fabric::executor::block_on;
    use tarn_fabric::local::{Backing, LocalConfig, LocalFabric};

    const T: TableId = TableId(0);

    fn coordinator() -> Coordinator {
        let schemas = [TableSchema::new("t", 8).column("a", ColumnType::U64)];
        let options = Options { coordinators_max: 1, spare_bytes: 1 << 20, ..Options::default() };
        let catalog = Catalog::plan(&schemas, &options, 1).expect("a plan");
        let config = LocalConfig {
            memory_nodes: 1,
            replicas: 1,
            group_bytes: catalog.group_bytes(),
            backing: Backing::Private,
            ..LocalConfig::default()
        };
        let fabric = LocalFabric::new(&config).expect("a cluster");
        let groups = ReplicaGroups::new(fabric.groups().to_vec());
        let protocol = AnyProtocol::by_name(ALL[0].name, "corrected").expect("a variant");
        let membership = Arc::new(EmbeddedMembership::new(1));
        let id = membership.join(NodeSlot(0)).expect("a life");
        let database = Arc::new(Database::new(catalog, groups, protocol, membership));
        let node = Arc::new(ComputeNode::new(database, id));
        let cx = Context::new(node, fabric.port(id, 0, 1), 0, 0).expect("a thread");
        Coordinator::new(Rc::new(cx), 0, Retry::default())
    }

    /// Tests a planted fault: every try reads a wrong key.
    #[test]
    fn a_transaction_that_keeps_missing_an_existing_row_ends() {
        let mut by = coordinator();
        block_on(by.transact(async |tx| {
            tx.insert_zeros(T, 1u64);
            tx.fetch().await
        }))
        .expect("inserted");
        let (wanted, mut tally, mut tries) = (Wanted::default(), Tally::default(), 0);
        let ended = block_on(async {
            loop {
                tries += 1;
                assert!(tries < 100, "it is tried for ever");
                let read = by.transact(async |tx| {
                    let other = tx.read(T, 2u64, Cells::ALL);
                    tx.fetch().await?;
                    wanted.row(tx, (T, 1), other).map(|_| ())
                });
                let Err(failure) = read.await else { panic!("it is not there") };
                match wanted.is_again(&mut by, failure, &mut tally).await {
                    Ok(true) => {}
                    ended => return ended,
                }
            }
        });
        assert_eq!((ended, tries), (Ok(false), OVERLOOKED_MAX));
        assert_eq!((tally.overlooked, tally.missing), (1, 0));
        assert_eq!(tally.first_overlooked, Some((T, 1)));
        assert_eq!(tally.looked_again, u64::from(OVERLOOKED_MAX));
    }
}
