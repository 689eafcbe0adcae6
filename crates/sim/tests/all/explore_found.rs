//! Tests of the results of an exploration: violations that can be replayed and shrunk, bounds, and the
//! end of dead coroutines.
//!
//! Invariant checked: a schedule that was printed and parsed leads to the same trace and verdict. The
//! explorer reports every execution that a bound has cut.

use crate::common::cases::{read, write};
use crate::common::toy::{Do, Op, Toy, program};
use tarn_sim::explore::{
    Bound, Bounds, ExploreConfig, Fate, FaultBudget, Outcome as Extent, Reduction, Step, replay,
    shrink,
};

/// A program without a lock: if both actors read before either actor has written, both actors add to
/// the same old value.
fn unlocked() -> Toy {
    let add = || {
        let look = Do::Round(vec![read(0, 0), read(0, 1)]);
        program(vec![vec![look, Do::Round(vec![write(0, 1)])]])
    };
    let third = program(vec![vec![Do::Round(vec![read(0, 3)])]]);
    Toy::new(&[add(), add(), third], 1, 4).objecting(|outcome| {
        let found_nothing = |actor: usize| outcome.logs[actor] == [0, 0];
        if found_nothing(0) && found_nothing(1) { Err("both found nothing".into()) } else { Ok(()) }
    })
}

#[test]
fn a_violation_replays_and_shrinks() {
    let toy = unlocked();
    let config = toy.config();
    for reduction in [Reduction::Full, Reduction::States, Reduction::None] {
        let (_, explored) = toy.outcomes(&config, reduction);
        let [violation] = &explored.violations[..] else { panic!("{explored:?}") };
        assert_eq!(explored.outcome, Extent::Bounded(Bound::Violations));
        let line = violation.schedule.to_string();
        let again = replay(&toy, &config, &line.parse().unwrap()).unwrap();
        assert_eq!(again.verdict, Err(violation.text.clone()));
        assert_eq!((&again.trace, &again.schedule), (&violation.trace, &violation.schedule));
        let small = shrink(&toy, &config, violation).unwrap();
        let again = replay(&toy, &config, &small.schedule).unwrap();
        assert_eq!(again.verdict, Err(small.text.clone()));
        let switches = |trace: &[Step]| {
            let actors: Vec<_> = trace.iter().filter_map(|step| step.actor).collect();
            actors.chunk_by(|a, b| a == b).count()
        };
        println!("{line}, shrunk to {}", small.schedule);
        assert!(switches(&small.trace) <= switches(&violation.trace));
        assert!(switches(&small.trace) <= 5, "{:?}", small.trace);
    }
}

/// The execution with the violation is the first execution that shows which lines are shared. In
/// later executions fewer pieces land immediately.
#[test]
fn a_violation_found_before_sharing_is_known_replays() {
    let actor = || program(vec![vec![Do::Round(vec![read(0, 0), write(0, 1)])]; 2]);
    let toy = Toy::new(&[actor(), actor(), actor()], 1, 4).objecting(|_| Err("no".into()));
    let config = toy.config();
    let (_, explored) = toy.outcomes(&config, Reduction::Full);
    assert_eq!((explored.progress.executions, explored.progress.restarts), (1, 0));
    let [violation] = &explored.violations[..] else { panic!("{explored:?}") };
    let again = replay(&toy, &config, &violation.schedule).unwrap();
    assert_eq!((&again.trace, &again.schedule), (&violation.trace, &violation.schedule));
}

#[test]
fn a_schedule_with_an_unavailable_choice_is_refused() {
    let toy = unlocked();
    for (line, named) in [("0-0-zz", "zz"), ("500*0", "allowed: nothing")] {
        let error = replay(&toy, &toy.config(), &line.parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains("schedule") && error.contains(named), "{error}");
    }
}

#[test]
fn bounds_are_reported() {
    let actor = program(vec![vec![
        Do::Round(vec![Op::Faa { node: 0, line: 0 }, read(0, 1)]),
        Do::Round(vec![write(0, 1)]),
    ]]);
    let toy = Toy::new(&[actor.clone(), actor.clone(), actor], 1, 4);
    let with = |bounds| {
        let config = ExploreConfig { bounds, ..toy.config() };
        toy.outcomes(&config, Reduction::Full).1.outcome
    };
    let none = Bounds::NONE;
    assert_eq!(with(none), Extent::Exhausted);
    assert_eq!(with(Bounds { executions: 3, ..none }), Extent::Bounded(Bound::Executions));
    assert_eq!(with(Bounds { states: 30, ..none }), Extent::Bounded(Bound::States));
    assert_eq!(with(Bounds { depth: 4, ..none }), Extent::Bounded(Bound::Depth));
}

#[test]
fn dead_coroutines_run_to_their_end_unseen() {
    let rounds = [vec![write(0, 0), write(0, 1)], vec![write(0, 2)]].map(Do::Round);
    let toy = Toy::new(&[program(vec![rounds.to_vec()])], 1, 4).with_post_mortem();
    let config =
        ExploreConfig { faults: FaultBudget { compute: 1, ..FaultBudget::NONE }, ..toy.config() };
    let (outcomes, _) = toy.outcomes(&config, Reduction::Full);
    // A dead actor records, for each of its rounds that has not ended, that the round was refused.
    let dead: Vec<_> = outcomes.iter().filter(|it| it.fates[0] == Fate::Dead).collect();
    assert!(dead.iter().any(|it| it.logs[0] == [0xdead, 0xdead]));
    assert!(dead.iter().any(|it| it.logs[0] == [0xdead]));
    assert!(dead.iter().all(|it| it.memory[2] == 0 || it.logs[0] == [0xdead]));
}
