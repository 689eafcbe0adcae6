//! Tests transactions that could be tried for ever. Such transactions must end, and return the reason.
//!
//! Invariant checked: a node that is no longer a member learns that it is not. No transaction is blocked by its own
//! lock.

use crate::common::each_that;
use std::rc::Rc;
use tarn::cluster::{Cluster, ClusterConfig};
use tarn::{Backing, Nanos, Retry, Row, Tarn};
use tarn_engine::protocol::ALL;
use tarn_engine::recovery;
use tarn_engine::requests::serve;
use tarn_engine::session::coordinator::Coordinator;
use tarn_fabric::error::FabricError;
use tarn_fabric::executor::block_on;
use tarn_store::ids::{Explanation, Failure};
use tarn_store::schema::{Cells, ColumnId, ColumnType, TableId, TableSchema};

const T: TableId = TableId(0);
const A: ColumnId = ColumnId(0);
/// The deadline is longer than any transaction of these tests takes.
const RETRY: Retry = Retry { deadline: Some(Nanos(20_000_000_000)), ..Retry::PATIENT };

#[derive(Row)]
#[row(table = "values", key(id))]
struct Value {
    id: u64,
    v: u64,
}

#[test]
fn a_zombie_s_transaction_ends_with_its_reason() {
    for info in each_that("its compute nodes survive crashes", |caps| caps.crash_recovery) {
        let schema = TableSchema::new("t", 100).column("a", ColumnType::U64);
        let config = ClusterConfig {
            protocol: info.name.into(),
            memory_nodes: 2,
            replicas: 2,
            compute_nodes: 2,
            backing: Backing::Private,
            ..ClusterConfig::default()
        };
        let cluster = Cluster::new(&[schema], &config).expect("a cluster");
        let lives = [0, 1].map(|slot| cluster.join(slot).expect("a life"));
        serve::share_out(cluster.database(), &lives.each_ref().map(|node| node.id));
        let nodes = lives.each_ref().map(|life| Rc::new(cluster.context(life, 0).expect("one")));
        let mut by = Coordinator::new(Rc::clone(&nodes[0]), 0, RETRY);
        for key in 0..16u64 {
            let filled = block_on(by.transact(async |tx| {
                let row = tx.insert(T, key);
                tx.fetch().await?;
                tx.set(row, A, 1u64);
                Ok(())
            }));
            assert_eq!(filled, Ok(()), "{}", info.name);
            nodes[0].serve();
        }
        cluster.database().membership.expel(lives[0].id);
        let recovered = block_on(recovery::recover(&nodes[1], lives[0].id));
        assert!(matches!(recovered, Ok(recovery::Attempt::Recovered(_))), "{}", info.name);
        nodes[1].serve();
        for key in 0..16u64 {
            let ended = block_on(by.transact(async |tx| {
                let row = tx.update(T, key, Cells::ALL);
                tx.fetch().await?;
                tx.set(row, A, 2u64);
                Ok(())
            }));
            assert_eq!(ended, Err(Failure::Fabric), "{}: key {key}", info.name);
            let why = nodes[0].explanation(Failure::Fabric);
            let fenced = Some(Explanation::Fabric(FabricError::Fenced));
            assert_eq!(why, fenced, "{}: key {key}", info.name);
        }
    }
}

/// Tests that transactions are refused if a shard never had an owner, because then no node grants the shard's locks.
#[test]
fn transactions_without_shared_out_shards_are_refused_with_the_reason() {
    for info in ALL {
        let schema = TableSchema::new("t", 100).column("a", ColumnType::U64);
        let backing = Backing::Private;
        let config = ClusterConfig {
            protocol: info.name.into(),
            compute_nodes: 2,
            backing,
            ..ClusterConfig::default()
        };
        let cluster = Cluster::new(&[schema], &config).expect("a cluster");
        let node = cluster.join(0).expect("a life");
        let cx = Rc::new(cluster.context(&node, 0).expect("a thread"));
        let mut by = Coordinator::new(Rc::clone(&cx), 0, RETRY);
        let ended = block_on(by.transact(async |tx| {
            let row = tx.insert(T, 1u64);
            tx.fetch().await?;
            tx.set(row, A, 1u64);
            Ok(())
        }));
        if !cluster.database().protocol.needs().locks {
            assert_eq!(ended, Ok(()), "{}", info.name);
            continue;
        }
        assert_eq!(ended, Err(Failure::Usage), "{}", info.name);
        let why = cx.explanation(Failure::Usage).expect("it says why").to_string();
        assert!(why.starts_with("shards = without owners; allowed: "), "{why}");
    }
}

/// Inserts into buckets with chains. The same transactions also look up other keys of these buckets, which do not
/// exist. Under snapshot isolation, a lookup without a lock meets the transaction's own lock on the bucket.
#[test]
fn no_session_waits_for_a_lock_of_its_own() {
    for info in ALL {
        let snapshot = info.caps.snapshot_isolation.then_some("corrected,si");
        for variant in ["corrected"].into_iter().chain(snapshot) {
            let values = Tarn::embedded().table::<Value>(40).memory(Backing::Private);
            let values = values
                .protocol(info.name, variant)
                .retry(RETRY)
                .deadline(None)
                .open()
                .expect("opens");
            let table = values.table::<Value>().expect("it is there");
            let mut session = values.session().expect("one");
            for key in 0..200u64 {
                let ended = session.run(async |tx| {
                    table.put(tx, &Value { id: key, v: key }).await?;
                    for other in 100_000..100_020 {
                        assert!(table.find(tx, other).await?.is_none());
                    }
                    tarn::Ok(())
                });
                assert!(ended.is_ok(), "{} {variant}: key {key}: {ended:?}", info.name);
            }
        }
    }
}
