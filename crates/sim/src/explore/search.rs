//! Searches all choices depth first. Each execution runs from the start.
//!
//! Invariant: the search uses sleep sets (Godefroid, "Partial-Order Methods for the Verification of
//! Concurrent Systems", LNCS 1032, 1996, ch. 5), and explores each state once. No state occurs twice
//! on one path. A branch that is finished has already visited every state to which a sleeping
//! transition leads. So the search need not store sleep sets with states. The lines and actors that
//! two transitions touched when they were taken decide whether the transitions are independent.

use super::Model;
use super::config::{ExploreConfig, Planted, Reduction};
use super::fabric::{End, ExploreFabric};
use super::hash::Digest;
use super::machine::Status;
use super::replay;
use super::report::{ActorEnd, Bound, Explored, Fate, Outcome, Progress, Summary, Violation};
use super::table::Digests;
use super::transition::{Footprint, Transition};
use super::world::World;
use std::ops::ControlFlow;
use std::rc::Rc;

/// The largest number of transitions of one scout execution.
const SCOUT_STEPS: u32 = 4_000;
/// The number of executions after which the explorer tells the caller of its progress.
const TELL_EVERY: u64 = 256;

/// A sleeping transition, which the search has explored before, and its footprint.
#[derive(Clone, Copy)]
struct Sleeper {
    transition: Transition,
    footprint: Footprint,
}

/// A state on the path to the present state.
struct Frame {
    digest: Digest,
    chosen: Transition,
    footprint: Footprint,
    sleep: Vec<Sleeper>,
    todo: Vec<Transition>,
    /// Whether the transition to this state was a start that forced the next step. If it was, the
    /// footprints of this state's transitions are part of the footprint of that start.
    is_forced: bool,
    joined: Footprint,
}

/// A search over all choices.
pub(crate) struct Search<'a> {
    model: &'a dyn Model,
    config: &'a ExploreConfig,
    world: Rc<World>,
    frames: Vec<Frame>,
    visited: Digests,
    judged: Digests,
    progress: Progress,
    violations: Vec<Violation>,
    cut: u64,
    stuck: u64,
    enabled: Vec<Transition>,
}

