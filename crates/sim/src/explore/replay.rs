//! Runs one execution again, given its schedule or its transitions.
//!
//! Invariant: transitions are taken one at a time, without any reduction. So a schedule describes the
//! same execution, whichever reduction the exploration used.

use super::Model;
use super::config::{ExploreConfig, Reduction};
use super::report::Replayed;
use super::schedule::Schedule;
use super::search::judge;
use super::trace::{Step, What};
use super::transition::Transition;
use super::world::World;
use crate::config::ConfigError;
use std::rc::Rc;

/// The largest number of transitions of one execution. A replay stops at this number of transitions.
const STEPS_MAX: u32 = 1 << 17;

/// Runs the last execution once more, transition by transition, and records it. The choices alone
/// might not lead to the same execution, because the explorer may have learned from the execution
/// that some lines are shared. After lines are known to be shared, fewer pieces land immediately.
pub(crate) fn record(model: &dyn Model, world: &Rc<World>) -> (Schedule, Vec<Step>) {
    let taken = world.taken.take();
    world.machine.borrow_mut().trace = Some(Vec::new());
    *world.recorded.borrow_mut() = Some(Vec::new());
    world.begin(model);
    for transition in taken {
        world.take(transition);
    }
    finish_notes(world)
}

fn finish_notes(world: &World) -> (Schedule, Vec<Step>) {
    let mut trace = world.machine.borrow_mut().trace.take().unwrap_or_default();
    let choices = world.recorded.borrow_mut().take().unwrap_or_default();
    if let Some(text) = &*world.panicked.borrow() {
        let number = trace.last().map_or(0, |step| step.number);
        trace.push(Step { number, actor: None, phase: "", what: What::Panicked(text.clone()) });
    }
    (Schedule { choices }, trace)
}

/// The code that chooses the transitions of an execution.
pub(crate) trait Pilot {
    /// Chooses the next transition among the enabled transitions. The result `None` leaves the choice
    /// to the default rule.
    fn next(&mut self, enabled: &[Transition]) -> Result<Option<Transition>, ConfigError>;
}

/// Runs one execution to a final state. The execution follows the pilot. If the pilot chooses no
/// transition, the execution takes the first transition that must happen.
pub(crate) fn fly(
    model: &dyn Model,
    config: &ExploreConfig,
    pilot: &mut dyn Pilot,
) -> Result<(Replayed, Vec<Transition>), ConfigError> {
    config.check()?;
    let world = World::new(&ExploreConfig { reduction: Reduction::None, ..config.clone() });
    world.load(model);
    world.machine.borrow_mut().trace = Some(Vec::new());
    *world.recorded.borrow_mut() = Some(Vec::new());
    world.begin(model);
    let (mut enabled, mut taken) = (Vec::new(), Vec::new());
    while world.panicked.borrow().is_none() && world.machine.borrow().steps < STEPS_MAX {
        world.machine.borrow().enabled(&mut enabled);
        let is_over = world.machine.borrow().is_over(&enabled);
        let next = match pilot.next(&enabled)? {
            Some(transition) => transition,
            None if is_over => break,
            None => {
                let must = |it: &&Transition| !world.machine.borrow().is_over(&[**it]);
                *enabled.iter().find(must).expect("an execution that is not over has such a step")
            }
        };
        world.take(next);
        taken.push(next);
    }
    let (schedule, trace) = finish_notes(&world);
    let panicked = world.panicked.borrow_mut().take();
    let verdict = match panicked {
        Some(text) => Err(format!("a coroutine panicked: {text}")),
        None => judge(model, &world).0,
    };
    world.drop_coroutines();
    Ok((Replayed { trace, verdict, schedule }, taken))
}

/// A pilot that chooses transitions by their positions among the enabled transitions.
struct ByPlace<'a> {
    schedule: &'a Schedule,
    next: usize,
}

/// Returns a choice in the notation of schedules.
fn as_written(choice: u32) -> String {
    Schedule { choices: vec![choice] }.to_string()
}

impl Pilot for ByPlace<'_> {
    fn next(&mut self, enabled: &[Transition]) -> Result<Option<Transition>, ConfigError> {
        let Some(&choice) = self.schedule.choices.get(self.next) else { return Ok(None) };
        let found = enabled.get(choice as usize).copied();
        self.next += 1;
        found.map(Some).ok_or_else(|| ConfigError {
            field: "schedule",
            value: format!("{} as choice {}", as_written(choice), self.next),
            allowed: match enabled.len() {
                0 => "nothing, because the execution has ended there".to_string(),
                count => format!("0 to {} (numbers of base 36)", as_written(count as u32 - 1)),
            },
        })
    }
}

/// Runs one schedule, as [`super::replay`] does.
pub(crate) fn by_schedule(
    model: &dyn Model,
    config: &ExploreConfig,
    schedule: &Schedule,
) -> Result<Replayed, ConfigError> {
    Ok(fly(model, config, &mut ByPlace { schedule, next: 0 })?.0)
}
