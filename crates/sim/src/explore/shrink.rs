//! Makes a violation smaller.
//!
//! Invariant: the returned violation was run, and the judge objected to it. If clocks can show the
//! given violation, clocks can also show the returned violation. The module greedily omits steps, and
//! moves the steps of one actor together (as in Zeller and Hildebrandt, "Simplifying and Isolating
//! Failure-Inducing Input", TSE 2002). If an omitted step must happen, the execution takes this step
//! at the end.

use super::Model;
use super::config::ExploreConfig;
use super::moments::has_moments;
use super::replay::{Pilot, by_schedule, fly};
use super::report::{Replayed, Violation};
use super::trace::Step;
use super::transition::Transition;
use crate::config::ConfigError;

/// The largest number of executions that the module tries for one violation.
const TRIES_MAX: usize = 2_000;

/// A pilot that follows a list of transitions in order and skips the transitions that are not enabled.
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

/// A pilot that follows a schedule and records which transitions the schedule names.
struct Noted<'a> {
    choices: std::slice::Iter<'a, u32>,
}

impl Pilot for Noted<'_> {
    fn next(&mut self, enabled: &[Transition]) -> Result<Option<Transition>, ConfigError> {
        Ok(self.choices.next().and_then(|choice| enabled.get(*choice as usize).copied()))
    }
}

/// The size of a violation, which has four values. The first and most important value says whether no
/// clock can show the violation. Then follow the numbers of faults, of transitions, and of changes
/// between actors.
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
    /// Runs a candidate list. Keeps the list if the judge still objects to the execution and the
    /// execution is smaller.
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

    /// Tries to omit ranges of successive steps, long ranges first.
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

    /// Reduces the number of changes between actors. At each change the function moves one of two
    /// runs of steps of one actor, so that the two runs become adjacent. The function moves either
    /// the actor's later run back to the earlier run, or the earlier run forward to the later run.
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

/// Returns the end of the run of one actor's steps that begins at `at`.
fn stretch(list: &[Transition], at: usize) -> usize {
    let actor = list[at].actor();
    list[at..].iter().position(|it| it.actor() != actor).map_or(list.len(), |len| at + len)
}

/// Shrinks one violation, as [`super::shrink`] does.
pub(crate) fn shrink(
    model: &dyn Model,
    config: &ExploreConfig,
    violation: &Violation,
) -> Result<Violation, ConfigError> {
    // The call of `by_schedule` returns an error if the schedule names a choice that does not exist.
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
