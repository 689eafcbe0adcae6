//! The explorer against plain enumeration: the same outcomes, and planted mistakes are noticed.
//!
//! Invariant checked: whatever plain enumeration reaches, every reduction covers; whatever a reduction
//! reaches, plain enumeration does.

mod common;

use common::toy::{Do, Op, Outcome, Program, Toy, is_all, program};
use proptest::prelude::{Just, Strategy, any, prop};
use proptest::prop_oneof;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::BTreeSet;
use tarn_sim::explore::{Bounds, ExploreConfig, FaultBudget, Planted, Reduction};

fn read(node: u16, line: u16) -> Op {
    Op::Read { node, line, lines: 1 }
}

fn write(node: u16, line: u16) -> Op {
    Op::Write { node, line, lines: 1, fenced: false }
}

fn pair(line: u16) -> [Op; 2] {
    [Op::Read { node: 0, line, lines: 2 }, Op::Write { node: 0, line, lines: 2, fenced: false }]
}

fn budget(compute: u32, zombie: u32, memory: u32) -> FaultBudget {
    FaultBudget { compute, zombie, memory, ..FaultBudget::NONE }
}

/// What a reduction missed, and what it made up.
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

#[derive(Debug)]
struct Case {
    name: &'static str,
    toy: Toy,
    faults: FaultBudget,
    /// Plain enumeration would take too long: states are stored.
    is_large: bool,
}

impl Case {
    fn config(&self) -> ExploreConfig {
        ExploreConfig { faults: self.faults, ..self.toy.config() }
    }

    fn truth(&self) -> Reduction {
        if self.is_large { Reduction::States } else { Reduction::None }
    }
}

fn case(name: &'static str, programs: &[Program], nodes: u16, faults: FaultBudget) -> Case {
    Case { name, toy: Toy::new(programs, nodes, 4), faults, is_large: false }
}

fn large(name: &'static str, programs: &[Program], nodes: u16, faults: FaultBudget) -> Case {
    Case { is_large: true, ..case(name, programs, nodes, faults) }
}

