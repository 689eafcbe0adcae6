//! Tests of the papers' data files: each file is read, every text in it is understood, and its
//! values fit their units.
//!
//! Invariant checked: every published figure is on a page exactly once. If nothing was run, a page shows only the
//! simulated values that need no run. The drawings of one page have different titles. Each step of an ablation is
//! another system than the step before it.

use super::case::Case;
use super::data::{ALL, Cases, Paper, by_name, combinations, filled};
use super::extent::{Amount, Extent};
use super::report::Part;
use super::runs::Runs;
use super::target::Unit;
use super::value::Done;
use super::{Order, part};
use crate::reproduce::row::Verdict;
use crate::reproduce::stage::System;
use crate::reproduce::systems::entrant;
use crate::simulate::stamps::Source;
use std::collections::BTreeSet;
use tarn_engine::cluster::info::Switches;
use tarn_engine::protocol::AnyProtocol;
use tarn_engine::session::coordinator::Retry;
use tarn_sim::profile::Profile;
use tarn_store::ids::THREADS_MAX;
use tarn_store::placement::catalog::Placement;

fn parts(paper: &'static Paper, extent: &Extent) -> Vec<Part> {
    let profile = Profile::load(&paper.profile).expect("embedded");
    let runs = Runs::default();
    let done = Done { paper, extent, profile: &profile, runs: &runs };
    paper.sections.iter().map(|section| part(section, &done)).collect()
}

fn extents(paper: &Paper) -> [&Extent; 2] {
    [&paper.extent.full, &paper.extent.quick]
}

fn cases(paper: &Paper, extent: &Extent, cases: &Cases) -> Vec<Case> {
    let values = combinations(&cases.each, extent).into_iter();
    values.map(|it| paper.case(extent, &filled(&cases.case, &it)).expect("a case")).collect()
}

/// This test reads every entry of a data file that names a case: drawings, rows, and jobs.
#[test]
fn every_case_of_every_file_is_understood() {
    for paper in ALL.iter() {
        for extent in extents(paper) {
            let ran = paper.sections.iter().flat_map(|section| {
                let all = section.run.iter().chain(&section.hotspots).chain(&section.adjusted);
                all.flat_map(|it| cases(paper, extent, it)).collect::<Vec<Case>>()
            });
            assert!(ran.count() > 100, "{}", paper.name);
            for row in parts(paper, extent).iter().flat_map(|part| &part.rows) {
                let of_data = ["there is n", "is unknown", "names no", "allowed: "];
                assert!(of_data.iter().all(|text| !row.why.contains(text)), "{row}");
            }
        }
    }
}

/// If a section does not run the cases of its rows, these rows never get a simulated value.
#[test]
fn a_section_runs_every_case_that_its_rows_and_drawings_name() {
    for paper in ALL.iter() {
        for (extent, section) in
            extents(paper).into_iter().flat_map(|it| paper.sections.iter().map(move |of| (it, of)))
        {
            let mut jobs = super::job::Jobs::default();
            jobs.add(paper, extent, section);
            let is_run = |case: &Case| jobs.cases.iter().any(|it| it.is_like(case));
            let form = paper.columns.decisive();
            for value in
                section.groups.iter().flat_map(|group| group.rows.iter().map(|row| &row.is))
            {
                let curves =
                    ["inbound", "none", "laid", "crash", "policy", "interruption", "gain", "time"];
                if curves.iter().any(|it| value.of.starts_with(it)) {
                    continue;
                }
                for values in combinations(&value.each, extent) {
                    let texts = [value.one]
                        .into_iter()
                        .chain(value.over)
                        .chain(value.again_over.into_iter().flatten());
                    for text in texts {
                        let text = format!("{} @{form}", filled(&text, &values));
                        let case = paper.case(extent, &text).expect("a case");
                        assert!(is_run(&case), "{}, {}: {text}", paper.name, section.name);
                    }
                }
            }
            for curves in &section.curves {
                let each = curves.case.iter().flat_map(|text| {
                    combinations(&curves.each, extent)
                        .into_iter()
                        .map(|values| filled(text, &values))
                });
                for text in each.chain(curves.cases.iter().map(|it| it.to_string())) {
                    assert!(
                        is_run(&paper.case(extent, &text).expect("a case")),
                        "{}: {text}",
                        paper.name
                    );
                }
            }
        }
    }
}

