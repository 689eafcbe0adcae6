//! Tests of transactions that request locks of records with the same number, and of a transaction's patience and turn.
//!
//! Invariant checked: the log describes only records that were read under their exclusive lock.

use super::*;
use crate::cluster::membership::EmbeddedMembership;
use crate::protocol::AnyProtocol;
use crate::services::lock_stations::locked;
use crate::services::{ServiceOptions, Transport};
use crate::site::{ComputeNode, Database};
use crate::steps::node_locks::put_shares_away;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use tarn_fabric::address::{GroupId, NodeSlot};
use tarn_fabric::executor::block_on;
use tarn_fabric::local::{LocalConfig, LocalFabric};
use tarn_fabric::rpc::RpcConfig;
use tarn_locks::links::Pace;
use tarn_locks::value::LockId;
use tarn_store::placement::catalog::Options;
use tarn_store::placement::replica_groups::ReplicaGroups;
use tarn_store::schema::{ColumnType, TableSchema};

fn thread(resend_after: Nanos) -> Result<Context, tarn_store::ids::UsageError> {
    thread_with(resend_after, Transport::Near)
}

fn thread_with(
    resend_after: Nanos,
    transport: Transport,
) -> Result<Context, tarn_store::ids::UsageError> {
    threads(resend_after, transport, 1).map(|mut all| all.remove(0))
}

/// Threads of one node.
fn threads(
    resend_after: Nanos,
    transport: Transport,
    count: u16,
) -> Result<Vec<Context>, tarn_store::ids::UsageError> {
    let schema = TableSchema::new("t", 10).column("a", ColumnType::U64);
    let options = Options { coordinators_max: 4, spare_bytes: 0, ..Options::default() };
    let protocol = AnyProtocol::by_name("2pl/fisslock", "corrected").expect("there is one");
    let catalog = protocol.catalog(&[schema], &options, 1).expect("a plan");
    let config = LocalConfig { group_bytes: catalog.group_bytes(), ..LocalConfig::default() };
    let fabric = LocalFabric::new(&config).expect("a fabric");
    let groups = ReplicaGroups::new(fabric.groups().to_vec());
    let membership = Arc::new(EmbeddedMembership::new(1));
    let database = Arc::new(Database::new(catalog, groups, protocol, membership));
    let id = database.membership.join(NodeSlot(0)).expect("a place");
    let rpc = RpcConfig { retransmit_after: resend_after, ..RpcConfig::DEFAULT };
    let new = ServiceOptions::new(count, 1);
    let options = ServiceOptions { rpc, transport, ..new };
    let node = Arc::new(ComputeNode::serving(database, id, &options)?);
    let thread = |number: u16| {
        let port = fabric.port(id, number, 7);
        Context::new(Arc::clone(&node), port, number, 0).expect("a thread")
    };
    Ok((0..count).map(thread).collect())
}

fn txn(cx: &Context) -> Txn {
    Txn::new(cx.next_tag(), 0)
}

/// Two addresses of one number, and one of another number.
fn addresses(cx: &Context) -> [Address; 3] {
    let all = (1..).map(|at| Address::new(GroupId(0), at * 64));
    let mut seen = std::collections::BTreeMap::new();
    for address in all {
        if let Some(before) = seen.insert(cx.lock_of(address), address) {
            return [before, address, address.plus(64)];
        }
    }
    unreachable!("there are more addresses than locks")
}

fn settle(cx: &Context, txn: &mut Txn) {
    cx.serve_locks();
    assert_eq!(note(cx, txn), Ok(Progress::Granted));
    assert!(txn.locks.iter().chain(&txn.shares).all(|lock| lock.granted));
}

/// The records that the log describes.
fn logged(txn: &mut Txn) -> Vec<Address> {
    put_shares_away(txn);
    txn.locks.iter().map(|lock| lock.address).collect()
}

#[test]
fn the_log_describes_no_record_that_only_shares_the_number_of_a_written_one() {
    let cx = thread(Nanos(40_000)).expect("options in range");
    let [read, written, _] = addresses(&cx);
    let mut txn = txn(&cx);
    let shared = ByService::share_record(&cx, &mut txn, read);
    settle(&cx, &mut txn);
    // The record of this slot may have moved: then no entry of the transaction has this lock.
    assert_eq!(txn.locks[shared as usize].held_as, HeldAs::ServiceShared);
    let exclusive = ByService::lock_record(&cx, &mut txn, written);
    let locks = &txn.locks;
    assert_eq!(locks[shared as usize].held_as, HeldAs::ServiceShared);
    assert_eq!(locks[shared as usize].met, 0, "the exclusive request counts for both");
    assert_ne!(locks[exclusive as usize].met, 0);
    assert!(!locks[shared as usize].granted, "it was given back");
    settle(&cx, &mut txn);
    assert_eq!(logged(&mut txn), [written]);
    release_all(&cx, &mut txn);
    let stations = cx.database().lock_stations.as_ref().expect("a lock service");
    assert_eq!(stations.digest(), 0, "nothing is held");
}

