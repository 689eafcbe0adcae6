//! Tests that the simulated curves have the shapes of the published curves, and that every published figure belongs
//! to a point of a curve.

use super::curves::curve;
use super::published::figures;
use super::*;
use std::collections::BTreeSet;

fn profile(name: &str) -> Profile {
    Profile::load(name).expect("embedded")
}

fn found(profile: &Profile, point: Point) -> Measurement {
    measure(profile, "", point).expect("a shape that can be")
}

fn at(profile: &Profile, name: &str, label: &str) -> Measurement {
    found(profile, curve(name).point(label))
}

#[test]
fn every_published_figure_is_on_a_curve() {
    for figure in figures() {
        assert!(Profile::names().any(|name| name == figure.profile), "{figure:?}");
        curve(&figure.curve).point(&figure.point);
    }
    for curve in &*CURVES {
        let labels: BTreeSet<&String> = curve.points.iter().map(|(label, _)| label).collect();
        assert_eq!(labels.len(), curve.points.len(), "{}: a label twice", curve.name);
    }
}

#[test]
fn the_doorbell_curve_rises_to_32_threads_and_falls_from_there() {
    let profile = profile("cx6-200g");
    let rate = |threads| {
        let found = at(&profile, "doorbell", &format!("read {threads} threads"));
        let ratio = found.beside[0].ratio;
        assert!((0.88..1.12).contains(&ratio), "{threads}: {ratio}");
        found.rate_mops
    };
    assert!(rate(8) < rate(16) && rate(16) < rate(32));
    assert!(rate(32) > rate(48) && rate(48) > rate(64) && rate(64) > rate(96));
    assert!(at(&profile, "doorbell", "read 96 alone").rate_mops > 2.0 * rate(32));
}

/// Little's law: in any model, the number of operations in flight is the rate times the latency.
#[test]
fn rates_and_latencies_agree_with_one_another() {
    for name in Profile::names() {
        let profile = profile(name);
        for depth in [1, 8, 32] {
            let measured = at(&profile, "depth", &format!("read depth {depth}"));
            let Measurement { rate_mops, latency_us, .. } = measured;
            let in_flight = rate_mops * latency_us.mean;
            let share = in_flight / f64::from(depth);
            assert!((0.9..=1.01).contains(&share), "{name} {depth}: {share}");
            assert!(latency_us.p50 <= latency_us.p99);
        }
    }
}

#[test]
fn more_in_the_queue_gives_more_and_takes_longer_but_ever_less_so() {
    let profile = profile("cx3-56g");
    let at = |depth: u16| at(&profile, "depth", &format!("read depth {depth}"));
    let (one, eight, many) = (at(1), at(8), at(64));
    assert!(one.rate_mops * 4.0 < eight.rate_mops && eight.rate_mops * 1.2 < many.rate_mops);
    assert!(one.latency_us.p50 < eight.latency_us.p50);
    assert!(eight.latency_us.p50 * 1.5 < many.latency_us.p50);
}

#[test]
fn payloads_beyond_the_inline_limit_are_sent_at_a_lower_rate() {
    let profile = profile("cx5-100g");
    let at = |bytes: u16| at(&profile, "inline", &format!("write {bytes} B")).rate_mops;
    let (below, limit, beyond) = (at(128), at(188), at(192));
    assert!(limit < below && beyond < 0.7 * limit, "{below} {limit} {beyond}");
}

#[test]
fn packing_look_ups_pays_until_the_inline_limit() {
    let profile = profile("cx5-100g");
    let at = |count: u16| at(&profile, "batching", &format!("{count} a packet")).rate_mops;
    let (one, two, four, six, eight) = (at(1), at(2), at(4), at(6), at(8));
    assert!(two > 1.8 * one && four > 1.3 * two && six > four, "{one} {two} {four} {six}");
    assert!(eight < six, "the second DMA: {six} then {eight}");
}

#[test]
fn cores_add_up_until_the_nic_is_the_limit() {
    let profile = profile("cx5-100g");
    let at = |cores: u16| at(&profile, "calls", &format!("{cores} cores, 16 a ring, 0 ns"));
    let (one, two, four) = (at(1), at(2), at(4));
    assert!((two.rate_mops / one.rate_mops - 2.0).abs() < 0.1);
    assert!((four.rate_mops / one.rate_mops - 4.0).abs() < 0.3);
    assert_eq!(one.busy[0].part, "control cpu");
    let slow = curve("calls").point("1 cores, 16 a ring, 2000 ns");
    let slow = found(&profile, slow);
    let added_ns = 1e3 / slow.rate_mops - 1e3 / one.rate_mops;
    assert!((added_ns - 2_000.0).abs() < 50.0, "a handler of 2 µs costs {added_ns} ns");
}

