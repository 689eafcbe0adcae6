//! Tests of the data file and of the smallest evaluation.

use super::case::{BEFORE_STREAM, Case, Form, Goal, HOT, Load, TRACE_STREAM};
use super::data::{ALL, Lengths, LockPaper, Stated, by_name};
use super::recorded::{Replay, draw, replay};
use super::report::opening_cells;
use super::{LockOrder, evaluate};
use crate::locks::run::{Pace, hottest};
use crate::locks::system::System;
use crate::reproduce::paper::case::Missing;
use crate::reproduce::paper::sheet::{Apart, Row};
use crate::reproduce::row::Verdict;
use tarn_sim::profile::Profile;

fn order(only: &[&str]) -> LockOrder {
    let paper = by_name("fisslock").unwrap();
    LockOrder {
        paper,
        is_quick: true,
        seed: 1,
        profile: Profile::load(&paper.profile).unwrap(),
        only: only.iter().map(|name| (*name).to_owned()).collect(),
    }
}

#[test]
fn every_case_of_a_file_is_read() {
    for paper in &*ALL {
        let rows = paper.sections.iter().flat_map(|section| &section.rows);
        let cases = rows.flat_map(|row| row.cases(&paper.columns)).count();
        assert!(cases > 50, "{cases} cases");
        let Lengths { held: [few, many], .. } = paper.quick;
        assert_eq!(many, 10 * few, "the rows on new views compare a tenfold number");
    }
}

#[test]
fn a_case_that_is_none_is_refused_with_its_word() {
    for (text, start, allowed) in [
        ("nolock uniform", "service = nolock; ", "netlock, dslr"),
        ("fisslock skewed", "load = skewed; ", "tatp, tpcc"),
        ("fisslock", "load = ; ", "uniform, zipf"),
        ("fisslock uniform often", "setting of uniform = often; ", "uh, rm, ro, theta=NUMBER"),
        ("fisslock uniform locks=many", "locks of the load = many; ", "whole numbers from 1 to"),
        ("fisslock uniform locks=1.9", "locks of the load = 1.9; ", "whole numbers from 1 to"),
        ("fisslock granules locks=3000001", "locks of the load = 3000001; ", "divide 10000000"),
        ("fisslock granules locks=0", "locks of the load = 0; ", "divide 10000000"),
        ("fisslock hotspot locks=2500", "locks of the load = 2500; ", "whole numbers from 2501 to"),
        ("fisslock zipf theta=-1", "theta of the load = -1; ", "0 to 4, in hundredths"),
        ("fisslock zipf theta=nan", "theta of the load = nan; ", "0 to 4"),
        ("fisslock zipf theta=.735", "theta of the load = .735; ", "in hundredths"),
        ("fisslock zipf uh ro", "setting of zipf = ro; ", "uh, rm or ro once in zipf uh ro"),
        ("fisslock zipf locks=7 locks=8", "setting of zipf = locks=8; ", "locks once in "),
        ("fisslock tatp uh", "setting of tatp = uh; ", "by-id, on-switch=NUMBER"),
        ("fisslock tpcc locks=7", "setting of tpcc = locks=7; ", "by-id"),
        ("fisslock hotspot theta=.9", "setting of hotspot = theta=.9; ", "locks=NUMBER, by-id"),
    ] {
        let error = Case::read(text, Form::Code).expect_err(text).to_string();
        assert!(error.starts_with(start) && error.contains(allowed), "{text}: {error}");
    }
    let case = Case::read("parlock zipf uh theta=.73 by-id on-switch=7", Form::Text).unwrap();
    assert_eq!((case.load, case.form, case.theta_percent), (Load::Zipf, Form::Code, Some(73)));
    assert!(case.by_id && case.writes_percent == 50 && case.on_switch == Some(7));
}

#[test]
fn each_load_is_read_by_its_name_and_shown_by_it() {
    let system = System::by_name("parlock").unwrap();
    for name in Load::names() {
        let case = Case::read_load(system, name, (Form::Code, Goal::Run)).unwrap();
        assert_eq!(case.load.name(), name);
        assert!(case.to_string().starts_with(&format!("parlock {name}")), "{case}");
    }
}