#[test]
fn systems_that_run_have_names_of_their_own_and_all_have_protocols_and_layouts() {
    for paper in ALL.iter() {
        for name in paper.system.keys() {
            for form in &paper.columns.names {
                let it = entrant(&paper.system, name, form);
                let it = it.unwrap_or_else(|error| panic!("{error}"));
                let mut layouts = it.layouts.values().chain([&it.layout]);
                assert!(layouts.all(|layout| paper.layout.contains_key(layout)), "{name}");
                AnyProtocol::by_name(it.system.protocol, it.system.variant).expect("a variant");
            }
        }
        let mut jobs = super::job::Jobs::default();
        paper.sections.iter().for_each(|section| jobs.add(paper, &paper.extent.quick, section));
        let mut seen: Vec<System> = Vec::new();
        for system in jobs.cases.into_iter().map(|case| case.system) {
            let what = |it: &System| (it.protocol, it.variant, it.is_routed, it.retry);
            let same = seen.iter().find(|it| it.name == system.name);
            let is_offset = system.name.contains("offset");
            let is_same = same.is_none_or(|it| what(it) == what(&system));
            assert!(is_same || is_offset, "{}", system.name);
            seen.push(system);
        }
    }
    let lotus = by_name("lotus").expect("a paper");
    let sound = |name, form| {
        lotus.must_be_sound(&entrant(&lotus.system, name, form).expect("a system").system)
    };
    assert!(!sound("LOTUS", "literal") && !sound("Motor", "corrected") && sound("FORD", "literal"));
    assert!(["LOTUS", "Motor", "FORD"].into_iter().all(|name| sound(name, "best_form")));
}

#[test]
fn published_values_keep_to_their_units_and_say_where_they_stand() {
    for paper in ALL.iter() {
        for group in &paper.sections.iter().flat_map(|section| &section.groups).collect::<Vec<_>>()
        {
            for target in group.rows.iter().map(|row| row.target(group)) {
                let value = target.published.value();
                let told = format!("{}, {}: {value}", target.workload, target.metric);
                assert!(value.is_finite() && target.unit.factor(value) > 0.0, "{told}");
                assert!(target.unit != Unit::CutPercent || value < 100.0, "{told}");
                assert!(target.unit != Unit::Of("%") || (0.0..=100.0).contains(&value), "{told}");
                assert!(target.tolerance > 0.0 && target.tolerance < 1.0, "{told}");
                let source = target.published.source;
                assert!(source.starts_with("section ") || source.starts_with("table "), "{told}");
            }
        }
    }
}

#[test]
fn every_published_figure_has_one_row_and_nothing_is_made_up() {
    for (name, count) in [("lotus", 94), ("oocc", 67)] {
        let paper = by_name(name).expect("a paper");
        let parts = parts(paper, &paper.extent.full);
        let rows = || parts.iter().flat_map(|part| &part.rows);
        let once: BTreeSet<_> = rows().map(|row| (row.figure, row.workload, row.metric)).collect();
        assert_eq!((once.len(), rows().count()), (count, count), "{name}");
        for row in rows().filter(|row| !["Section 2.2", "Figure 16"].contains(&row.figure)) {
            assert!(row.values.0.iter().all(|(_, value)| value.is_none()), "{row}");
            assert_eq!((row.ratio, row.verdict), (None, Verdict::NotSimulated), "{row}");
            assert!(!row.why.is_empty(), "{row}");
        }
    }
}

