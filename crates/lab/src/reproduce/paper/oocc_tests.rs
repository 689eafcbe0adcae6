//! Tests of OOCC's page as a whole. The page has all rows even if some systems are not available, and shows the
//! values of each available system.
//!
//! Invariant checked: the program never runs one system under the name of another system. The page reports each
//! protocol that is not available, in the registry's words. To test the code that runs the systems, these tests let
//! one available protocol replace all protocols.

use super::case::Case;
use super::data::{Paper, by_name};
use super::report::Evaluation;
use super::setting::Supposition;
use super::{Order, evaluate, page, runs};
use crate::harness::watch::Silent;
use crate::reproduce::Scale;
use crate::reproduce::paper::extent::Amount;
use crate::reproduce::row::Verdict;
use crate::reproduce::stage::{Stage, System};
use crate::reproduce::systems::entrant;
use crate::reproduce::text::Text;
use std::collections::BTreeSet;
use tarn_engine::protocol::AnyProtocol;
use tarn_fabric::window::Drift;
use tarn_sim::profile::Profile;

fn oocc() -> &'static Paper {
    by_name("oocc").expect("a paper")
}

fn few(coordinators: &[u64]) -> Amount {
    Amount::List(coordinators.iter().map(|it| Amount::Whole(*it)).collect())
}

/// Returns an order of an evaluation that runs in some seconds.
fn tiny(only: &[&str]) -> Order {
    let paper = oocc();
    let mut extent = paper.extent.quick.clone();
    extent.scale.name = "tiny";
    (extent.scale.virtual_ms, extent.scale.warm_up_ms, extent.scale.soak_ms) = (0.05, 0.02, 0.02);
    extent.scale.coordinators = vec![2, 16];
    extent.of.extend([
        (Text("few_coordinators"), few(&[16])),
        (Text("records"), Amount::Whole(1_000)),
        (Text("edges"), Amount::Whole(500)),
        (Text("subscribers"), Amount::Whole(500)),
        (Text("tpcc_mix"), Amount::Name(Text("tiny"))),
        (Text("warehouses"), Amount::Whole(2)),
        (Text("tpcc_ms"), Amount::Fraction(0.4)),
        (Text("tpcc_soak_ms"), Amount::Fraction(0.1)),
    ]);
    let profile = Profile::load(&paper.profile).expect("embedded");
    let only = only.iter().map(|&it| it.to_owned()).collect();
    Order { paper, extent, seed: 1, profile, only, suppositions: Vec::new() }
}

/// Runs the order of [`tiny`], with one available protocol in the place of all protocols.
fn stood_in(only: &[&str]) -> Evaluation {
    let order = Order { suppositions: vec![Supposition::stand_in(oocc(), "ford")], ..tiny(only) };
    evaluate(&order, &Silent).expect("a page")
}

fn case(order: &Order, text: &str) -> Case {
    order.paper.case(&order.extent, text).expect("a case")
}

/// If a system is not available, no row has a simulated value of this system, even if other systems run.
#[test]
fn a_system_that_is_not_there_has_rows_that_say_so() {
    let evaluation = evaluate(&tiny(&[]), &Silent).expect("a page");
    assert_eq!(evaluation.failed(), [""; 0], "{evaluation}");
    let rows: BTreeSet<_> =
        evaluation.rows.iter().map(|row| (row.figure, row.workload, row.metric)).collect();
    assert_eq!((rows.len(), evaluation.rows.len()), (67, 67), "each once");
    let page = page::page(&evaluation);
    assert!(!page.contains("NaN") && !page.contains("http"), "{page}");
    let systems = ["literal", "corrected"].map(|form| {
        oocc()
            .entrants
            .iter()
            .map(move |name| entrant(&oocc().system, name, form).expect("a system").system)
    });
    assert_eq!(evaluation.entrants.len(), 8);
    for (system, entrant) in systems.into_iter().flatten().zip(&evaluation.entrants) {
        let told = format!("{} is not there yet", system.protocol);
        let is_known = match AnyProtocol::by_name(system.protocol, system.variant) {
            Ok(_) => entrant.state == "there",
            Err(error) => error.field != "protocol",
        };
        assert_eq!(entrant.state.contains(&told), !is_known, "{}", entrant.state);
        assert_eq!(page.contains(&told), !is_known, "{told}");
    }
    for row in &evaluation.rows {
        let is_missing = row.verdict == Verdict::NotSimulated;
        assert_eq!(
            (row.value("corrected").is_none(), row.ratio.is_none()),
            (is_missing, is_missing)
        );
        assert_eq!(row.why.is_empty(), !is_missing, "{row}");
        assert_ne!(row.bottleneck.is_empty(), !is_missing, "{row}");
    }
}

