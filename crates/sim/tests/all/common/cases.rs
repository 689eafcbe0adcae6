//! The toy programs that test the reductions: some programs are written by hand, and some are
//! generated at random.
//!
//! Invariant: a toy program written by hand tests one argument of docs/design/0011-explorer.md, or
//! one planted mistake. Toys generated at random cover cases that no author thought of.

use super::timed;
use super::toy::{Do, Op, Program, Toy, program};
use proptest::prelude::{Just, Strategy, any, prop};
use proptest::prop_oneof;
use tarn_sim::explore::{ExploreConfig, Explored, FaultBudget, Outcome as Extent, Reduction};

/// Returns whether the exploration was exhaustive.
pub fn is_all(explored: &Explored) -> bool {
    explored.outcome == Extent::Exhausted
}

pub fn read(node: u16, line: u16) -> Op {
    Op::Read { node, line, lines: 1 }
}

pub fn write(node: u16, line: u16) -> Op {
    Op::Write { node, line, lines: 1, fenced: false }
}

fn pair(line: u16) -> [Op; 2] {
    [Op::Read { node: 0, line, lines: 2 }, Op::Write { node: 0, line, lines: 2, fenced: false }]
}

pub fn budget(compute: u32, zombie: u32, memory: u32) -> FaultBudget {
    FaultBudget { compute, zombie, memory, ..FaultBudget::NONE }
}

/// A toy program, and the faults that may happen to it.
#[derive(Debug)]
pub struct Case {
    pub name: &'static str,
    pub toy: Toy,
    pub faults: FaultBudget,
    /// Whether plain enumeration of the toy would take too long. The enumeration of a large toy stores
    /// states.
    is_large: bool,
}

impl Case {
    pub fn config(&self) -> ExploreConfig {
        ExploreConfig { faults: self.faults, ..self.toy.config() }
    }

    pub fn truth(&self) -> Reduction {
        if self.is_large { Reduction::States } else { Reduction::None }
    }
}

pub fn case(name: &'static str, programs: &[Program], nodes: u16, faults: FaultBudget) -> Case {
    Case { name, toy: Toy::new(programs, nodes, 4), faults, is_large: false }
}

pub fn large(name: &'static str, programs: &[Program], nodes: u16, faults: FaultBudget) -> Case {
    Case { is_large: true, ..case(name, programs, nodes, faults) }
}

/// Returns the toys written by hand.
pub fn cases() -> Vec<Case> {
    [of_rounds(), of_watches(), timed::cases()].into_iter().flatten().collect()
}

/// Returns the programs of two actors. The first actor waits until a word changes. The second actor
/// writes a line and then that word.
pub fn told_and_telling() -> [Program; 2] {
    let each = |ops: [Op; 2]| program(vec![ops.map(|op| Do::Round(vec![op])).to_vec()]);
    [each([Op::Watch { node: 0, line: 0 }, read(0, 1)]), each([write(0, 1), write(0, 0)])]
}

fn of_watches() -> Vec<Case> {
    let each = |ops: &[Op]| program(vec![ops.iter().map(|op| Do::Round(vec![*op])).collect()]);
    let watch = |line| Op::Watch { node: 0, line };
    vec![
        case("a word that tells", &told_and_telling(), 1, FaultBudget::NONE),
        case("a word that may never tell", &told_and_telling(), 1, budget(1, 0, 0)),
        case("a word on a node that may die", &told_and_telling(), 1, budget(0, 0, 1)),
        case(
            "two who wait in vain",
            &[each(&[watch(0), read(0, 2)]), each(&[watch(1), write(0, 2)])],
            1,
            FaultBudget::NONE,
        ),
        case(
            "two who wait for each other",
            &[
                each(&[watch(0), write(0, 1), read(0, 2)]),
                each(&[watch(1), write(0, 0), write(0, 2)]),
            ],
            1,
            FaultBudget::NONE,
        ),
    ]
}

