//! How NICs share their parts in timed mode. Verbs of a batch follow one another through the parts of
//! a NIC. No work waits for work that arrives later, and no part is busy for longer than the time
//! that passes.
//!
//! Invariant checked: the tests compare ratios and orders of times, and do not check the constants of
//! a profile.

use crate::common::{at, fabric, port};
use tarn_fabric::address::{Address, GroupId, NodeSlot};
use tarn_fabric::clock::Nanos;
use tarn_fabric::port::Port;
use tarn_fabric::round::{Round, VerbKind};
use tarn_sim::config::Mode;
use tarn_sim::fabric::SimFabric;
use tarn_sim::scheduler::{Ended, Scheduler};
use tarn_sim::usage::Part;

const PROFILES: [&str; 3] = ["cx3-56g", "cx5-100g", "cx6-200g"];

/// Returns how many nanoseconds one round takes when the cluster does nothing else.
fn round_ns(profile: &str, fill: impl Fn(&mut Round)) -> u64 {
    let fabric = fabric(profile, Mode::Timed, 1);
    let port = port(&fabric, 0, 0);
    let asker = port.clone();
    let took = Scheduler::new(&fabric).block_on(&port, async move {
        let mut round = Round::new();
        fill(&mut round);
        let start = asker.now();
        asker.execute(&mut round).await.unwrap();
        asker.now() - start
    });
    took.0
}

fn reads(count: u64) -> impl Fn(&mut Round) {
    move |round| {
        for index in 0..count {
            round.read(at(4096 + index * 64), 8);
        }
    }
}

/// Posts the same round again and again.
async fn repeat(port: Port, fill: impl Fn(&mut Round)) {
    let mut round = Round::new();
    loop {
        round.clear();
        fill(&mut round);
        port.execute(&mut round).await.unwrap();
    }
}

/// Returns the number of verbs per microsecond of all memory nodes together, between 50 and 150 µs.
fn rate_mops(fabric: &SimFabric, scheduler: &mut Scheduler<'_>) -> f64 {
    assert_eq!(scheduler.run_until(Nanos(50_000)), Ended::TimeOver);
    let start = fabric.usage();
    scheduler.run_until(Nanos(150_000));
    let used = fabric.usage().since(&start);
    used.verbs as f64 / used.at.0 as f64 * 1e3
}

#[test]
fn verbs_of_a_batch_overlap() {
    for profile in PROFILES {
        let took = |count| round_ns(profile, reads(count));
        let (one, sixteen, thirty_two) = (took(1), took(16), took(32));
        println!("{profile}: 1, 16, 32 READs take {one}, {sixteen}, {thirty_two} ns");
        // In a long batch each further READ costs the same time.
        let each = (thirty_two - sixteen) as f64 / 16.0;
        let earlier = (sixteen - one) as f64 / 15.0;
        assert!((each / earlier - 1.0).abs() < 0.1, "{profile}: {earlier} then {each} ns a READ");
        // If each stage waited for the whole batch, 32 READs of even the cheapest kind would take
        // longer than this.
        assert!(thirty_two < 7_500, "{profile}: 32 READs take {thirty_two} ns");
    }
    assert!(round_ns("cx3-56g", reads(32)) < 6_500);
}

#[test]
fn a_busy_node_does_not_delay_another_s_answers() {
    let fabric = fabric("cx3-56g", Mode::Timed, 1);
    let mut scheduler = Scheduler::new(&fabric);
    // One thread on compute node 0 and many threads on other nodes send requests to memory node 0. So
    // memory node 0 has a backlog of many round trips.
    for (slot, threads) in [(0, 1), (1, 8), (2, 8), (3, 8)] {
        for thread in 0..threads {
            let busy = port(&fabric, slot, thread);
            for _ in 0..4 {
                scheduler.spawn(&busy, repeat(busy.clone(), reads(32)));
            }
        }
    }
    scheduler.run_until(Nanos(200_000));
    let idle = port(&fabric, 0, 1);
    let took = |to: NodeSlot, group: u16| {
        let asker = idle.clone();
        async move {
            let mut round = Round::new();
            round.read(Address::new(GroupId(group), 64).at(to), 8);
            let start = asker.now();
            asker.execute(&mut round).await.unwrap();
            (asker.now() - start).0
        }
    };
    let near = scheduler.block_on(&idle, took(NodeSlot(1), 1));
    let far = scheduler.block_on(&idle, took(NodeSlot(0), 0));
    println!("idle node {near} ns, busy node {far} ns");
    assert!(far > 10 * near, "the busy node is behind: {far} and {near} ns");
}