#[test]
fn a_system_that_is_there_fills_the_page_and_every_row_names_its_limit() {
    let evaluation = stood_in(&["table-1", "fig-10", "unknown", "fig-11", "fig-12", "fig-14"]);
    assert_eq!(evaluation.failed(), [""; 0], "{evaluation}");
    let told = ["offset of 1.5 µs below none"];
    for row in &evaluation.rows {
        if row.figure == "Figure 12d" || told.contains(&row.metric) {
            assert!(!row.why.is_empty(), "{row}");
            continue;
        }
        assert!(row.value("corrected").is_some_and(f64::is_finite), "{row}");
        assert!(row.bottleneck.contains("coordinators: limit "), "{row}");
    }
    // In the run of this test, all systems use the same protocol, so no system is faster than another. The row for
    // OCC's READs must show two READs per operation: one READ of the record, and one READ for its validation.
    let row = |metric: &str| {
        let found = evaluation.rows.iter().find(|row| row.metric == metric);
        found.unwrap_or_else(|| panic!("no row {metric}"))
    };
    let same = row("throughput over OCC's").value("corrected").expect("a figure");
    assert!((0.9..1.1).contains(&same), "{same}");
    // The measured phase is so short that it counts some READs of transactions that end after the phase.
    let looks = row("OCC's READs").value("corrected").expect("a figure");
    assert!((looks - 2.0).abs() < 0.3, "{looks}");
    assert_eq!(row("2PL's atomics").value("corrected"), Some(0.0));
    let page = page::page(&evaluation);
    for text in ["Counterfactual:", "stand-in", "Highest throughput", "Systems", "Assumed"] {
        assert!(page.contains(text), "no {text}: {page}");
    }
}

/// Each lease length needs its own loaded database. The row about read-only transactions without validation must have
/// a percentage.
#[test]
fn leases_are_compared_with_one_another() {
    let evaluation = stood_in(&["fig-13"]);
    assert_eq!(evaluation.failed(), [""; 0], "{evaluation}");
    let row = |metric: &str| {
        let found = evaluation.rows.iter().find(|row| row.metric == metric);
        found.unwrap_or_else(|| panic!("no row {metric}")).value("corrected")
    };
    assert!(row("4 µs raised at run time, highest gain").is_none(), "nobody's leases are raised");
    assert!(row("read-only transactions without validation").is_some_and(|share| share < 20.0));
    assert!(row("time of a change").is_none());
}

/// For a protocol with leases, the manager increases the lease length while transactions run.
#[test]
fn a_lease_that_is_too_short_is_raised_at_run_time() {
    let mut order = tiny(&["fig-13"]);
    // The number of coordinators is so large that reading takes longer than 4 µs.
    order.extent.of.insert(Text("few_coordinators"), few(&[256]));
    let evaluation = evaluate(&order, &Silent).expect("a page");
    assert_eq!(evaluation.failed(), [""; 0], "{evaluation}");
    let row = |metric: &str| {
        let found = evaluation.rows.iter().find(|row| row.metric == metric);
        found.unwrap_or_else(|| panic!("no row {metric}")).value("corrected")
    };
    assert!(row("4 µs raised at run time, highest gain").is_some_and(|gain| gain > 0.5));
    assert!(row("time of a change").is_some_and(|us| us > 0.0 && us < 1_000.0));
    assert_eq!(evaluation.adjustments.len(), 3 * 2);
    for adjusted in &evaluation.adjustments {
        let manager = adjusted.leases.manager.as_ref().expect("somebody adjusts");
        let first = manager.first.first().expect("a change");
        assert_eq!(first.from_ns, 4_000, "{adjusted:?}");
        assert!(first.to_ns > 4_000 && manager.looks >= 2, "{adjusted:?}");
    }
    let page = page::page(&evaluation);
    assert!(page.contains("before, while, after"), "{page}");
}