fn cases() -> Vec<Case> {
    let round = |ops: &[Op]| Do::Round(ops.to_vec());
    let one = |ops: &[Op]| program(vec![vec![round(ops)]]);
    let none = FaultBudget::NONE;
    let [read_two, write_two] = pair(0);
    let recover = |rounds: Vec<Do>| Program {
        transactions: vec![[vec![Do::Revoke(0)], rounds].concat()],
        after: Some(0),
        spared: true,
        ..Program::default()
    };
    let spared = |it: Program| Program { spared: true, ..it };
    vec![
        case(
            "store buffering",
            &[
                program(vec![vec![round(&[write(0, 0)]), round(&[read(0, 1)])]]),
                program(vec![vec![round(&[write(0, 1)]), round(&[read(0, 0)])]]),
            ],
            1,
            none,
        ),
        case("a line at a time", &[one(&[read_two]), one(&[write_two])], 1, none),
        case(
            "overtaking",
            &[one(&[read(0, 0), write(0, 1)]), one(&[read(0, 1), write(0, 0)])],
            1,
            none,
        ),
        case(
            "fenced",
            &[
                one(&[read(0, 0), Op::Write { node: 0, line: 1, lines: 1, fenced: true }]),
                one(&[read(0, 1), write(0, 0)]),
            ],
            1,
            none,
        ),
        case(
            "a lock and its data",
            &[
                program(vec![vec![
                    round(&[Op::Cas { node: 0, line: 0 }, read(0, 1)]),
                    round(&[write(0, 1)]),
                ]]),
                program(vec![vec![round(&[Op::Cas { node: 0, line: 0 }, read(0, 1)])]]),
            ],
            1,
            none,
        ),
        case(
            "two nodes",
            &[one(&[write(0, 0), write(1, 0)]), one(&[read(0, 0), read(1, 0)])],
            2,
            none,
        ),
        case(
            "real time",
            &[
                program(vec![vec![round(&[write(0, 0)])], vec![round(&[write(0, 1)])]]),
                program(vec![vec![round(&[read(0, 1)])], vec![round(&[read(0, 0)])]]),
            ],
            1,
            none,
        ),
        case(
            "real time without sharing",
            &[
                program(vec![vec![round(&[write(0, 0)])], vec![round(&[write(0, 0)])]]),
                program(vec![vec![round(&[write(0, 1)])], vec![round(&[write(0, 1)])]]),
            ],
            1,
            none,
        ),
        case(
            "detached",
            &[
                program(vec![vec![Do::Detached(vec![write(0, 0)]), round(&[write(0, 1)])]]),
                one(&[read(0, 1), read(0, 0)]),
            ],
            1,
            none,
        ),
        case(
            "told before anything lands",
            &[program(vec![vec![Do::Detached(vec![write(0, 0)])]]), one(&[read(0, 0)])],
            1,
            none,
        ),
        case("overtaking oneself", &[one(&[Op::Faa { node: 0, line: 0 }, write(0, 0)])], 1, none),
        case(
            "asking whether it is done",
            &[
                program(vec![vec![
                    Do::Detached(vec![write(0, 0)]),
                    round(&[write(1, 1)]),
                    Do::Ask,
                    round(&[write(1, 0)]),
                ]]),
                one(&[read(1, 0)]),
            ],
            2,
            none,
        ),
        case(
            "one compute node",
            &[
                Program { node: Some(0), ..one(&[Op::Faa { node: 0, line: 0 }]) },
                Program { node: Some(0), ..one(&[Op::Faa { node: 0, line: 0 }]) },
            ],
            1,
            none,
        ),
        case(
            "a death",
            &[one(&[write(0, 0), write(0, 1)]), spared(one(&[read(0, 0)]))],
            1,
            budget(1, 0, 0),
        ),
        case(
            "a death that only memory shows",
            &[program(vec![vec![round(&[write(0, 0), write(0, 1)]), round(&[write(0, 2)])]])],
            1,
            budget(1, 0, 0),
        ),
        case(
            "a death and its recovery",
            &[
                one(&[write(0, 0), write(0, 1)]),
                recover(vec![round(&[read(0, 0)]), round(&[write(0, 0)])]),
            ],
            1,
            budget(1, 0, 0),
        ),
        large(
            "a zombie and its recovery",
            &[
                program(vec![vec![round(&[write(0, 0), write(1, 0)]), round(&[write(0, 1)])]]),
                recover(vec![round(&[read(0, 0), read(1, 0)]), round(&[write(0, 0)])]),
            ],
            2,
            budget(0, 1, 0),
        ),
        large(
            "a zombie on private lines",
            &[
                program(vec![
                    vec![round(&[read(0, 2)]), round(&[read(0, 3)])],
                    vec![round(&[write(1, 1)])],
                ]),
                recover(vec![round(&[read(0, 0)])]),
            ],
            2,
            budget(0, 1, 0),
        ),
        case(
            "a memory node dies",
            &[one(&[write(0, 0), write(1, 0)]), one(&[read(0, 0)])],
            2,
            budget(0, 0, 1),
        ),
        large(
            "a memory node dies under private lines",
            &[
                program(vec![vec![round(&[read(0, 1)]), round(&[read(1, 1)])]]),
                program(vec![vec![round(&[write(1, 2)]), round(&[write(0, 2)])]]),
            ],
            2,
            budget(0, 0, 1),
        ),
        large(
            "three",
            &[
                program(vec![vec![
                    round(&[Op::Cas { node: 0, line: 0 }, read(0, 1)]),
                    round(&[write(0, 1), write(0, 0)]),
                ]]),
                program(vec![vec![round(&[Op::Cas { node: 0, line: 0 }, read(0, 1)])]]),
                one(&[Op::Read { node: 0, line: 0, lines: 2 }]),
            ],
            1,
            none,
        ),
        case(
            "messages",
            &[
                program(vec![vec![round(&[write(0, 0)]), Do::Send(1)]]),
                program(vec![vec![Do::Receive, round(&[read(0, 0)])]]),
            ],
            1,
            FaultBudget { messages_lost: 1, messages_doubled: 1, ..none },
        ),
    ]
}