impl<'a> Search<'a> {
    pub(crate) fn new(model: &'a dyn Model, config: &'a ExploreConfig) -> Search<'a> {
        Search {
            model,
            config,
            world: World::new(config),
            frames: Vec::new(),
            visited: Digests::default(),
            judged: Digests::default(),
            progress: Progress::default(),
            violations: Vec::new(),
            cut: 0,
            stuck: 0,
            enabled: Vec::new(),
        }
    }

    /// Runs the exploration until it is complete or reaches a bound.
    pub(crate) fn run(mut self, tell: &mut dyn FnMut(&Progress) -> ControlFlow<()>) -> Explored {
        self.world.load(self.model);
        self.scout();
        let bound = loop {
            self.execute();
            self.progress.executions += 1;
            if let Some(bound) = self.bound() {
                break Some(bound);
            }
            if self.progress.executions.is_multiple_of(TELL_EVERY) && tell(&self.state()).is_break()
            {
                break Some(Bound::Caller);
            }
            if self.begin_anew_if_grown() {
                if tell(&self.state()).is_break() {
                    break Some(Bound::Caller);
                }
                continue;
            }
            if !self.backtrack() {
                break None;
            }
        };
        let bound = bound.or((self.cut > 0).then_some(Bound::Depth));
        let progress = self.state();
        let _ = tell(&progress);
        self.world.drop_coroutines();
        let outcome = bound.map_or(Outcome::Exhausted, Outcome::Bounded);
        let (violations, cut, stuck) = (self.violations, self.cut, self.stuck);
        Explored { progress, outcome, violations, cut, stuck }
    }

    fn state(&self) -> Progress {
        let shared_lines = self.world.machine.borrow().sharing.count();
        Progress {
            states: self.visited.len(),
            judged: self.judged.len(),
            shared_lines,
            ..self.progress
        }
    }

    fn bound(&self) -> Option<Bound> {
        let bounds = self.config.bounds;
        if self.violations.len() as u64 >= u64::from(bounds.violations.max(1)) {
            Some(Bound::Violations)
        } else if self.progress.executions >= bounds.executions {
            Some(Bound::Executions)
        } else if self.visited.len() >= bounds.states {
            Some(Bound::States)
        } else {
            None
        }
    }

    /// Restarts the exploration if the explorer has learned that a line is shared. In this case the
    /// earlier omissions may be wrong.
    fn begin_anew_if_grown(&mut self) -> bool {
        let reduction = self.config.reduction;
        let reduces = reduction.reduces() && !reduction.has(Planted::SharingForgotten);
        let sharing = &mut self.world.machine.borrow_mut().sharing;
        let has_grown = std::mem::take(&mut sharing.has_grown) && reduces;
        if has_grown {
            self.frames.clear();
            self.visited.clear();
            self.judged.clear();
            self.progress.restarts += 1;
            (self.cut, self.stuck) = (0, 0);
        }
        has_grown
    }

    /// Runs some executions in arbitrary order. So the explorer knows most shared lines before the
    /// search begins.
    fn scout(&mut self) {
        let reduction = self.config.reduction;
        let is_frozen = reduction.has(Planted::SharingForgotten);
        self.world.machine.borrow_mut().sharing.is_frozen = is_frozen;
        if !reduction.reduces() || is_frozen {
            return;
        }
        let mut draw = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..self.config.scouts {
            self.world.begin(self.model);
            loop {
                self.world.machine.borrow().enabled(&mut self.enabled);
                let is_over = self.world.machine.borrow().is_over(&self.enabled);
                let too_long = self.world.machine.borrow().steps > SCOUT_STEPS;
                if self.world.panicked.borrow().is_some() || too_long {
                    break;
                }
                draw = draw.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                let count = self.enabled.len() as u64 + u64::from(is_over);
                match self.enabled.get(((draw >> 33) % count) as usize) {
                    Some(&transition) => self.world.take(transition),
                    None => {
                        let _ = self.judge();
                        break;
                    }
                }
            }
            self.progress.steps_new += u64::from(self.world.machine.borrow().steps);
        }
        self.world.machine.borrow_mut().sharing.has_grown = false;
    }

    /// Runs one execution: first along the path that the frames describe, and then further.
    fn execute(&mut self) {
        self.world.begin(self.model);
        self.world.perform_nothing();
        let mut steps = 0;
        for at in 0..self.frames.len() {
            assert_eq!(
                self.world.digest(),
                self.frames[at].digest,
                "the model is not a function of its schedule: the same choices led to another \
                 state"
            );
            steps = self.world.machine.borrow().steps;
            let footprint = self.world.perform(self.frames[at].chosen);
            if at + 1 == self.frames.len() {
                self.frames[at].footprint = footprint;
            }
        }
        self.progress.steps_again += u64::from(steps);
        while self.visit() {}
        self.progress.steps_new += u64::from(self.world.machine.borrow().steps - steps);
        let depth = self.frames.len() as u32;
        self.progress.depth_max = self.progress.depth_max.max(depth);
    }

    /// Visits the present state and takes the state's first unexplored choice. Returns whether the
    /// state had an unexplored choice.
    fn visit(&mut self) -> bool {
        let panicked = self.world.panicked.borrow_mut().take();
        if let Some(text) = panicked {
            self.object(format!("a coroutine panicked: {text}"));
            return false;
        }
        let depth = self.frames.len() as u32;
        let (is_forced, is_over) = {
            let machine = self.world.machine.borrow();
            machine.choices(&mut self.enabled);
            (machine.forced.is_some(), machine.is_over(&self.enabled))
        };
        if depth >= self.config.bounds.depth || self.world.is_too_long() {
            self.cut += 1;
            return false;
        }
        let digest = self.world.digest();
        let is_plain = self.config.reduction == Reduction::None;
        let is_judged = is_over && (self.judged.insert(digest) || is_plain);
        let sleep = self.inherited();
        let todo = self.left_to_do(digest, is_forced, &sleep);
        if is_judged && let Err(text) = self.judge() {
            self.object(text);
        }
        let Some((&chosen, rest)) = todo.split_last() else { return false };
        let todo = rest.to_vec();
        let (footprint, joined) = (Footprint::NONE, Footprint::NONE);
        self.frames.push(Frame { digest, chosen, footprint, sleep, todo, is_forced, joined });
        if is_judged {
            // The judge may have changed memory while it read memory. So the explorer takes this
            // choice only in the next execution.
            self.frames[depth as usize].todo.push(chosen);
            return false;
        }
        let footprint = self.world.perform(chosen);
        self.frames[depth as usize].footprint = footprint;
        true
    }

    /// Returns the transitions that sleep in the last state and also sleep in the present state. Such
    /// a transition is independent of the transition that led from the last state to the present
    /// state.
    fn inherited(&self) -> Vec<Sleeper> {
        let Some(last) = self.frames.last() else { return Vec::new() };
        let has_shares = self.world.has_shares();
        let kept = last.sleep.iter().filter(|it| !it.footprint.meets(&last.footprint));
        kept.map(|it| Sleeper { footprint: it.footprint.after(&last.footprint, has_shares), ..*it })
            .collect()
    }

    /// Returns the transitions that the search must explore in the present state, in reverse order.
    /// The list is empty if this state was explored before.
    fn left_to_do(
        &mut self,
        digest: Digest,
        is_forced: bool,
        sleep: &[Sleeper],
    ) -> Vec<Transition> {
        let is_plain = self.config.reduction == Reduction::None || is_forced;
        if !is_plain && !self.visited.insert(digest) {
            return Vec::new();
        }
        let sleeps = |it: &&Transition| !sleep.iter().any(|other| other.transition == **it);
        self.enabled.iter().rev().filter(sleeps).copied().collect()
    }

    /// Returns to the last state with an unexplored choice. The result says whether a state with an
    /// unexplored choice exists.
    fn backtrack(&mut self) -> bool {
        let full = self.config.reduction.reduces();
        while let Some(frame) = self.frames.last_mut() {
            let next = frame.todo.pop();
            if full && next != Some(frame.chosen) {
                let (transition, footprint) = (frame.chosen, frame.footprint);
                frame.sleep.push(Sleeper { transition, footprint });
                frame.joined.join(&footprint);
            }
            if let Some(next) = next {
                frame.chosen = next;
                return true;
            }
            let done = self.frames.pop().expect("the loop runs while a frame is left");
            if let Some(start) = self.frames.last_mut().filter(|_| done.is_forced) {
                start.footprint.join(&done.joined);
            }
        }
        false
    }

    fn object(&mut self, text: String) {
        let (schedule, trace) = replay::record(self.model, &self.world);
        self.violations.push(Violation { text, schedule, trace });
    }

    fn judge(&mut self) -> Result<(), String> {
        let (verdict, is_stuck) = judge(self.model, &self.world);
        self.stuck += u64::from(is_stuck);
        verdict
    }
}