/// If the program ignored the lease length, a run without leases would be shown as a run with leases.
#[test]
fn a_lease_is_set_or_refused_and_never_forgotten() {
    let order = tiny(&[]);
    let mut case = case(&order, "OOCC YCSB zipf=0 updates=0 @corrected");
    case.coordinators = vec![2];
    assert_eq!(case.system.read_lease_ns, 10_000);
    (case.system.protocol, case.system.variant) = ("ford", "corrected");
    let scales = [(case.bench.kind, order.extent.scale.clone())];
    let ground = runs::Ground {
        testbed: &oocc().testbed.with(order.profile.clone()),
        scales: &scales,
        seed: 1,
        what_if: &|_| {},
        must_be_sound: &|system| oocc().must_be_sound(system),
        threads: 1,
        watch: &Silent,
    };
    let mut runs = runs::Runs::default();
    runs.run(vec![case.clone()], &ground);
    let why = runs.series(&case).expect_err("ford has no leases").to_string();
    assert!(why.contains("lease") && why.contains("10000"), "{why}");
}

/// Clock errors are drawn when a cluster is made. So a clock offset that is charged after the cluster is made would
/// change nothing, and a comparison of offsets would be wrong.
#[test]
fn an_offset_is_believed_by_the_cluster_that_it_is_run_on() {
    let order = tiny(&[]);
    let believed = |case: Case| {
        let system = System { protocol: "ford", read_lease_ns: 0, ..case.system };
        let testbed = oocc().testbed.with(order.profile.clone());
        let bench = case.bench;
        let scale = Scale { sizes: vec![bench.records], ..order.extent.scale.clone() };
        let workload = bench.make_ycsb().expect("a workload");
        let (layout, points) = ((&case.layout, &system), (&scale, 1));
        let stage = Stage::load(workload, &testbed, layout, points, &Silent).expect("a cluster");
        let cluster = stage.cluster();
        let cx = cluster.context(&cluster.join(0).expect("a node"), 0).expect("a thread");
        cx.port.drift()
    };
    let of = |who| believed(case(&order, &format!("{who} YCSB zipf=0 updates=10 @corrected")));
    let drifts = [of("OOCC"), of("OOCC-half-microsecond"), of("OOCC-microsecond")];
    // A simulated clock rounds each reading twice.
    assert_eq!(drifts, [100, 50_000, 100_000].map(|ppm| Drift::new(ppm, 2).expect("a drift")));
    // Each clock offset needs its own loaded database, and so does each record length of all four systems.
    let evaluation = stood_in(&["fig-14"]);
    assert_eq!(evaluation.judged.len(), 3 + 4 * order.extent.numbers("lengths").len());
    // The rows also have a verdict on the literal form, in addition to the form that decides the row's verdict.
    for row in &evaluation.rows {
        let [beside] = &row.beside[..] else { panic!("{row}") };
        assert_eq!((beside.column, beside.ratio.is_some()), ("literal", row.ratio.is_some()));
    }
}

#[test]
fn a_section_that_there_is_not_is_refused_with_all_that_there_are() {
    let error = evaluate(&tiny(&["fig-99"]), &Silent).err().expect("refused").to_string();
    assert!(error.contains("only = fig-99") && error.contains("table-1, fig-10"), "{error}");
}