/// This test lists the figures of each paper's evaluation that show results.
#[test]
fn no_figure_of_an_evaluation_is_left_out() {
    let figures = |name| -> BTreeSet<String> {
        let sections = &by_name(name).expect("a paper").sections;
        sections.iter().flat_map(|it| &it.groups).map(|group| group.figure.to_string()).collect()
    };
    let wanted = ["Section 2.2", "Section 4.3"].map(str::to_owned).into_iter();
    let wanted = wanted.chain([2, 3].into_iter().chain(12..=23).map(|it| format!("Figure {it}")));
    assert_eq!(figures("lotus"), wanted.collect());
    let wanted = [
        "Table I",
        "Figure 10",
        "Section VIII-C",
        "Figure 11",
        "Figure 12",
        "Figure 12d",
        "Figure 13",
        "Section VII",
        "Figure 14a",
        "Figure 14b",
    ];
    assert_eq!(figures("oocc"), wanted.map(str::to_owned).into());
}

#[test]
fn drawings_of_a_page_have_titles_of_their_own() {
    for paper in ALL.iter() {
        let sections = || paper.sections.iter();
        let grids = sections().flat_map(|it| &it.grids).map(|grid| grid.title);
        let curves = sections().flat_map(|it| &it.curves).map(|curves| curves.title);
        let all: Vec<_> =
            grids.chain(curves).chain(sections().filter_map(|it| it.timeline)).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{}", paper.name);
    }
}

/// If a step of an ablation changed nothing, its gain would only be noise.
#[test]
fn each_step_of_an_ablation_is_another_system_than_the_one_before() {
    let lotus = [
        "Motor",
        "full-records",
        "log-and-visible",
        "lock-sharding",
        "load-balancing",
        "version-cache",
    ];
    let oocc = ["OCC", "lease", "write-unlock", "OOCC"];
    for (name, steps) in [("lotus", &lotus[..]), ("oocc", &oocc[..])] {
        let paper = by_name(name).expect("a paper");
        for form in ["literal", "corrected"] {
            let of = |step: &&str| {
                let system = entrant(&paper.system, step, form).expect("a system").system;
                let protocol = AnyProtocol::by_name(system.protocol, "corrected");
                let info = protocol.expect("a protocol").info();
                let on = Switches::parse(&info, system.variant)
                    .expect("every step's switches are there");
                (system.protocol, on, system.is_routed)
            };
            let all: Vec<_> = steps.iter().map(of).collect();
            assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{name}, {form}: {all:?}");
        }
    }
}

/// A point that cannot be run leaves its whole row without a simulated value. Without this test, a point that cannot
/// be run would be noticed only in a run at full scale.
#[test]
fn every_point_has_threads_that_a_node_can_have() {
    for paper in ALL.iter() {
        let testbed = paper.testbed.with(Profile::load(&paper.profile).expect("embedded"));
        assert!(testbed.threads_max <= THREADS_MAX);
        for extent in extents(paper) {
            let lists = extent.of.keys().filter(|name| name.ends_with("coordinators"));
            let all = lists
                .flat_map(|name| extent.numbers(name))
                .chain(extent.scale.coordinators.clone());
            assert!(all.into_iter().all(|count| testbed.threads(count) <= THREADS_MAX));
        }
    }
}

/// An extent's sentences about smaller sizes contain the published number beside the extent's own
/// number.
#[test]
fn an_extent_says_what_is_smaller_than_published() {
    let lotus = by_name("lotus").expect("a paper");
    let said = lotus.extent.quick.scaled_down(lotus).join("; ");
    for text in [
        "100000 accounts of SmallBank instead of 20000000",
        "90 transactions at once of TPC-C instead of 540: 5.0 a warehouse instead of 5.1",
        "points of 2 ms of virtual time, TPC-C's of 5, instead of 10 s",
    ] {
        assert!(said.contains(text), "{said}");
    }
    let said = lotus.extent.full.scaled_down(lotus);
    assert_eq!(said.len(), 3, "{said:?}");
    let oocc = by_name("oocc").expect("a paper");
    assert_eq!(oocc.extent.full.scaled_down(oocc).len(), 1);
    assert!(
        oocc.extent
            .quick
            .scaled_down(oocc)
            .join("; ")
            .contains("profile lotus-code instead of oocc")
    );
}

