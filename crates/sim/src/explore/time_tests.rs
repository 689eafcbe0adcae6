//! The rule of windows and waits against time itself.
//!
//! Invariant checked: a sequence of steps with its answers either has moments at which it could have happened, or it has not: that
//! is a system of differences between moments, decided by itself. Whatever is possible is offered; as long as no other window was
//! found shorter, nothing else is.

use super::config::Planted;
use super::time::{Asked, Time, TimeStep};
use rand::RngExt as _;
use tarn_fabric::rng::{Rng, seeded};

const ACTORS: u8 = 4;
const STEPS: usize = 24;
/// Of one unit of length: more than there are steps, each of which takes some time.
const UNIT: i64 = 1_000;

/// Steps and what is known of the time between two of them: the second is at most so long after the first.
#[derive(Default)]
struct Run {
    moments: usize,
    at_most: Vec<(usize, usize, i64)>,
}

impl Run {
    /// One more step, after all others; its number.
    fn step(&mut self) -> usize {
        if self.moments > 0 {
            self.at_most.push((self.moments, self.moments - 1, -1));
        }
        self.moments += 1;
        self.moments - 1
    }

    fn at_least(&mut self, from: usize, to: usize, units: u64) {
        self.at_most.push((to, from, -(units as i64) * UNIT));
    }

    fn shorter(&mut self, from: usize, to: usize, units: u64) {
        self.at_most.push((from, to, units as i64 * UNIT - 1));
    }

    /// Whether there are such moments: no cycle of differences is negative (Bellman and Ford).
    fn is_possible(&self) -> bool {
        let mut moments = vec![0i64; self.moments];
        for _ in 0..=self.moments {
            let mut is_stable = true;
            for &(from, to, most) in &self.at_most {
                if moments[from] + most < moments[to] {
                    (moments[to], is_stable) = (moments[from] + most, false);
                }
            }
            if is_stable {
                return true;
            }
        }
        false
    }
}

/// What was counted.
#[derive(Default, Debug)]
struct Counts {
    shorter: u64,
    refused: u64,
    /// Offered although it is not possible, beside another window that was found shorter.
    alarms: u64,
    /// Of them, such as no wait was shorter than a lease, and such as all had one length.
    alarms_of_leases: u64,
    alarms_of_one: u64,
}

/// How long leases and waits are.
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
    run: Run,
    open: [Open; ACTORS as usize],
    has_shorter: bool,
    lengths: Lengths,
}

impl Scene {
    /// A step of an actor; what was wrong with it.
    fn step(&mut self, rng: &mut Rng, counts: &mut Counts) -> Result<(), &'static str> {
        let actor = rng.random_range(0..ACTORS);
        let mine = self.open[usize::from(actor)];
        match (rng.random_range(0..2), mine.window, mine.wait) {
            (0, None, _) => {
                self.take(actor, Asked::Open, TimeStep::Open);
                self.open[usize::from(actor)].window = Some(self.run.moments - 1);
            }
            (0, Some(since), _) => return self.close(actor, since, rng, counts),
            (_, _, None) => {
                self.take(actor, Asked::Begin, TimeStep::Begin);
                self.open[usize::from(actor)].wait = Some(self.run.moments - 1);
            }
            (_, _, Some(since)) => {
                let is_any = self.lengths == Lengths::Any;
                let length = if is_any { rng.random_range(1..4) } else { 3 };
                self.take(actor, Asked::End { length_ns: length }, TimeStep::End);
                self.run.at_least(since, self.run.moments - 1, length);
                self.open[usize::from(actor)].wait = None;
            }
        }
        Ok(())
    }

    fn take(&mut self, actor: u8, asked: Asked, step: TimeStep) {
        self.run.step();
        self.time.ask(actor, asked);
        self.time.take(actor, step);
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
        let is_possible = self.run.is_possible();
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
            self.run.at_most.pop();
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
        let (run, open) = (Run::default(), [Open::default(); ACTORS as usize]);
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
fn what_time_allows_is_offered_and_one_window_is_offered_nothing_else() {
    let (verdict, counts) = hold_against_time(None, 20_000);
    println!("{counts:?}");
    assert_eq!(verdict, Ok(()));
    // One wait across two windows that overlap, say, and is as long as both together.
    assert!(counts.alarms_of_leases > 0 && counts.alarms_of_one == 0, "{counts:?}");
    assert!(counts.shorter > 10_000 && counts.refused > 1_000, "{counts:?}");
}

#[test]
fn mistakes_in_the_rule_are_noticed() {
    for (planted, wrong) in [
        (Planted::WaitsForgotten, "offered, and not possible"),
        (Planted::BeginningsForgotten, "possible, and not offered"),
        (Planted::OverlapsForgotten, "possible, and not offered"),
    ] {
        let (verdict, counts) = hold_against_time(Some(planted), 20_000);
        assert_eq!(verdict, Err(wrong), "{planted:?}: {counts:?}");
    }
}
