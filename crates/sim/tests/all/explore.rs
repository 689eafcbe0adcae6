//! Compares the explorer with plain enumeration: both find the same outcomes, and the comparison
//! notices planted mistakes.
//!
//! Invariant checked: every reduction covers all outcomes of plain enumeration, and reaches no other
//! outcomes.

use crate::common::cases::{Case, budget, case, cases, drawn, is_all, told_and_telling};
use crate::common::timed;
use crate::common::toy::Outcome;
use proptest::prelude::Strategy;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::BTreeSet;
use tarn_sim::explore::{Bounds, ExploreConfig, FaultBudget, Planted, Reduction};

/// Compares two sets of outcomes. The error shows an outcome that the reduction missed, or an outcome
/// that plain enumeration does not reach.
fn compare(plain: &BTreeSet<Outcome>, reduced: &BTreeSet<Outcome>) -> Result<(), String> {
    for outcome in plain {
        if !reduced.contains(outcome) && !reduced.iter().any(|it| it.covers(outcome)) {
            return Err(format!("missed: {outcome:?}"));
        }
    }
    for outcome in reduced {
        if !plain.contains(outcome) {
            return Err(format!("made up: {outcome:?}"));
        }
    }
    Ok(())
}

#[test]
fn every_reduction_reaches_the_outcomes_of_plain_enumeration() {
    for case in cases() {
        let config = case.config();
        let (truth, plain) = case.toy.outcomes(&config, case.truth());
        assert!(is_all(&plain), "{}: {plain:?}", case.name);
        let (full, reduced) = case.toy.outcomes(&config, Reduction::Full);
        println!(
            "{}: {} outcomes; plain {} executions, {} states; full {} outcomes, {} executions, {} states",
            case.name,
            truth.len(),
            plain.progress.executions,
            plain.progress.states,
            full.len(),
            reduced.progress.executions,
            reduced.progress.states,
        );
        assert!(is_all(&reduced));
        compare(&truth, &full).unwrap_or_else(|text| panic!("{}: {text}", case.name));
        let (states, _) = case.toy.outcomes(&config, Reduction::States);
        assert_eq!(states, truth, "{}", case.name);
    }
}

/// The largest number of states of a random toy program. The test skips toys with more states.
const DRAWN_STATES: u64 = 6_000;
/// The largest number of states of a toy program that was written by hand. All toys written by hand
/// have fewer states.
const STATES: u64 = 12_000;

fn bounded(case: &Case, states: u64) -> ExploreConfig {
    let bounds = Bounds { states, executions: 20_000, ..Bounds::NONE };
    ExploreConfig { bounds, ..case.config() }
}

fn draw_cases(
    count: u32,
    strategy: &impl Strategy<Value = Case>,
    mut each: impl FnMut(Case) -> bool,
) {
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        TestRng::from_seed(RngAlgorithm::XorShift, &[7; 16]),
    );
    for _ in 0..count {
        if each(strategy.new_tree(&mut runner).expect("nothing is rejected").current()) {
            return;
        }
    }
}

#[test]
fn drawn_toys_have_the_same_outcomes_under_all_reductions() {
    compare_drawn(&drawn(), DRAWN_STATES);
}

#[test]
fn drawn_toys_with_windows_and_waits_have_the_same_outcomes() {
    compare_drawn(&timed::drawn_toys(), DRAWN_STATES);
}

fn compare_drawn(strategy: &impl Strategy<Value = Case>, states: u64) {
    let count = std::env::var("TARN_TOYS").map_or(50, |count| count.parse().unwrap());
    let (mut compared, mut plain_too) = (0, 0);
    draw_cases(count, strategy, |case| {
        let config = bounded(&case, states);
        let (truth, states) = case.toy.outcomes(&config, Reduction::States);
        if !is_all(&states) {
            return false;
        }
        let told = || format!("{:?}, {:?}", case.toy.programs, case.faults);
        let (full, reduced) = case.toy.outcomes(&config, Reduction::Full);
        assert!(is_all(&reduced), "{}", told());
        compare(&truth, &full).unwrap_or_else(|text| panic!("{}: {text}", told()));
        compared += 1;
        if states.progress.states < 400 {
            let (plain, all) = case.toy.outcomes(&config, Reduction::None);
            plain_too += u32::from(is_all(&all));
            assert!(!is_all(&all) || plain == truth, "{}", told());
        }
        false
    });
    println!("{compared} of {count} compared, {plain_too} of them with plain enumeration too");
    assert!(compared * 2 > count && plain_too > 0);
}

#[test]
fn a_watcher_learns_of_a_change_or_that_no_step_is_left() {
    let told = |faults| {
        let case = case("watch", &told_and_telling(), 1, faults);
        let (outcomes, explored) = case.toy.outcomes(&case.config(), Reduction::Full);
        assert!(is_all(&explored));
        outcomes.into_iter().map(|it| it.logs[0].clone()).collect::<BTreeSet<_>>()
    };
    assert_eq!(told(FaultBudget::NONE), BTreeSet::from([vec![2000, 2000]]), "all that was told of");
    let with_deaths = BTreeSet::from([vec![0, 0], vec![0, 2000], vec![2000, 2000]]);
    let who_ended = |log: &Vec<u64>| log.len() == 2;
    assert_eq!(
        told(budget(1, 0, 0)).into_iter().filter(who_ended).collect::<BTreeSet<_>>(),
        with_deaths
    );
}

#[test]
fn planted_mistakes_are_noticed() {
    for planted in [
        Planted::LinesForgotten,
        Planted::SeenForgotten,
        Planted::OrderForgotten,
        Planted::DeathsForgotten,
        Planted::RefusalsForgotten,
        Planted::SharingForgotten,
        Planted::EndsForgotten,
        Planted::OvertakingForgotten,
        Planted::AskingForgotten,
        Planted::LeftoversForgotten,
        Planted::ObjectsForgotten,
        Planted::RemainsForgotten,
        Planted::PartsForgotten,
        Planted::ToldForgotten,
        Planted::TimeForgotten,
        Planted::WaitersForgotten,
        Planted::BeginningsMoved,
        Planted::ChainsForgotten,
        Planted::OpenForgotten,
        Planted::WaitsForgotten,
        Planted::BeginningsForgotten,
        Planted::OverlapsForgotten,
        Planted::StallsForgotten,
    ] {
        let is_noticed = |case: &Case, states| {
            let config = bounded(case, states);
            let (wrong, _) = case.toy.outcomes(&config, Reduction::Planted(planted));
            let (truth, states) = case.toy.outcomes(&config, Reduction::States);
            is_all(&states) && compare(&truth, &wrong).is_err()
        };
        let by_hand = cases().into_iter().filter(|case| is_noticed(case, STATES));
        let noticed: Vec<_> = by_hand.map(|case| case.name).collect();
        let (mut tried, mut found) = (0, false);
        draw_cases(if noticed.is_empty() { 400 } else { 0 }, &drawn(), |case| {
            tried += 1;
            found = is_noticed(&case, DRAWN_STATES);
            found
        });
        println!("{planted:?}: noticed by {noticed:?}, {tried} drawn");
        assert!(found || !noticed.is_empty(), "{planted:?} went unnoticed");
    }
}
