//! Runs every profile of every workload, under every protocol, with one replica and with three in turn. After the
//! run the workload's invariants hold, and the engine's audit finds no fault in memory.

use crate::common::{COROUTINES, Cluster, Shape, all_ok, protocols_in_turn, scaled_down, small};
use tarn_store::ids::UsageError;
use tarn_workloads::{NAMES, Workload, with_workload};

/// The number of transactions of each coroutine.
const TRANSACTIONS: usize = 400;

fn profile_keeps_its_invariants<W: Workload>(profile: &str, records: u64, shape: Shape<'_>) {
    let workload: W = small(profile, records);
    let context = format!("{} {profile}, {records} records, {shape:?}", W::NAME);
    let cluster = Cluster::loaded(&workload, shape, 7);
    let nothing = cluster.check(&workload, &W::Tally::default());
    assert!(all_ok(&nothing), "{context}, loaded: {nothing:?}");

    let tally = cluster.run(&workload, TRANSACTIONS, 7);
    let invariants = cluster.check(&workload, &tally);
    assert!(all_ok(&invariants), "{context}: {invariants:?}");
    let audit = cluster.audit();
    assert!(audit.is_clean(), "{context}: {audit}");

    let snapshot = cluster.cx.metrics.snapshot();
    let user = snapshot.aborts[tarn_store::ids::AbortReason::User as usize];
    let ended = snapshot.committed + user;
    assert_eq!(ended, u64::from(COROUTINES) * TRANSACTIONS as u64, "{context}");
}

fn every_profile(name: &str, records: u64) -> Result<(), UsageError> {
    with_workload!(name, W => for (turn, (profile, records)) in scaled_down::<W>(records).into_iter().enumerate() {
        for (protocol, replicas) in protocols_in_turn(turn) {
            profile_keeps_its_invariants::<W>(profile, records, Shape::new(protocol.name, replicas));
        }
    })?;
    Ok(())
}

#[test]
fn kvs() -> Result<(), UsageError> {
    every_profile("kvs", 300)
}

#[test]
fn smallbank() -> Result<(), UsageError> {
    every_profile("smallbank", 300)
}

/// The test has so few accounts that nearly all transactions conflict, and that accounts run out of
/// money.
#[test]
fn smallbank_contended() -> Result<(), UsageError> {
    every_profile("smallbank", 3)
}

#[test]
fn taobench() -> Result<(), UsageError> {
    every_profile("taobench", 200)
}

/// The test has fewer edges than most transactions have operations.
#[test]
fn taobench_contended() -> Result<(), UsageError> {
    every_profile("taobench", 3)
}

#[test]
fn tatp() -> Result<(), UsageError> {
    every_profile("tatp", 200)
}

/// The test has so few subscribers that transactions insert and delete forwardings in the same
/// buckets all the time.
#[test]
fn tatp_contended() -> Result<(), UsageError> {
    every_profile("tatp", 5)
}

#[test]
fn tpcc() -> Result<(), UsageError> {
    every_profile("tpcc", 2)
}

#[test]
fn ycsb() -> Result<(), UsageError> {
    every_profile("ycsb", 300)
}

/// The test has fewer records than a transaction has operations. So one transaction uses the same
/// record several times.
#[test]
fn ycsb_contended() -> Result<(), UsageError> {
    every_profile("ycsb", 6)
}

#[test]
fn no_workload_is_left_out() {
    assert_eq!(
        NAMES,
        ["kvs", "smallbank", "taobench", "tatp", "tpcc", "ycsb"],
        "add a test for a new workload"
    );
}