/// Judges the present state, which is final. Also returns whether a coroutine is stuck in this state.
pub(crate) fn judge(model: &dyn Model, world: &Rc<World>) -> (Result<(), String>, bool) {
    let summary = {
        let machine = &mut *world.machine.borrow_mut();
        machine.is_judging = true;
        let fate = |status| match status {
            Status::Finished => Fate::Finished,
            Status::Dead => Fate::Dead,
            Status::Unstarted => Fate::NeverStarted,
            _ => Fate::Stuck,
        };
        let names = world.names().into_iter();
        let actors = names.zip(&machine.actors).map(|(name, actor)| ActorEnd {
            name,
            node: machine.lives[actor.life].id,
            fate: fate(actor.status),
        });
        Summary {
            actors: actors.collect(),
            faults: machine.faults.clone(),
            marks: machine.marks.clone(),
        }
    };
    let cluster = ExploreFabric::new(Rc::clone(world));
    let mut verdict = model.judge(&End::new(&summary, &cluster));
    if let Some(text) = world.panicked.borrow_mut().take() {
        verdict = verdict.and(Err(format!("a dead coroutine panicked: {text}")));
    }
    world.machine.borrow_mut().is_judging = false;
    (verdict, summary.actors.iter().any(|actor| actor.fate == Fate::Stuck))
}