#[test]
fn every_reduction_reaches_what_plain_enumeration_reaches() {
    for case in cases() {
        let config = case.config();
        let (truth, plain) = case.toy.outcomes(&config, case.truth());
        assert!(is_all(&plain), "{}: {plain:?}", case.name);
        let (full, reduced) = case.toy.outcomes(&config, Reduction::Full);
        println!(
            "{}: {} outcomes; plain {} executions; full {} outcomes, {} executions, {} states",
            case.name,
            truth.len(),
            plain.progress.executions,
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

/// Toys that no person thought of.
fn drawn() -> impl Strategy<Value = Case> {
    let place = || (0..2u16, 0..2u16);
    let op = prop_oneof![
        3 => place().prop_map(|(node, line)| read(node, line)),
        1 => place().prop_map(|(node, _)| Op::Read { node, line: 0, lines: 2 }),
        3 => (place(), any::<bool>()).prop_map(|((node, line), fenced)| {
            Op::Write { node, line, lines: 1, fenced }
        }),
        1 => place().prop_map(|(node, _)| Op::Write { node, line: 0, lines: 2, fenced: false }),
        2 => place().prop_map(|(node, line)| Op::Cas { node, line }),
        1 => place().prop_map(|(node, line)| Op::Faa { node, line }),
    ];
    let ops = prop::collection::vec(op, 1..3);
    let step = prop_oneof![
        8 => ops.clone().prop_map(Do::Round),
        2 => ops.prop_map(Do::Detached),
        1 => Just(Do::Ask),
    ];
    let some = prop::collection::vec(step, 1..3);
    let split = any::<bool>();
    let actor = (some, split).prop_map(|(steps, split)| {
        if split {
            program(steps.into_iter().map(|step| vec![step]).collect())
        } else {
            program(vec![steps])
        }
    });
    let faults = prop_oneof![
        3 => Just(FaultBudget::NONE),
        2 => Just(budget(1, 0, 0)),
        2 => Just(budget(0, 1, 0)),
        1 => Just(budget(0, 0, 1)),
        1 => Just(budget(1, 1, 0)),
    ];
    let extra = (0..4usize, any::<bool>());
    (prop::collection::vec(actor, 2..4), faults, extra).prop_map(
        |(mut actors, faults, (how, same))| {
            let last = actors.len() - 1;
            match how {
                0 | 1 => {
                    actors[last].after = Some(0);
                    actors[last].transactions.insert(0, vec![Do::Revoke(0)]);
                    actors[last].spared = true;
                }
                2 if same => actors[1].node = Some(0),
                2 => actors[last].transactions.insert(0, vec![Do::Revoke(0)]),
                _ => {}
            }
            large("drawn", &actors, 2, faults)
        },
    )
}

/// So many states are explored of a drawn toy, or it is passed over.
const DRAWN_STATES: u64 = 6_000;

fn bounded(case: &Case) -> ExploreConfig {
    let bounds = Bounds { states: DRAWN_STATES, executions: 20_000, ..Bounds::NONE };
    ExploreConfig { bounds, ..case.config() }
}

fn draw_cases(count: u32, mut each: impl FnMut(Case) -> bool) {
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        TestRng::from_seed(RngAlgorithm::XorShift, &[7; 16]),
    );
    let strategy = drawn();
    for _ in 0..count {
        if each(strategy.new_tree(&mut runner).expect("nothing is rejected").current()) {
            return;
        }
    }
}

#[test]
fn drawn_toys_have_the_same_outcomes_under_all_reductions() {
    let count = std::env::var("TARN_TOYS").map_or(50, |count| count.parse().unwrap());
    let (mut compared, mut plain_too) = (0, 0);
    draw_cases(count, |case| {
        let config = bounded(&case);
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
    ] {
        let is_noticed = |case: &Case| {
            let config = bounded(case);
            let (wrong, _) = case.toy.outcomes(&config, Reduction::Planted(planted));
            let (truth, states) = case.toy.outcomes(&config, Reduction::States);
            is_all(&states) && compare(&truth, &wrong).is_err()
        };
        let noticed: Vec<_> =
            cases().into_iter().filter(is_noticed).map(|case| case.name).collect();
        let (mut drawn, mut found) = (0, false);
        draw_cases(if noticed.is_empty() { 400 } else { 0 }, |case| {
            drawn += 1;
            found = is_noticed(&case);
            found
        });
        println!("{planted:?}: noticed by {noticed:?}, {drawn} drawn");
        assert!(found || !noticed.is_empty(), "{planted:?} went unnoticed");
    }
}