fn of_rounds() -> Vec<Case> {
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
            "dropped",
            &[
                program(vec![vec![Do::Dropped(vec![write(0, 0)]), round(&[write(0, 1)])]]),
                one(&[read(0, 1), read(0, 0)]),
            ],
            1,
            none,
        ),
        case(
            "dropped at two nodes, then looked at",
            &[
                program(vec![vec![
                    Do::Dropped(vec![write(0, 0), write(1, 0)]),
                    round(&[read(0, 0), read(1, 0)]),
                    round(&[write(0, 0)]),
                ]]),
                one(&[read(1, 0), read(0, 0)]),
            ],
            2,
            none,
        ),
        large(
            "dropped, then a death",
            &[
                program(vec![vec![Do::Dropped(vec![write(0, 0)]), round(&[write(0, 1)])]]),
                recover(vec![round(&[read(0, 1)]), round(&[read(0, 0)])]),
            ],
            1,
            budget(1, 0, 0),
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
            "asking first of all",
            &[
                program(vec![
                    vec![Do::Detached(vec![write(0, 0)])],
                    vec![Do::Ask, round(&[write(1, 0)])],
                ]),
                program(vec![vec![round(&[read(0, 0)]), round(&[read(1, 0)])]]),
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
            "an object that others see",
            &[
                program(vec![vec![round(&[write(0, 0)]), Do::Put(1), round(&[write(0, 1)])]]),
                program(vec![vec![round(&[read(0, 0)]), Do::Look, round(&[read(0, 1)])]]),
            ],
            1,
            none,
        ),
        case(
            "an object that changes after a death",
            &[
                one(&[write(0, 0), write(0, 1)]),
                recover(vec![Do::Put(1), round(&[read(0, 0)]), Do::Put(2)]),
                spared(program(vec![vec![round(&[read(0, 1)]), Do::Look, round(&[read(0, 0)])]])),
            ],
            1,
            budget(1, 0, 0),
        ),
        case(
            "who has ended and left a round behind",
            &[
                program(vec![vec![Do::Detached(vec![write(0, 0)])]]),
                program(vec![vec![round(&[read(0, 1)]), round(&[read(0, 0)])]]),
            ],
            1,
            none,
        ),
        case(
            "a lock in local memory",
            &[
                program(vec![vec![round(&[read(0, 0)]), Do::TakePart(0), round(&[write(0, 1)])]]),
                program(vec![vec![round(&[read(0, 2)]), Do::TakePart(0), round(&[write(0, 1)])]]),
            ],
            1,
            none,
        ),
        large(
            "a lock in local memory that is given back",
            &[
                program(vec![vec![
                    round(&[read(0, 2)]),
                    Do::TakePart(0),
                    round(&[Op::Faa { node: 0, line: 0 }]),
                    Do::GivePart(0),
                ]]),
                program(vec![vec![
                    round(&[read(0, 3)]),
                    Do::TakePart(0),
                    round(&[Op::Faa { node: 0, line: 0 }]),
                    Do::GivePart(0),
                ]]),
            ],
            1,
            none,
        ),
        large(
            "two parts of one node",
            &[
                program(vec![vec![
                    round(&[read(0, 2)]),
                    Do::PutPart(0, 1),
                    round(&[read(0, 2)]),
                    Do::LookPart(1),
                ]]),
                program(vec![vec![
                    round(&[read(0, 3)]),
                    Do::PutPart(1, 2),
                    round(&[read(0, 3)]),
                    Do::LookPart(0),
                ]]),
            ],
            1,
            none,
        ),
        // The order of `PutPart` and `LookPart` is visible only in line 2, which one actor writes and
        // the other actor reads.
        case(
            "told before the other put it there, and what follows",
            &[
                program(vec![vec![round(&[read(0, 0)]), Do::PutPart(0, 1), round(&[read(0, 2)])]]),
                program(vec![vec![round(&[read(0, 1)]), Do::LookPart(0), round(&[write(0, 2)])]]),
            ],
            1,
            none,
        ),
        large(
            "a part that a dead one has changed",
            &[
                program(vec![vec![
                    round(&[write(0, 0)]),
                    Do::PutPart(0, 1),
                    round(&[write(0, 1)]),
                ]]),
                recover(vec![round(&[read(0, 1)]), Do::LookPart(0), round(&[write(0, 0)])]),
            ],
            1,
            budget(1, 0, 0),
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

/// Generates toys at random.
pub fn drawn() -> impl Strategy<Value = Case> {
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
        1 => place().prop_map(|(node, line)| Op::Watch { node, line }),
    ];
    let ops = prop::collection::vec(op, 1..3);
    let step = prop_oneof![
        8 => ops.clone().prop_map(Do::Round),
        2 => ops.clone().prop_map(Do::Detached),
        2 => ops.prop_map(Do::Dropped),
        1 => Just(Do::Ask),
        4 => timed::drawn(),
        1 => (0..2u16).prop_map(Do::LookPart),
        1 => (0..2u16).prop_map(|part| Do::PutPart(part, 3)),
        1 => (0..2u16).prop_map(Do::TakePart),
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