#[test]
fn timestamps_cost_a_call_and_calls_for_many_cost_hardly_more() {
    let profile = profile("cx3-56g");
    let at = |cores: u16, count: u16| {
        at(&profile, "timestamps", &format!("{cores} cores, {count} a call"))
    };
    let (one, two, sixteen) = (at(1, 1), at(2, 1), at(1, 16));
    assert_eq!(one.busy[0].part, "timestamp cpu");
    assert!((two.rate_mops / one.rate_mops - 2.0).abs() < 0.1, "cores add up");
    assert!((sixteen.rate_mops / one.rate_mops - 16.0).abs() < 0.5, "sixteen a call");
}

/// The acceptance of the requester's model: one set of constants for all rows that the model expresses.
#[test]
fn each_published_row_of_the_requester_is_within_15_percent_and_nine_of_ten_within_8() {
    let profile = profile(requester::PROFILE);
    let fitted: Vec<_> = requester::ROWS.iter().filter(|row| row.way.is_fitted()).collect();
    assert_eq!((requester::ROWS.len(), fitted.len()), (292, 192));
    let mut close = 0;
    for row in &fitted {
        let ratio = requester::compare(&profile, **row).expect("a shape").ratio().expect("a model");
        assert!((ratio - 1.0).abs() <= 0.15, "{row:?}: {ratio}");
        close += usize::from((ratio - 1.0).abs() <= 0.08);
    }
    assert!(close * 10 >= fitted.len() * 9, "{close} of {} within 8 %", fitted.len());
}

/// A point of the requester: threads with a register each, which post as the published rows do.
fn alone(verb: VerbKind, threads: u16, depth: u16) -> Point {
    let posting = Loop::RingEachAlone;
    Point::Verbs(Verbs { verb, clients: 1, threads, depth, payload_bytes: 8, posting })
}

/// Work requests beyond the credits of their queue pair wait, so more coroutines of a thread give no more than the
/// credits allow.
#[test]
fn credits_limit_what_a_queue_pair_has_outstanding() {
    let rate = |credits: u32, depth| {
        let limited = profile(requester::PROFILE).with("cpu.queue_pair_credits", credits.into());
        found(&limited.expect("a limit"), alone(VerbKind::Read, 4, depth))
    };
    let (one, sixteen, limited) = (rate(0, 1), rate(0, 16), rate(4, 16));
    let outstanding = limited.rate_mops * one.latency_us.mean / 4.0;
    assert!((3.6..=4.04).contains(&outstanding), "{outstanding} a thread: {limited:?}");
    assert!(sixteen.rate_mops > 1.2 * limited.rate_mops, "{sixteen:?}");
    assert_eq!(rate(64, 16).rate_mops, sixteen.rate_mops, "as many as can be outstanding");
}

/// Little's law at 20 points, below and beyond the NIC's transmit rate and its work queue.
#[test]
fn outstanding_verbs_are_the_rate_times_the_latency() {
    let profile = profile(requester::PROFILE);
    for verb in [VerbKind::Read, VerbKind::Write] {
        for (threads, depth) in [1, 12, 36, 60, 96].into_iter().flat_map(|it| [(it, 4), (it, 16)]) {
            let Measurement { rate_mops, latency_us, .. } =
                found(&profile, alone(verb, threads, depth));
            let share = rate_mops * latency_us.mean / f64::from(threads * depth);
            assert!((0.98..=1.02).contains(&share), "{verb:?} {threads} x {depth}: {share}");
        }
    }
}

/// Half of any cost of processors, NICs and links never costs throughput: a deterministic model can lose it by an
/// unlucky beat of its queues.
#[test]
fn half_of_any_cost_loses_no_throughput() {
    let profile = profile(requester::PROFILE);
    let rate = |profile: &Profile| found(profile, alone(VerbKind::Read, 48, 8)).rate_mops;
    let whole = rate(&profile);
    let costs = profile.constants().into_iter().filter(|it| it.name.ends_with("_ns"));
    for listed in costs.filter(|it| ["cpu", "nic", "link"].contains(&it.section)) {
        let key = format!("{}.{}", listed.section, listed.name);
        let half = profile.clone().with(&key, listed.constant.value / 2.0).expect("a value");
        let half = rate(&half);
        assert!(half >= 0.98 * whole, "half of {key}: {half} instead of {whole}");
    }
}