#[test]
fn a_value_is_measured_for_each_combination_of_its_axes() {
    let stated: Stated = toml::from_str(
        r#"
        figure = "Figure 0"
        workload = "W"
        metric = "m"
        unit = "×"
        published = 2.0
        source = "there"
        of = "acquires"
        one = "fisslock {load} {mix}"
        over = "srvlock {load} {mix}"
        each = [["load", "uniform", "granules"], ["mix", "uh", "rm", "ro"]]
        "#,
    )
    .unwrap();
    let pairs = stated.pairs();
    let mut all = pairs.iter().map(|(one, over)| (one.as_str(), over.as_deref().unwrap()));
    let expected = ["uniform", "granules"].into_iter().flat_map(|load| {
        ["uh", "rm", "ro"]
            .map(|mix| (format!("fisslock {load} {mix}"), format!("srvlock {load} {mix}")))
    });
    for (one, over) in expected {
        assert_eq!(all.next(), Some((one.as_str(), over.as_str())));
    }
    assert_eq!(all.next(), None);
    assert_eq!(stated.cases(&ALL[0].columns).len(), 12);
}

#[test]
fn netlock_keeps_the_hot_locks_of_another_trace_than_the_replayed_one() {
    let order = LockOrder { paper: tiny(), ..order(&[]) };
    let case = Case::read("netlock uniform rm", Form::Code).unwrap();
    let hot_of = |stream| {
        let trace = case.trace(&order, stream);
        hottest(&trace, trace.len(), HOT)
    };
    assert_eq!(case.hot(&order), hot_of(BEFORE_STREAM));
    assert_ne!(case.hot(&order), hot_of(TRACE_STREAM));
}

/// The share of the requests that NetLock's switch decides, in percent.
fn by_switch(order: &Replay) -> f64 {
    let trace = draw("uniform rm locks=100000", 20_000, 1).unwrap();
    let replays = replay(trace, order).unwrap();
    let counters = &replays.runs[0].counters;
    let before = counters.split(" % by the switch").next().unwrap();
    before.split(' ').next_back().unwrap().parse().unwrap()
}

#[test]
fn a_replay_with_hot_locks_of_another_trace_has_only_their_share_on_the_switch() {
    let mut order = Replay {
        services: vec!["netlock".into()],
        profile: order(&[]).profile,
        seed: 1,
        pace: Pace::new(100_000, 400_000),
        hot_from: None,
        warehouses: None,
    };
    assert!(by_switch(&order) > 40.0, "the trace's own hot locks");
    order.hot_from = Some(draw("uniform rm locks=100000", 20_000, 2).unwrap());
    let share = by_switch(&order);
    assert!((7.0..13.0).contains(&share), "a tenth of the locks is hot: {share} %");
    order.hot_from = Some(draw("uniform rm locks=99999", 20_000, 2).unwrap());
    let trace = draw("uniform rm locks=100000", 20_000, 1).unwrap();
    let error = replay(trace, &order).err().expect("refused").to_string();
    assert!(error.starts_with("locks of --hot-from = 99999; "), "{error}");
}

fn page(name: &str) -> String {
    let path = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

/// The page has the rows as `--table` prints them. The values are from a run; everything else is checked here.
#[test]
fn the_page_has_all_rows_and_counts_them() {
    let text = page("reproduction-fisslock.md");
    let rows = text.split("\n## Rows\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut lines = rows.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| |"));
    let (mut agree, mut judged) = (0, 0);
    for stated in ALL[0].sections.iter().flat_map(|section| &section.rows) {
        let row = Row::of(&ALL[0].columns, &stated.target(), &|_| Err(Missing(String::new())));
        let opening = opening_cells(&row);
        let line = lines.next().unwrap_or_else(|| panic!("no line {opening}"));
        assert!(line.starts_with(&opening), "{line}, not {opening}");
        let cells: Vec<&str> = line.split(" | ").collect();
        let (code, cause) = (cells[2], cells.last().unwrap().trim_end_matches(" |").trim());
        let mark = match (stated.apart(), stated.not_simulated) {
            (_, Some(_)) => "not simulated",
            (Some(Apart::FollowsFrom(_)), _) => "†",
            (Some(Apart::NotJudged(_)), _) => "‡",
            (None, None) => "",
        };
        assert!(code.ends_with(mark) && !code.is_empty(), "{line}: {mark}");
        assert!(mark == "†" || !code.contains('†'), "{line}");
        let is_missed = code.starts_with("**");
        let known = stated.because.map_or("", |text| text.0);
        assert_eq!(cause, if is_missed { known } else { "" }, "{line}");
        assert!(!is_missed || !known.is_empty(), "{line}: no cause");
        agree += usize::from(mark.is_empty() && !is_missed);
        judged += usize::from(mark.is_empty());
    }
    assert_eq!(lines.next(), None);
    let counted = format!("**FissLock**: {agree} of {judged} judged values agree");
    assert!(text.contains(&counted), "{counted}");
    assert!(page("reproduction.md").contains(&counted), "{counted}");
}

