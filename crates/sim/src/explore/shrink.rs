//! Makes a violation smaller.
//!
//! Invariant: each returned violation was run and judged. If clocks show the given one, they show the
//! returned one. Steps are left out and moved together greedily (as in Zeller and Hildebrandt,
//! "Simplifying and Isolating Failure-Inducing Input", TSE 2002). A step that must happen and was left
//! out happens at the end.

use super::Model;
use super::config::ExploreConfig;
use super::moments::has_moments;
use super::replay::{Pilot, by_schedule, fly};
use super::report::{Replayed, Violation};
use super::trace::Step;
use super::transition::Transition;
use crate::config::ConfigError;

/// Largest number of executions that are tried.
const TRIES_MAX: usize = 2_000;

/// Follows a list of transitions in its order, and skips those that are not enabled.
struct ByList<'a> {
    list: &'a [Transition],
    next: usize,
}

impl Pilot for ByList<'_> {
    fn next(&mut self, enabled: &[Transition]) -> Result<Option<Transition>, ConfigError> {
        while let Some(transition) = self.list.get(self.next) {
            self.next += 1;
            if enabled.contains(transition) {
                return Ok(Some(*transition));
            }
        }
        Ok(None)
    }
}

/// Follows a schedule and records which transitions it names.
struct Noted<'a> {
    choices: std::slice::Iter<'a, u32>,
}

impl Pilot for Noted<'_> {
    fn next(&mut self, enabled: &[Transition]) -> Result<Option<Transition>, ConfigError> {
        Ok(self.choices.next().and_then(|choice| enabled.get(*choice as usize).copied()))
    }
}

/// In order of weight: whether no clock shows it; numbers of faults, transitions, changes from one
/// actor to another.
type Size = (bool, usize, usize, usize);

fn size(list: &[Transition], trace: &[Step]) -> Size {
    let faults = list.iter().filter(|it| it.is_fault()).count();
    let switches = list.windows(2).filter(|pair| pair[0].actor() != pair[1].actor()).count();
    (!has_moments(trace), faults, list.len(), switches)
}

struct Shrinking<'a> {
    model: &'a dyn Model,
    config: &'a ExploreConfig,
    best: Vec<Transition>,
    found: Replayed,
    tries: usize,
}

impl Shrinking<'_> {
    /// Keeps a candidate if it fails and is smaller.
    fn attempt(&mut self, list: &[Transition]) -> Result<bool, ConfigError> {
        if self.tries >= TRIES_MAX {
            return Ok(false);
        }
        self.tries += 1;
        let (replayed, taken) = fly(self.model, self.config, &mut ByList { list, next: 0 })?;
        let is_smaller = size(&taken, &replayed.trace) < size(&self.best, &self.found.trace);
        if replayed.verdict.is_ok() || !is_smaller {
            return Ok(false);
        }
        (self.best, self.found) = (taken, replayed);
        Ok(true)
    }

    /// Leaves out stretches of steps, long ones first.
    fn leave_out(&mut self) -> Result<bool, ConfigError> {
        let (mut any, mut len) = (false, self.best.len() / 2);
        while len > 0 {
            let mut from = 0;
            while from < self.best.len() {
                let mut list = self.best.clone();
                list.drain(from..(from + len).min(list.len()));
                if self.attempt(&list)? {
                    any = true;
                } else {
                    from += len;
                }
            }
            len /= 2;
        }
        Ok(any)
    }

    /// Reduces changes between actors where another actor took over. Either the first actor's next
    /// stretch comes at once, or its present stretch is moved to just before that one.
    fn draw_together(&mut self) -> Result<bool, ConfigError> {
        let (mut any, mut at) = (false, 0);
        while at < self.best.len() {
            let end = stretch(&self.best, at);
            let actor = self.best[at].actor();
            let later = (end..self.best.len()).find(|it| self.best[*it].actor() == actor);
            if let Some(later) = later {
                let later_end = stretch(&self.best, later);
                let mut sooner = self.best.clone();
                sooner[end..later_end].rotate_right(later_end - later);
                let mut waiting = self.best.clone();
                waiting[at..later].rotate_left(end - at);
                if self.attempt(&sooner)? || self.attempt(&waiting)? {
                    any = true;
                    continue;
                }
            }
            at = end;
        }
        Ok(any)
    }
}

/// The end of the stretch of one actor's steps that begins at `at`.
fn stretch(list: &[Transition], at: usize) -> usize {
    let actor = list[at].actor();
    list[at..].iter().position(|it| it.actor() != actor).map_or(list.len(), |len| at + len)
}

/// See [`super::shrink`].
pub(crate) fn shrink(
    model: &dyn Model,
    config: &ExploreConfig,
    violation: &Violation,
) -> Result<Violation, ConfigError> {
    // A schedule that names a missing choice is refused here.
    by_schedule(model, config, &violation.schedule)?;
    let choices = violation.schedule.choices.iter();
    let (first, taken) = fly(model, config, &mut Noted { choices })?;
    if first.verdict.is_ok() {
        return Ok(violation.clone());
    }
    let mut it = Shrinking { model, config, best: taken, found: first, tries: 0 };
    while it.leave_out()? | it.draw_together()? {}
    let Replayed { trace, verdict: Err(text), schedule } = it.found else {
        return Ok(violation.clone());
    };
    Ok(Violation { text, schedule, trace })
}