#[test]
fn a_supposition_of_lotus_changes_what_it_names() {
    let paper = by_name("lotus").expect("a paper");
    let after = |case: &str, text: &str| {
        let mut case = paper.case(&paper.extent.quick, case).expect("a case");
        paper.supposition(text).expect("there is one").apply(&mut case);
        case
    };
    let of = |text: &str| after("LOTUS KVS zipf=0.99 updates=0 @corrected", text);
    assert_eq!(of("timestamps=counter").system.timestamps, Source::Counter);
    assert!(!of("routing=off").system.is_routed && of("routing=on").system.is_routed);
    assert_eq!(of("placement=hash").layout.placement, Placement::Hash);
    assert!(of("lotus-buckets=on").layout.bucket.read_whole);
    assert!(
        of("addresses=off").layout.warmth.is_none() && of("addresses=on").layout.warmth.is_some()
    );
    assert_eq!(of("dropped=off").system.retry, Retry::PATIENT);
    let tpcc = |text| after("Motor TPC-C @corrected", text);
    assert_eq!(tpcc("tpcc=crest").bench.mix, "crest");
    assert!(tpcc("addresses=on").layout.warmth.is_some_and(|it| !it.by_node));
    assert!(tpcc("lotus-buckets=off").layout == tpcc("tpcc=crest").layout);
    assert!(!tpcc("routing=on").system.is_routed);
    let bins = tpcc("tables=off").layout;
    assert!(!bins.bucket.read_whole && bins.bucket.slots == 8);
    assert_eq!(
        after("FORD SmallBank @literal", "ford-chains=off").layout.slots_per_100_records,
        200
    );
}

#[test]
fn only_systems_as_measured_are_charged_for_their_software() {
    let paper = by_name("lotus").expect("a paper");
    let charges = |name: &str| {
        let case = paper.case(&paper.extent.quick, name).expect("a case");
        case.system.charges.iter().map(|charge| (charge.key, charge.value)).collect::<Vec<_>>()
    };
    for (system, inline_max_bytes, complete_ns) in [("FORD", 63.0, 565.0), ("Motor", 124.0, 460.0)]
    {
        let both = [("nic.inline_max_bytes", inline_max_bytes), ("nic.complete_ns", complete_ns)];
        assert_eq!(charges(&format!("{system} SmallBank @literal")), both);
        assert_eq!(charges(&format!("{system} SmallBank @best_form")), []);
    }
    assert_eq!(charges("LOTUS SmallBank @corrected"), []);
}

#[test]
fn a_supposition_of_oocc_changes_what_it_names_and_nothing_else() {
    let paper = by_name("oocc").expect("a paper");
    let after = |text: &str, name| {
        let case = format!("{name} YCSB zipf=0 updates=0 @corrected");
        let mut case = paper.case(&paper.extent.quick, &case).expect("a case");
        paper.supposition(text).expect("one").apply(&mut case);
        case
    };
    assert_eq!(after("lease=7", "OOCC").system.read_lease_ns, 7_000);
    assert_eq!(after("lease=7", "OCC").system.read_lease_ns, 0);
    assert_eq!(after("leases=explicit", "OOCC").system.variant, "corrected,-implicit");
    assert_eq!(after("leases=explicit", "OCC").system.variant, "corrected");
    assert_eq!(after("operations=1", "DSLR").bench.operations, Some(1));
    assert_eq!(after("placement=table", "OOCC").layout.placement, Placement::Table);
    assert!(!after("buckets=off", "OOCC").layout.bucket.read_whole);
    assert!(after("addresses=off", "OOCC").layout.warmth.is_none());
    assert_eq!(after("dropped=on", "DrTM").system.retry.tries_max, 1);
    assert_eq!(after("dropped=off", "DrTM").system.retry, Retry::PATIENT);
    let mut tpcc = paper.case(&paper.extent.quick, "OOCC TPC-C @literal").expect("a case");
    assert_eq!(tpcc.system.read_lease_ns, 80_000);
    for text in ["tpcc=crest", "leases=explicit", "operations=2"] {
        paper.supposition(text).expect("one").apply(&mut tpcc);
    }
    assert_eq!((tpcc.bench.mix, tpcc.system.variant), ("crest", "literal,-implicit"));
    assert_eq!(tpcc.bench.operations, None);
    let mut scale = paper.extent.quick.scale.clone();
    paper.supposition("warm-up=2").expect("one").lengthen(&mut scale);
    assert_eq!((scale.soak_ms, scale.warm_up_ms, scale.virtual_ms), (12.0, 1.6, 1.0));
    let shown = paper.supposition("lease=7").expect("one").shown();
    assert_eq!((shown.key.as_str(), shown.value.as_str()), ("what-if.lease", "7 µs"));
    let unknown = paper.case(&paper.extent.quick, "OOCC YCSB-unknown @corrected").expect("a case");
    assert_eq!((unknown.system.read_lease_ns, unknown.bench.updates), (12_000, Some(5)));
}

