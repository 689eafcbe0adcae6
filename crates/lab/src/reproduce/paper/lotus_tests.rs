//! Tests of LOTUS's page as a whole. The program runs and draws the available systems. The rows of other systems
//! state why their values are missing.
//!
//! Invariant checked: a counterfactual profile and a supposition change the figures that depend on them, and the page
//! names the profile and the supposition. The evaluation runs a crash for every system that can recover.

use super::data::by_name;
use super::runs::Ran;
use super::{Order, evaluate, page};
use crate::harness::watch::Silent;
use crate::reproduce::Scale;
use crate::reproduce::paper::extent::Amount;
use crate::reproduce::paper::sheet::Row;
use crate::reproduce::text::Text;
use tarn_sim::profile::Profile;

/// Returns an order of an evaluation that runs in about one second.
fn tiny(only: &[&str]) -> Order {
    let paper = by_name("lotus").expect("a paper");
    let scale = Scale {
        name: "tiny",
        sizes: Vec::new(),
        virtual_ms: 0.4,
        warm_up_ms: 0.1,
        soak_ms: 0.0,
        coordinators: vec![9, 45],
    };
    let mut extent = paper.extent.quick.clone();
    extent.scale = scale;
    let list = |of: &[u64]| Amount::List(of.iter().map(|it| Amount::Whole(*it)).collect());
    extent.of.extend([
        (Text("accounts"), Amount::Whole(2_000)),
        (Text("subscribers"), Amount::Whole(500)),
        (Text("warehouses"), Amount::Whole(2)),
        (Text("fewer_warehouses"), list(&[2, 1])),
        (Text("pairs"), Amount::Whole(2_000)),
        (Text("updates"), list(&[0, 100])),
        (Text("crash_threads"), list(&[1, 1])),
    ]);
    let profile = Profile::load(&paper.profile).expect("embedded");
    let only = only.iter().map(|&it| it.to_owned()).collect();
    Order { paper, extent, seed: 1, profile, only, suppositions: Vec::new() }
}

#[test]
fn what_is_there_is_run_and_drawn_and_the_rest_says_why_not() {
    let order = tiny(&["fig-2", "fig-23"]);
    let evaluation = evaluate(&order, &Silent).expect("a page");
    assert_eq!(evaluation.failed(), [""; 0], "{evaluation}");
    assert_eq!(evaluation.parts.len(), 2);
    let row = |metric: &str| {
        let found = evaluation.rows.iter().find(|row| row.metric == metric);
        found.unwrap_or_else(|| panic!("no row {metric}"))
    };
    let gain = row("FORD without CAS over its peak");
    assert!(gain.value("literal").is_some_and(|gain| gain > 1.1), "{gain}");
    assert!(gain.bottleneck.contains("nic pipeline of memory node 1"), "{gain}");
    let page = page::page(&evaluation);
    assert!(!page.contains("NaN") && !page.contains("http"), "{page}");
    for text in [
        "Throughput over concurrent transactions",
        "FORD, no CAS",
        "Scaled down",
        "Assumed",
        "Simulated values against published ones",
    ] {
        assert!(page.contains(text), "no {text}: {page}");
    }
    let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text}: {page}"));
    let (verdict, drawing) =
        (place(" simulated values agree with"), place("<figcaption>Simulated"));
    assert!(verdict < drawing && drawing < place("<h2"), "the page opens with the verdict: {page}");
    let object = serde_json::to_value(&evaluation).expect("an object");
    for row in object["rows"].as_array().expect("rows") {
        for field in [
            "figure",
            "workload",
            "metric",
            "published",
            "literal",
            "corrected",
            "ratio",
            "bottleneck",
        ] {
            assert!(row.get(field).is_some(), "no {field}: {row}");
        }
        let is_missing = row["verdict"] == "not_simulated";
        assert_eq!(row["ratio"].is_null(), is_missing, "{row}");
        assert_eq!(row["why"].as_str().is_some_and(|why| !why.is_empty()), is_missing, "{row}");
    }
    // The result depends only on the order, except for the part about this machine.
    let mut again =
        serde_json::to_value(evaluate(&order, &Silent).expect("a page")).expect("an object");
    let mut object = object;
    (object["wall"], again["wall"]) = Default::default();
    assert_eq!(object, again);
}