/// Returns the rate at which `threads` threads on four compute nodes execute compare-and-swaps on
/// `words` different words.
fn swaps_mops(profile: &str, threads: u16, words: u64) -> f64 {
    let fabric = fabric(profile, Mode::Timed, 1);
    let mut scheduler = Scheduler::new(&fabric);
    for thread in 0..threads {
        let port = port(&fabric, thread % 4, thread / 4);
        let word = at(4096 + u64::from(thread) % words * 64);
        scheduler.spawn(&port, repeat(port.clone(), move |round| _ = round.cas(word, 0, 0)));
    }
    rate_mops(&fabric, &mut scheduler)
}

#[test]
fn atomics_side_by_side_wait_for_their_address_alone() {
    let (one, many) = (swaps_mops("cx5-100g", 64, 1), swaps_mops("cx5-100g", 64, 64));
    assert!((2.2..2.6).contains(&one), "one word: {one} M/s");
    assert!(many > 8.0 * one, "64 words: {many} M/s, one: {one} M/s");
    let (one, many) = (swaps_mops("cx3-56g", 64, 1), swaps_mops("cx3-56g", 64, 64));
    assert!((many / one - 1.0).abs() < 0.02, "one unit for all words: {one} and {many} M/s");
}

#[test]
fn reads_pass_atomics_that_wait_for_their_word() {
    let fabric = fabric("cx5-100g", Mode::Timed, 1);
    let mut scheduler = Scheduler::new(&fabric);
    for thread in 0..64 {
        let port = port(&fabric, thread % 3, thread / 3);
        let swap = |round: &mut Round| _ = round.cas(at(64), 0, 0);
        scheduler.spawn(&port, repeat(port.clone(), swap));
    }
    scheduler.run_until(Nanos(100_000));
    let asker = port(&fabric, 3, 0);
    let reader = asker.clone();
    let took = scheduler.block_on(&asker, async move {
        let mut round = Round::new();
        reads(1)(&mut round);
        let start = reader.now();
        reader.execute(&mut round).await.unwrap();
        (reader.now() - start).0
    });
    let alone = round_ns("cx5-100g", reads(1));
    assert!(took < alone + 300, "{took} ns, alone {alone}");
}

#[test]
fn no_part_is_used_for_longer_than_the_time_that_passes() {
    for profile in PROFILES {
        for kind in [VerbKind::Read, VerbKind::Write, VerbKind::FetchAndAdd] {
            let fabric = fabric(profile, Mode::Timed, 1);
            let mut scheduler = Scheduler::new(&fabric);
            for thread in 0..24u16 {
                let port = port(&fabric, thread % 4, thread / 4);
                let target = at(4096 + u64::from(thread) * 4096);
                let fill = move |round: &mut Round| match kind {
                    VerbKind::Read => _ = round.read(target, 2048),
                    VerbKind::Write => {
                        let from = round.reserve(2048);
                        round.write(target, from, 2048);
                    }
                    _ => (0..8).for_each(|_| _ = round.faa(target, 1)),
                };
                for _ in 0..4 {
                    scheduler.spawn(&port, repeat(port.clone(), fill));
                }
            }
            let first = fabric.usage();
            let (mut before, mut most, mut sum) = (first.clone(), 0.0f64, 0);
            for slice in 1..=40 {
                scheduler.run_until(Nanos(slice * 5_000));
                let now = fabric.usage();
                let used = now.since(&before);
                for part in used.parts.iter().filter(|part| part.part != Part::Atomics) {
                    most = most.max(part.busy_ps as f64 / (used.at.0 as f64 * 1e3));
                    sum += part.busy_ps;
                }
                before = now;
            }
            assert!((0.9..=1.0).contains(&most), "{profile} {kind:?}: busy for {most}");
            let all = before.since(&first);
            let parts = all.parts.iter().filter(|part| part.part != Part::Atomics);
            assert_eq!(parts.map(|part| part.busy_ps).sum::<u64>(), sum, "slices add up");
        }
    }
}