#[test]
fn the_memory_of_the_switch_and_new_views_are_counted_apart() {
    let evaluation = evaluate(&order(&["memory", "recovery", "banking"])).unwrap();
    let rows: Vec<&Row> = evaluation.parts.iter().flat_map(|part| &part.rows).collect();
    for row in &rows {
        match row.apart {
            Some(_) => assert_eq!(row.verdict, Verdict::Agrees, "{row}"),
            None => assert_eq!(row.verdict, Verdict::NotSimulated, "{row}"),
        }
    }
    assert_eq!((rows.len(), rows.iter().filter(|row| row.apart.is_some()).count()), (5, 3));
    let verdict = evaluation.verdict();
    assert!(verdict.starts_with("0 of the 0 judged values agree"), "{verdict}");
    assert!(
        verdict
            .contains("2 that follow from inputs of the model, 1 that the paper gives no number"),
        "{verdict}"
    );
    assert!(evaluation.page().contains("evaluation again"));
    assert!(evaluation.page().contains("follows from an input: one look-up"), "no reason");
}

/// The paper with runs that are as short as they can be.
fn tiny() -> &'static LockPaper {
    let mut paper: LockPaper = toml::from_str(include_str!("../../../data/fisslock.toml")).unwrap();
    paper.quick = Lengths { transactions: 20_000, warm_up_ms: 0.1, virtual_ms: 0.4, ..paper.quick };
    Box::leak(Box::new(paper))
}

#[test]
fn clients_decide_the_rows_of_shares_in_all_columns_and_the_counters_stand_beside() {
    let order = LockOrder { paper: tiny(), ..order(&["shares"]) };
    let evaluation = evaluate(&order).unwrap();
    assert_eq!(evaluation.failed, [""; 0]);
    let rows = &evaluation.parts[0].rows;
    for row in rows {
        assert!(row.bottleneck.contains("messages an acquire"), "{row}");
    }
    let value = |row: &Row, column: &str| row.value(column).unwrap_or_else(|| panic!("{row}"));
    // One of a hundred locks is hot, and one of eight machines has a lock.
    let [hot, home, switch, busiest] = &rows[..] else { panic!("{} rows", rows.len()) };
    assert!((0.3..3.0).contains(&value(hot, "code")), "{hot}");
    assert!((10.0..16.0).contains(&value(home, "code")), "{home}");
    assert!(hot.value("text").is_none() && hot.apart.is_some(), "{hot}");
    // More skew makes more requests hot, and scattered ranks load no machine.
    assert!(value(switch, "text") > value(switch, "code"), "{switch}");
    assert!(value(switch, "code") > value(switch, "shares"), "{switch}");
    assert!(value(busiest, "code") > 2.0 * value(busiest, "text"), "{busiest}");
    assert!(switch.apart.is_none() && !switch.beside.is_empty(), "{switch}");
    let again = evaluate(&order).unwrap();
    assert_eq!(again.parts[0].rows, evaluation.parts[0].rows);
}

#[test]
fn the_hotspot_of_netlock_is_measured_before_and_after_it_moves() {
    let evaluation = evaluate(&order(&["hotspot"])).unwrap();
    let rows = &evaluation.parts[0].rows;
    let [_, highest, lowest, after] = &rows[..] else { panic!("{} rows", rows.len()) };
    let value = |row: &Row| row.value("code").unwrap_or_else(|| panic!("{row}"));
    assert!(value(highest) >= value(lowest), "{highest}{lowest}");
    assert!(value(after) < 0.75 * value(highest), "{highest}{after}");
}

#[test]
fn a_section_that_is_none_is_refused() {
    let error = evaluate(&order(&["fig-1"])).err().expect("refused").to_string();
    assert!(error.contains("memory") && error.contains("fig-1"), "{error}");
}

#[test]
fn a_network_without_room_for_a_lock_packet_is_refused() {
    let mut order = order(&["recovery"]);
    order.profile = order.profile.with("link.mtu_bytes", 64.0).unwrap();
    let error = evaluate(&order).err().expect("refused").to_string();
    assert!(error.ends_with("(link.mtu_bytes) = 64; allowed: 84 or more"), "{error}");
}