#[test]
fn a_counterfactual_moves_what_it_is_about_and_is_named() {
    let order = tiny(&["fig-2"]);
    let slow = order.profile.clone().set("nic.atomic_mops", "0.25").expect("a constant");
    let [was, is] = [order.profile.clone(), slow].map(|profile| {
        let evaluation = evaluate(&Order { profile, ..order.clone() }, &Silent).expect("a page");
        let gain =
            evaluation.rows.iter().find(|row| row.metric == "FORD without CAS over its peak");
        (gain.expect("a row").value("literal").expect("a figure"), evaluation)
    });
    assert!(is.0 > 2.0 * was.0, "{} and {}", was.0, is.0);
    assert!(page::page(&is.1).contains("Counterfactual:"));
    assert!(!page::page(&was.1).contains("Counterfactual:"));
}

/// The steps of the ablation share one database. The database that was loaded for a step without routing must also
/// work for a step with routing.
#[test]
fn routing_is_a_step_of_its_own() {
    let evaluation = evaluate(&tiny(&["fig-14"]), &Silent).expect("a page");
    let metric = "throughput with two-level load balancing";
    for workload in ["TATP", "SmallBank"] {
        let is_it = |row: &&Row| row.workload == workload && row.metric == metric;
        let row = evaluation.rows.iter().find(is_it).expect("a row");
        assert!(row.value("corrected").is_some() && row.value("literal").is_some(), "{row}");
    }
    let of = |is_routed| {
        let is_it =
            |ran: &&Ran| ran.series.is_routed == is_routed && ran.bench.kind.name() == "SmallBank";
        let ran =
            evaluation.series.iter().filter(is_it).find(|it| it.series.name.starts_with("LOTUS,"));
        ran.expect("a curve").series.peak().expect("a point").messages
    };
    // With and without routing, a transaction sends one message to get a timestamp. Each lock that another node
    // grants takes two more messages.
    assert!(of(false) > of(true) + 1.0, "{} and {}", of(false), of(true));
}

#[test]
fn a_supposition_is_named_and_moves_what_it_is_about() {
    let order = Order { suppositions: vec![], ..tiny(&["fig-14"]) };
    let off = order.paper.supposition("timestamps=counter").expect("one");
    let free = evaluate(&Order { suppositions: vec![off], ..order }, &Silent).expect("a page");
    assert!(page::page(&free).contains("what-if.timestamps = counter"));
    let lotus = free.series.iter().filter(|ran| ran.series.name.starts_with("LOTUS"));
    assert!(lotus.clone().count() > 0);
    assert!(lotus.clone().all(|ran| ran.series.timestamps == Some("counter")));
}

#[test]
fn a_crash_is_run_for_whoever_recovers() {
    let mut order = tiny(&["fig-15"]);
    order.profile = order.profile.set("cluster.reconnect_ms", "2").expect("a constant");
    order.profile = order.profile.set("cluster.reregister_ms", "1").expect("a constant");
    let evaluation = evaluate(&order, &Silent).expect("a page");
    // LOTUS has its own tests, so this test ignores LOTUS's failures. The test checks that FORD is correct, and that
    // a row without a run has no simulated value.
    let failed = evaluation.failed();
    assert!(failed.iter().all(|failure| failure.starts_with("LOTUS")), "{failed:?}");
    for row in &evaluation.rows {
        assert_eq!(row.value("corrected").is_none(), !row.why.is_empty(), "{row}");
        assert!(failed.is_empty() || row.value("corrected").is_none(), "{row}");
    }
    let ford = evaluation.crashes.iter().find(|it| it.system.starts_with("FORD")).expect("FORD's");
    assert!(ford.outage.drop_percent > 5.0 && ford.outage.recovered_after_ms.is_some());
    let page = page::page(&evaluation);
    assert!(page.contains("Throughput in intervals of 1 ms"), "{page}");
}

#[test]
fn a_section_that_there_is_not_is_refused_with_all_that_there_are() {
    let error = evaluate(&tiny(&["fig-99"]), &Silent).err().expect("refused").to_string();
    assert!(error.contains("only = fig-99") && error.contains("fig-13"), "{error}");
}
