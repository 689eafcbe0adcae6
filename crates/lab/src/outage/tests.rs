//! Plants faults in the memory after an outage, and checks that the judge of the outage notices each fault.
//!
//! Invariant: each test makes one change to a correct memory, through the engine's own test hooks,
//! just before the judge checks it. The test fails if the judge does not notice the change.

use super::report::Outage;
use super::run::run_and_meddle;
use super::{Plan, Shape};
use std::rc::Rc;
use tarn_engine::cluster::membership::Standing;
use tarn_engine::protocol::settle::Logged;
use tarn_engine::recovery::{logged, plant_undone};
use tarn_engine::site::Context;
use tarn_fabric::address::{Address, Incarnation, NodeId, NodeSlot};
use tarn_fabric::executor::block_on;
use tarn_fabric::round::Round;
use tarn_sim::profile::Profile;
use tarn_store::ids::OwnerTag;
use tarn_store::layout::LOCK_AT;
use tarn_workloads::kvs::Kvs;
use tarn_workloads::smallbank::SmallBank;
use tarn_workloads::tatp::Tatp;
use tarn_workloads::tpcc::Tpcc;
use tarn_workloads::ycsb::Ycsb;
use tarn_workloads::{Settings, Workload};

const COMPUTE_NODES: u16 = 3;

fn outage<W: Workload + 'static>(
    (mix, records): (&str, u64),
    crash_compute: usize,
    seed: u64,
    meddle: &dyn Fn(&Rc<Context>),
) -> Outage {
    let shape = Shape {
        compute_nodes: COMPUTE_NODES.into(),
        memory_nodes: 3,
        spare_nodes: 1,
        replicas: 3,
        threads: 1,
        coroutines: 2,
        virtual_ms: 3.0,
        crash_at_ms: 1.5,
        crash_compute,
        crash_memory: 0,
        restart_ms: 0.5,
        lease_ms: 0.0,
        sweep_share_percent: 100,
        copy_share_percent: 100,
        interval_ms: 0.2,
    };
    let profile = Profile::load("cx3-56g").expect("a profile");
    let (profile_of_mix, records) = (Some(mix.to_owned()), Some(records));
    let settings = Settings { profile: profile_of_mix, records, ..Settings::default() };
    let workload = W::new(&settings).expect("a workload");
    let protocol = ("ford".to_owned(), "corrected".to_owned());
    let plan = Plan { profile, protocol, shape, seed };
    run_and_meddle(workload, &plan, &|_| {}, meddle).expect("it runs")
}

/// Returns the incarnations whose membership status is `wanted`.
fn lives(cx: &Context, wanted: Standing) -> Vec<NodeId> {
    let slots = (0..COMPUTE_NODES).flat_map(|slot| (1..4).map(move |life| (slot, life)));
    slots
        .map(|(slot, life)| NodeId { slot: NodeSlot(slot), incarnation: Incarnation(life) })
        .filter(|life| cx.database().membership.standing(*life) == wanted)
        .collect()
}

/// Returns the log entries of live incarnations: the last transaction of each coordinator, which
/// was acknowledged.
fn left_by_the_living(cx: &Context) -> Vec<Logged> {
    let members = lives(cx, Standing::Member);
    let all = members.into_iter().map(|life| logged(cx, life));
    all.flat_map(|each| block_on(each).expect("nothing is broken")).collect()
}

/// Undoes one logged transaction completely, as a recovery with an error would do.
fn reverse(cx: &Context, one: &Logged) {
    block_on(plant_undone(cx, one.id)).expect("nothing is broken");
}

/// Undoes the first transaction that changed at least `records` records; returns the judge's
/// findings.
fn reversed<W: Workload + 'static>(mix: (&str, u64), records: usize) -> Vec<String> {
    let meddle = |cx: &Rc<Context>| {
        let all = left_by_the_living(cx);
        reverse(cx, all.iter().find(|it| it.records.len() >= records).expect("one that wrote"));
    };
    outage::<W>(mix, 0, 1, &meddle).failed()
}

#[test]
fn an_acknowledged_transaction_that_is_undone_whole_is_noticed() {
    let said = reversed::<Kvs>(("wo", 400), 1);
    assert!(said.iter().any(|it| it.starts_with("no update lost")), "{said:?}");
    let said = reversed::<Ycsb>(("a4", 400), 1);
    assert!(said.iter().any(|it| it.starts_with("no field's update lost")), "{said:?}");
    let said = reversed::<Tpcc>(("new-order-payment", 1), 12);
    assert!(said.iter().any(|it| it.starts_with("rows as loaded and as committed")), "{said:?}");
}

/// SmallBank's transactions that change only one record change the total amount of money in the bank.
#[test]
fn money_of_a_transaction_that_is_undone_whole_is_noticed() {
    let meddle = |cx: &Rc<Context>| {
        let all = left_by_the_living(cx);
        reverse(cx, all.iter().find(|it| it.records.len() == 1).expect("one of the six"));
    };
    let said = outage::<SmallBank>(("spec", 400), 0, 1, &meddle).failed();
    assert!(said.iter().any(|it| it.starts_with("money is neither made nor lost")), "{said:?}");
}

/// For each transaction in doubt, the judge accepts the memory after a commit and after an abort. The judge accepts
/// no other difference between the memory and the accounts.
#[test]
fn what_crashes_leave_in_doubt_is_allowed_for_and_no_more() {
    let (mut unknown, mut noticed) = (0, 0);
    for seed in 0..8 {
        let sound = outage::<Kvs>(("wo", 400), 2, seed, &|_| {});
        assert_eq!(sound.failed(), [""; 0], "seed {seed}");
        unknown += sound.checks.unknown;
        let meddle = |cx: &Rc<Context>| {
            // The number of undone transactions exceeds the largest possible number of transactions
            // in doubt.
            let all = left_by_the_living(cx);
            assert!(all.len() > 4, "{} logged", all.len());
            all.iter().for_each(|one| reverse(cx, one));
        };
        noticed += u32::from(!outage::<Kvs>(("wo", 400), 2, seed, &meddle).failed().is_empty());
    }
    assert!(unknown > 8, "{unknown} in doubt");
    assert_eq!(noticed, 8);
}

#[test]
fn every_workload_is_sound_after_crashes() {
    for seed in 0..4 {
        let all = [
            outage::<SmallBank>(("spec", 400), 2, seed, &|_| {}),
            outage::<Ycsb>(("a4", 400), 2, seed, &|_| {}),
            outage::<Ycsb>(("a", 400), 2, seed, &|_| {}),
            outage::<Tatp>(("spec", 400), 2, seed, &|_| {}),
            outage::<Tpcc>(("tiny", 2), 2, seed, &|_| {}),
        ];
        for one in all {
            assert_eq!(one.failed(), [""; 0], "{}, seed {seed}", one.workload);
        }
    }
}

#[test]
fn a_lock_that_the_sweep_has_left_is_noticed() {
    let meddle = |cx: &Rc<Context>| {
        let dead = lives(cx, Standing::Recovered);
        let tag = OwnerTag::new(*dead.first().expect("one has crashed"), 0, 7);
        let record: Address = left_by_the_living(cx)[0].records[0];
        let mut round = Round::new();
        let word = round.reserve(8);
        round.set_word(word, tag.word());
        round.write(cx.groups.primary(record.plus(LOCK_AT)), word, 8);
        block_on(cx.port.execute(&mut round)).expect("nothing is broken");
    };
    let said = outage::<Kvs>(("wo", 400), 1, 1, &meddle).failed();
    assert_eq!(said, ["a sweep was over, and 1 locks of the dead were left"]);
}