#[test]
fn a_reader_that_becomes_a_writer_is_logged_once_and_for_itself() {
    let cx = thread(Nanos(40_000)).expect("options in range");
    let [one, other, apart] = addresses(&cx);
    let mut txn = txn(&cx);
    let shared = [one, other, apart].map(|at| ByService::share_record(&cx, &mut txn, at));
    settle(&cx, &mut txn);
    // The second lock counts by the request of the first.
    assert_eq!(txn.locks[shared[1] as usize].met, 0);
    ByService::lock_again(&cx, &mut txn, shared[1], Mode::Update);
    settle(&cx, &mut txn);
    ByService::lock_again(&cx, &mut txn, shared[2], Mode::Update);
    settle(&cx, &mut txn);
    assert_eq!(logged(&mut txn), [other, apart]);
    release_all(&cx, &mut txn);
    assert!(txn.locks.is_empty() && txn.shares.is_empty());
}

#[test]
fn patience_is_longer_than_the_present_pace_of_lost_mail() {
    let cx = thread(Nanos(40_000)).expect("options in range");
    let joined = cx.joined().expect("a number");
    let mut station = locked(&joined.station);
    let _ = station.acquire(0, LockId(1), Held::Exclusive);
    for now in [1_000, 10_000, 100_000, 1_000_000] {
        station.posts().for_each(drop);
        station.resend(Pace { least: 1_000, most: 8_000 }, now);
    }
    drop(station);
    assert_eq!(cx.locks_resend_now_after(), Nanos(8_000));
    let (for_holders, _) = patience(&cx, &txn(&cx));
    assert!(for_holders >= Nanos(16_000), "{for_holders:?}");
}

#[test]
fn transactions_that_have_failed_often_run_one_after_the_other() {
    let cx = thread(Nanos(1 << 40)).expect("options in range");
    let [mut first, mut second, mut fresh] = [(); 3].map(|()| txn(&cx));
    (first.tries_before, second.tries_before) = (TRIES_BEFORE_TURN, TRIES_BEFORE_TURN + 1);
    block_on(ByService::open(&cx, &mut first));
    let (for_holders, for_answers) = patience(&cx, &first);
    assert_eq!(for_holders, for_answers, "the transaction with the turn is patient");
    {
        let mut waits = pin!(ByService::open(&cx, &mut second));
        let mut has_turn =
            || block_on(poll_fn(|waiting| Poll::Ready(waits.as_mut().poll(waiting).is_ready())));
        assert!(!has_turn(), "another transaction has it");
        block_on(ByService::open(&cx, &mut fresh));
        assert!(fresh.shares.is_empty(), "it has not failed yet");
        release_all(&cx, &mut first);
        assert!(has_turn());
    }
    let (for_holders, for_answers) = patience(&cx, &fresh);
    assert!(for_holders < for_answers);
    release_all(&cx, &mut second);
    assert!([first, second, fresh].iter().all(|txn| txn.shares.is_empty()));
}

/// Two threads that hand over mail of one machine may change its order, and a decider ignores a question that comes
/// early. Here a sleeping thread's mail is dropped instead.
#[test]
fn mail_of_a_thread_that_sleeps_is_sent_again_by_a_thread_that_waits() {
    let all = threads(Nanos(40_000), Transport::Near, 2).expect("options in range");
    let [sleeps, waits] = &all[..] else { unreachable!("two threads") };
    let lock = waits.lock_of(addresses(waits)[0]);
    let held = sleeps.ask_lock(lock, Held::Exclusive).expect("a lock of this service");
    sleeps.serve_locks();
    assert!(matches!(sleeps.lock_outcome(held, lock), Some(Outcome::Holds(_))));
    let asked = waits.ask_lock(lock, Held::Exclusive).expect("a lock of this service");
    waits.serve_locks();
    let joined = sleeps.joined().expect("a machine");
    assert!(locked(&joined.station).end(sleeps.port.now().0, held));
    assert!(locked(&joined.station).posts().count() > 0, "the release hands the lock on");
    let since = waits.port.now();
    while !matches!(waits.lock_outcome(asked, lock), Some(Outcome::Holds(_))) {
        assert!(waits.port.now() - since < Nanos(10_000_000_000), "the lock is stuck");
        waits.serve_locks();
    }
}

#[test]
fn patience_has_no_bounds_that_wrap() {
    assert_eq!(thread(Nanos(0)).err().expect("refused").field, "rpc.retransmit_after");
    for resend_after in [1, 1 << 40, 1 << 55, 1 << 62, u64::MAX] {
        let cx = thread_with(Nanos(resend_after), Transport::Rpc).expect("in range");
        let mut txn = txn(&cx);
        let mut before = Nanos(0);
        for tries in 0..10 {
            txn.tries_before = tries;
            let (for_holders, for_answers) = patience(&cx, &txn);
            assert!(for_holders >= Nanos(resend_after) && for_answers >= for_holders);
            assert!(for_answers >= before, "{resend_after}");
            before = for_answers;
        }
    }
}
