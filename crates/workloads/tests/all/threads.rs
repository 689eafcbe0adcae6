//! Tests with threads that really run at the same time, on few records. These threads disturb each
//! other in ways that coroutines of one thread cannot (torn reads, locks taken between two verbs of a
//! batch).

use crate::common::{Cluster, Shape, all_ok, protocols_in_turn, scaled_down, small};
use tarn_engine::cluster::info::ProtocolInfo;
use tarn_store::ids::UsageError;
use tarn_workloads::{NAMES, Workload, with_workload};

const THREADS: usize = 3;
const TRANSACTIONS: usize = 400;

fn survives_threads<W: Workload<Tally: Send> + Sync>(
    profile: &str,
    records: u64,
    transactions: usize,
    shape: Shape<'_>,
) {
    let workload: W = small(profile, records);
    let context = format!("{} {profile}, {records} records, {shape:?}", W::NAME);
    let cluster = Cluster::loaded(&workload, shape, 9);
    let tally = cluster.run_threads(&workload, THREADS, transactions, 9);
    let invariants = cluster.check(&workload, &tally);
    assert!(all_ok(&invariants), "{context}: {invariants:?}");
    let audit = cluster.audit();
    assert!(audit.is_clean(), "{context}: {audit}");
}

/// Returns `transactions`, or a twentieth of them under a protocol that serves requests in turn (DSLR,
/// and locks of a service). Under such a protocol a thread may wait for threads that do not run,
/// because the test may have more threads than cores.
fn share_of(transactions: usize, protocol: &ProtocolInfo) -> usize {
    // A slash stands before the name of a lock service.
    let serves_in_turn = protocol.name == "dslr" || protocol.name.contains('/');
    if serves_in_turn { transactions / 20 } else { transactions }
}

#[test]
fn every_profile_survives_threads() -> Result<(), UsageError> {
    for (turn, &name) in NAMES.iter().enumerate() {
        for (protocol, replicas) in protocols_in_turn(turn) {
            let shape = Shape::new(protocol.name, replicas);
            with_workload!(name, W => for (profile, records) in scaled_down::<W>(20) {
                let transactions = share_of(TRANSACTIONS, protocol);
                survives_threads::<W>(profile, records, transactions, shape);
            })?;
        }
    }
    Ok(())
}

/// The tables have half a slot per record, and transactions insert and delete forwardings. So buckets
/// get chains of overflow blocks.
#[test]
fn long_chains_survive_threads() {
    for (turn, subscribers) in [3, 40].into_iter().enumerate() {
        for (protocol, replicas) in protocols_in_turn(turn) {
            let shape = Shape { slots_per_100_records: 50, ..Shape::new(protocol.name, replicas) };
            survives_threads::<tarn_workloads::tatp::Tatp>(
                "spec",
                subscribers,
                share_of(4000, protocol),
                shape,
            );
        }
    }
}
