//! Tests the rule of windows and waits against real moments of time.
//!
//! Invariant checked: [`Moments`], which does not use the rule, decides whether clocks could show a
//! sequence of steps with its answers. The rule of the explorer allows every possible answer. As long
//! as no other window was found shorter than its lease, the rule allows no impossible answer.

use super::config::Planted;
use super::moments::Moments;
use super::time::{Asked, Time, TimeStep};
use rand::RngExt as _;
use tarn_fabric::rng::{Rng, seeded};

const ACTORS: u8 = 4;
const STEPS: usize = 24;
/// The numbers of random cases of each kind.
#[derive(Default, Debug)]
struct Counts {
    shorter: u64,
    refused: u64,
    /// The number of alarms. An alarm is an impossible answer that the rule allowed after another
    /// window had been found shorter than its lease.
    alarms: u64,
    /// The number of alarms in runs in which no wait is shorter than a lease. The field
    /// `alarms_of_one` counts the alarms in runs in which all lengths are equal.
    alarms_of_leases: u64,
    alarms_of_one: u64,
}

/// The lengths of leases and waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lengths {
    Any,
    /// No wait is shorter than a lease.
    OfLeases,
    One,
}

#[derive(Clone, Copy, Default)]
struct Open {
    window: Option<usize>,
    wait: Option<usize>,
}

struct Scene {
    time: Time,
    run: Moments,
    open: [Open; ACTORS as usize],
    has_shorter: bool,
    lengths: Lengths,
}

impl Scene {
    /// Takes a step of one actor. Returns an error if the rule and [`Moments`] disagree about this
    /// step.
    fn step(&mut self, rng: &mut Rng, counts: &mut Counts) -> Result<(), &'static str> {
        let actor = rng.random_range(0..ACTORS);
        let mine = self.open[usize::from(actor)];
        match (rng.random_range(0..2), mine.window, mine.wait) {
            (0, None, _) => {
                let now = self.take(actor, Asked::Open, TimeStep::Open);
                self.open[usize::from(actor)].window = Some(now);
            }
            (0, Some(since), _) => return self.close(actor, since, rng, counts),
            (_, _, None) => {
                let now = self.take(actor, Asked::Begin, TimeStep::Begin);
                self.open[usize::from(actor)].wait = Some(now);
            }
            (_, _, Some(since)) => {
                let is_any = self.lengths == Lengths::Any;
                let length = if is_any { rng.random_range(1..4) } else { 3 };
                let now = self.take(actor, Asked::End { length_ns: length }, TimeStep::End);
                self.run.at_least(since, now, length);
                self.open[usize::from(actor)].wait = None;
            }
        }
        Ok(())
    }

    fn take(&mut self, actor: u8, asked: Asked, step: TimeStep) -> usize {
        self.time.ask(actor, asked);
        self.time.take(actor, step);
        self.run.step()
    }

    fn close(
        &mut self,
        actor: u8,
        since: usize,
        rng: &mut Rng,
        counts: &mut Counts,
    ) -> Result<(), &'static str> {
        let lease = match self.lengths {
            Lengths::Any => rng.random_range(1..8),
            Lengths::OfLeases => rng.random_range(1..4),
            Lengths::One => 3,
        };
        let now = self.run.step();
        self.time.ask(actor, Asked::Close { lease_ns: lease });
        let is_offered = self.time.steps_of(actor.into()).any(|it| it == TimeStep::Shorter);
        assert!(self.time.steps_of(actor.into()).any(|it| it == TimeStep::Longer));
        self.run.shorter(since, now, lease);
        let is_possible = self.run.are_possible();
        if is_possible && !is_offered {
            return Err("possible, and not offered");
        }
        if is_offered && !is_possible {
            if !self.has_shorter {
                return Err("offered, and not possible");
            }
            counts.alarms += 1;
            counts.alarms_of_leases += u64::from(self.lengths != Lengths::Any);
            counts.alarms_of_one += u64::from(self.lengths == Lengths::One);
        }
        counts.refused += u64::from(!is_offered);
        let is_shorter = is_possible && rng.random_range(0..4) > 0;
        if is_shorter {
            counts.shorter += 1;
            self.has_shorter = true;
        } else {
            self.run.take_back();
        }
        self.time.take(actor, if is_shorter { TimeStep::Shorter } else { TimeStep::Longer });
        self.open[usize::from(actor)].window = None;
        Ok(())
    }
}

fn hold_against_time(planted: Option<Planted>, runs: u64) -> (Result<(), &'static str>, Counts) {
    let mut counts = Counts::default();
    for seed in 0..runs {
        let mut rng = seeded(seed, 0x71e);
        let mut time = Time::default();
        time.reset(planted);
        (0..ACTORS).for_each(|_| time.admit());
        let lengths = [Lengths::Any, Lengths::OfLeases, Lengths::One][(seed % 3) as usize];
        let (run, open) = (Moments::default(), [Open::default(); ACTORS as usize]);
        let mut scene = Scene { time, run, open, has_shorter: false, lengths };
        for _ in 0..STEPS {
            if let Err(wrong) = scene.step(&mut rng, &mut counts) {
                return (Err(wrong), counts);
            }
        }
    }
    (Ok(()), counts)
}

#[test]
fn time_offers_exactly_the_possible_steps() {
    let (verdict, counts) = hold_against_time(None, 20_000);
    println!("{counts:?}");
    assert_eq!(verdict, Ok(()));
    // An alarm happens, for example, if one wait spans two overlapping windows and is as long as the
    // two windows together.
    assert!(counts.alarms_of_leases > 0 && counts.alarms_of_one == 0, "{counts:?}");
    assert!(counts.shorter > 10_000 && counts.refused > 1_000, "{counts:?}");
}

#[test]
fn mistakes_in_the_rule_of_time_are_noticed() {
    for (planted, wrong) in [
        (Planted::WaitsForgotten, "offered, and not possible"),
        (Planted::BeginningsForgotten, "possible, and not offered"),
        (Planted::OverlapsForgotten, "possible, and not offered"),
    ] {
        let (verdict, counts) = hold_against_time(Some(planted), 20_000);
        assert_eq!(verdict, Err(wrong), "{planted:?}: {counts:?}");
    }
}
