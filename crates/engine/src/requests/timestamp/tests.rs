//! Tests of the guarantees of every source of timestamps, on the local backend.
//!
//! Invariant checked, in one run in which each transaction is acknowledged before the next one requests a timestamp:
//! commit timestamps ascend. Each start timestamp is at least the last acknowledged timestamp, and below the next
//! timestamp that is given.

use super::pool_word;
use crate::cluster::membership::EmbeddedMembership;
use crate::protocol::{ALL, AnyProtocol};
use crate::services::timestamp::{ClockStamps, Timestamps};
use crate::site::{ComputeNode, Context, Database};
use std::collections::BTreeSet;
use std::sync::Arc;
use tarn_fabric::address::NodeSlot;
use tarn_fabric::executor::{Executor, block_on};
use tarn_fabric::local::{LocalConfig, LocalFabric};
use tarn_store::ids::{Failure, Timestamp};
use tarn_store::placement::catalog::Options;
use tarn_store::placement::replica_groups::ReplicaGroups;
use tarn_store::schema::{ColumnType, TableSchema};

/// Creates threads of two nodes that use timestamps from the source that `make` creates.
fn contexts(make: impl Fn() -> Timestamps) -> Vec<Context> {
    let schema = TableSchema::new("t", 10).column("a", ColumnType::U64);
    let options = Options { coordinators_max: 4, spare_bytes: 0, ..Options::default() };
    let protocol = AnyProtocol::by_name(ALL[0].name, "corrected").expect("there is one");
    let catalog = protocol.catalog(&[schema], &options, 1).expect("a plan");
    let group_bytes = catalog.group_bytes();
    let fabric = LocalFabric::new(&LocalConfig { group_bytes, ..LocalConfig::default() });
    let fabric = fabric.expect("a fabric");
    let groups = ReplicaGroups::new(fabric.groups().to_vec());
    let membership = Arc::new(EmbeddedMembership::new(2));
    let database = Arc::new(Database::new(catalog, groups, protocol, membership));
    let threads = |slot| {
        let id = database.membership.join(NodeSlot(slot)).expect("a life");
        let node = Arc::new(ComputeNode::new(Arc::clone(&database), id));
        [0, 1].map(|thread| {
            let port = fabric.port(id, thread, 7);
            let mut cx = Context::new(Arc::clone(&node), port, thread, 0).expect("a thread");
            cx.timestamps = make();
            cx
        })
    };
    [0, 1].into_iter().flat_map(threads).collect()
}

fn sources() -> [fn() -> Timestamps; 3] {
    [
        || Timestamps::Counter,
        || Timestamps::Pool(pool_word()),
        || Timestamps::Clock(ClockStamps::default()),
    ]
}

#[test]
fn commits_ascend_and_starts_lie_between_them() {
    for make in sources() {
        let threads = contexts(make);
        let mut acknowledged = Timestamp::LOADED;
        for turn in 0..200 {
            let (reader, writer) = (&threads[turn % 4], &threads[turn / 3 % 4]);
            let start = block_on(reader.timestamps.start(reader)).expect("a start");
            assert!(start >= acknowledged, "{start:?} after {acknowledged:?}");
            let known = writer.timestamps.known(writer);
            let given = block_on(writer.timestamps.commit(writer)).expect("a timestamp");
            assert!(given > start && given > known && given > acknowledged, "{given:?}");
            assert!(given <= Timestamp::MAX && writer.timestamps.known(writer) >= given);
            block_on(writer.timestamps.wait_out(writer, given));
            acknowledged = given;
        }
    }
}

/// Tests that a node that gets a lock learns the greatest timestamp of the lock's earlier holders, without a message.
#[test]
fn a_timestamp_that_a_node_has_seen_bounds_its_next_commit() {
    for make in sources() {
        let threads = contexts(make);
        let (from, to) = (&threads[0], &threads[2]);
        for _ in 0..50 {
            let given = block_on(from.timestamps.commit(from)).expect("a timestamp");
            to.timestamps.observe(to, given);
            assert!(to.timestamps.known(to) >= given);
            let next = block_on(to.timestamps.commit(to)).expect("a timestamp");
            assert!(next > given, "{next:?} after {given:?}");
        }
    }
}

#[test]
fn concurrent_requests_get_each_timestamp_once() {
    for make in sources() {
        let threads = contexts(make);
        let given = std::cell::RefCell::new(Vec::new());
        let mut executor = Executor::new();
        for cx in threads.iter().cycle().take(32) {
            executor.spawn(async {
                for _ in 0..20 {
                    let commit: Result<Timestamp, Failure> = cx.timestamps.commit(cx).await;
                    given.borrow_mut().push(commit.expect("a timestamp"));
                    cx.port.yield_now().await;
                }
            });
        }
        executor.run();
        drop(executor);
        let given = given.into_inner();
        let once: BTreeSet<Timestamp> = given.iter().copied().collect();
        assert_eq!((given.len(), once.len()), (640, 640));
    }
}