#[test]
fn every_supposition_can_be_made_and_others_are_refused_with_all_that_there_are() {
    for paper in ALL.iter() {
        for it in &paper.what_if {
            let values = it.values.keys().map(|value| value.to_string());
            let ends = it.number.iter().flat_map(|it| [it.from, it.to]).map(|it| it.to_string());
            for value in values.chain(ends) {
                let made = paper.supposition(&format!("{}={value}", it.key)).expect("allowed");
                for bench in paper.bench.keys() {
                    let name = paper.system.keys().next().expect("one");
                    let text = format!("{name} {bench} @{}", paper.columns.decisive());
                    made.apply(&mut paper.case(&paper.extent.quick, &text).expect("a case"));
                }
            }
            let error = paper.supposition(&format!("{}=perhaps", it.key)).expect_err("refused");
            assert!(error.to_string().contains(&*it.key), "{error}");
        }
        let error = paper.supposition("weather=on").expect_err("refused").to_string();
        assert!(error.contains("what-if = weather=on") && error.contains("placement"), "{error}");
    }
    let oocc = by_name("oocc").expect("a paper");
    for text in [
        "lease=1001",
        "lease=",
        "lease=7.5",
        "leases=implicit",
        "operations=0",
        "placement=best",
        "dropped=no",
        "tpcc=large",
        "warm-up=11",
        "warm-up=-1",
    ] {
        let error = oocc.supposition(text).expect_err("refused").to_string();
        assert!(error.starts_with(&format!("what-if = {text}; allowed: ")), "{error}");
    }
}

/// The test uses a file with an unknown field, and a file with a value of the wrong kind.
#[test]
fn a_file_with_an_unknown_field_is_refused() {
    let text = include_str!("../../../data/oocc.toml");
    for (was, is) in [
        ("told = ", "tells = "),
        ("threads_max = 96", "threads_most = 96"),
        ("bound = \"below\"", "bound = \"beneath\""),
        ("unit = \"round trips\", published", "unit = \"round trips\", publish"),
        ("best = \"highest\"", "best = \"tallest\""),
    ] {
        assert!(text.contains(was), "{was}");
        assert!(toml::from_str::<Paper>(&text.replacen(was, is, 1)).is_err(), "{is}");
    }
}

#[test]
fn an_order_is_checked_before_it_is_run() {
    let paper = by_name("oocc").expect("a paper");
    let profile = Profile::load(&paper.profile).expect("embedded");
    let only = vec!["fig-99".to_owned()];
    let asked = super::Asked { quick: true, seed: 1, profile, only, suppositions: Vec::new() };
    let error = paper.order(asked.clone()).expect_err("refused").to_string();
    assert!(error.contains("only = fig-99") && error.contains("table-1, fig-10"), "{error}");
    let Order { extent, .. } =
        paper.order(super::Asked { only: Vec::new(), ..asked }).expect("an order");
    assert_eq!(extent.of["records"], Amount::Whole(100_000));
}
