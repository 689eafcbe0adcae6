//! Runs one execution after the other on one simulated machine (`Machine`). A `World` owns the
//! coroutines, polls them and takes transitions.
//!
//! Invariant: a `World` holds no borrow of its machine while a coroutine runs. A coroutine of a dead
//! node is never polled again. A dead node's coroutine is dropped at the end of its execution, when
//! it cannot reach the machine.

use super::Model;
use super::actor::{Coroutine, Trigger};
use super::config::{ExploreConfig, Planted};
use super::fabric::ExploreFabric;
use super::hash::{Digest, mix};
use super::machine::{Forced, Machine, Polled, Status};
use super::objects::{Kept, Object, Remains};
use super::time::TimeStep;
use super::trace::What;
use super::transition::{Footprint, Transition};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::{Context, Poll};
use tarn_fabric::address::NodeSlot;
use tarn_fabric::executor::IN_TURN;

/// The largest number of polls of a dead coroutine that runs to its end.
const LAST_POLLS_MAX: u32 = 10_000;
/// The largest number of transitions of one execution.
const STEPS_MAX: u32 = 1 << 17;

/// The machine and the coroutines of the present execution.
pub(crate) struct World {
    pub(crate) machine: RefCell<Machine>,
    coroutines: RefCell<Vec<Option<Coroutine>>>,
    names: RefCell<Vec<String>>,
    pub(super) shares: RefCell<Vec<Object>>,
    pub(super) kept: RefCell<Vec<Kept>>,
    pub(super) remains: RefCell<Option<Remains>>,
    /// The text of a panic, if a coroutine panicked.
    pub(crate) panicked: RefCell<Option<String>>,
    /// The position of each taken transition among the enabled transitions. The `World` keeps these
    /// positions only while it records an execution.
    pub(crate) recorded: RefCell<Option<Vec<u32>>>,
    /// All transitions of the execution, including the transitions that were taken without a choice.
    pub(crate) taken: RefCell<Vec<Transition>>,
}

impl World {
    pub(crate) fn new(config: &ExploreConfig) -> Rc<World> {
        Rc::new(World {
            machine: RefCell::new(Machine::new(config)),
            coroutines: RefCell::default(),
            names: RefCell::default(),
            shares: RefCell::default(),
            kept: RefCell::default(),
            remains: RefCell::default(),
            panicked: RefCell::default(),
            recorded: RefCell::default(),
            taken: RefCell::default(),
        })
    }

    /// Loads the memory. The explorer calls this function once.
    pub(crate) fn load(self: &Rc<World>, model: &dyn Model) {
        model.load(&ExploreFabric::new(Rc::clone(self)));
        self.machine.borrow_mut().memory.keep();
    }

    /// Begins an execution.
    pub(crate) fn begin(self: &Rc<World>, model: &dyn Model) {
        self.drop_coroutines();
        self.machine.borrow_mut().reset();
        if let Some(recorded) = &mut *self.recorded.borrow_mut() {
            recorded.clear();
        }
        self.taken.borrow_mut().clear();
        let actors = model.build(&ExploreFabric::new(Rc::clone(self)));
        let mut names = self.names.borrow_mut();
        names.clear();
        for actor in actors {
            self.machine.borrow_mut().admit(&actor);
            names.push(actor.name);
            self.coroutines.borrow_mut().push(Some(actor.coroutine));
        }
    }

    /// Ends the last execution and drops its coroutines. While coroutines are dropped, they cannot
    /// reach the cluster.
    pub(crate) fn drop_coroutines(&self) {
        self.machine.borrow_mut().is_detached = true;
        let coroutines = std::mem::take(&mut *self.coroutines.borrow_mut());
        drop(coroutines);
        self.shares.borrow_mut().clear();
        self.kept.borrow_mut().clear();
        *self.remains.borrow_mut() = None;
        *self.panicked.borrow_mut() = None;
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.names.borrow().clone()
    }

    /// Takes one transition, without the steps that may follow it. The transition must be enabled.
    pub(crate) fn take(&self, transition: Transition) {
        self.record(transition);
        self.machine.borrow_mut().steps += 1;
        match transition {
            Transition::Start { actor } => return self.poll(actor, true),
            Transition::Poll { actor } => return self.poll(actor, false),
            _ => {}
        }
        let machine = &mut *self.machine.borrow_mut();
        match transition {
            Transition::Piece { actor, round, verb, line } => {
                let index = machine.flights.named(actor, round).expect(
                    "the transition's round is \
                    in flight",
                );
                let mut place = None;
                machine.all_pieces(index, |it, at, _| {
                    if it == (Transition::Piece { actor, round, verb, line }) {
                        place = Some(at);
                    }
                });
                let (batch, position, line) = place.expect("the transition is enabled");
                machine.land(index, batch, position, line);
            }
            Transition::Time { actor, step } => machine.take_time(actor, step),
            Transition::Die { node } => machine.die(usize::from(node)),
            Transition::Declare { node } => machine.declare(usize::from(node)),
            Transition::MemoryDies { node } => machine.memory_dies(NodeSlot(node.into())),
            Transition::Deliver { actor, message } => {
                let index = machine.messages.named(actor, message).expect(
                    "the transition's \
                    message is under way",
                );
                machine.deliver(index);
            }
            Transition::Lose { actor, message } => {
                let index = machine.messages.named(actor, message).expect(
                    "the transition's \
                    message is under way",
                );
                machine.lose(index);
            }
            Transition::Double { actor, message } => {
                let index = machine.messages.named(actor, message).expect(
                    "the transition's \
                    message is under way",
                );
                machine.double(index);
            }
            Transition::Start { .. } | Transition::Poll { .. } => unreachable!(
                "starts and polls \
                are handled above"
            ),
        }
    }

    fn record(&self, transition: Transition) {
        self.taken.borrow_mut().push(transition);
        if let Some(recorded) = &mut *self.recorded.borrow_mut() {
            let mut enabled = Vec::new();
            self.machine.borrow().enabled(&mut enabled);
            let place = enabled.iter().position(|it| *it == transition);
            recorded.push(place.expect("only enabled transitions are taken") as u32);
        }
    }

    /// Takes a transition, and then the steps that are taken without a choice. Returns the footprint of
    /// all these steps together.
    pub(crate) fn perform(&self, transition: Transition) -> Footprint {
        {
            let machine = &mut *self.machine.borrow_mut();
            (machine.footprint, machine.forced) = (Footprint::NONE, None);
        }
        if !self.machine.borrow().config.reduction.reduces() {
            self.take(transition);
        } else if let Transition::Start { actor } = transition {
            self.start(actor);
        } else if let Transition::Die { node } = transition {
            self.die(node);
        } else if let Transition::Time { actor, step: TimeStep::Open | TimeStep::End } = transition
        {
            let from = self.machine.borrow().actors[usize::from(actor)].rounds + 1;
            self.take(transition);
            self.settle();
            self.force_landing(actor, from);
        } else {
            self.take(transition);
            self.settle();
        }
        let machine = &mut *self.machine.borrow_mut();
        if let Some(actor) = machine.time.closing().filter(|_| machine.config.reduction.reduces()) {
            machine.forced = Some(Forced::Answer(actor));
        }
        machine.footprint
    }

    /// Takes the steps that need no choice before the first choice.
    pub(crate) fn perform_nothing(&self) {
        if self.machine.borrow().config.reduction.reduces() {
            self.settle();
        }
    }

    /// Takes the start of an actor together with the first landing of a piece of the actor's rounds.
    fn start(&self, actor: u8) {
        let (declared, from) = {
            let machine = self.machine.borrow();
            let state = &machine.actors[usize::from(actor)];
            let waits = state.trigger.filter(|_| state.status == Status::Unstarted);
            let unmet = waits.filter(|trigger: &Trigger| !machine.has_happened(*trigger));
            (unmet.and_then(|it| machine.may_be_declared(it)), state.rounds + 1)
        };
        if let Some(node) = declared {
            self.take(Transition::Declare { node: node as u8 });
        }
        self.take(Transition::Start { actor });
        self.settle();
        self.force_landing(actor, from);
    }

    /// If the actor's last step may also be taken later, demands that another step of the actor
    /// follows immediately. This other step is the first landing of the actor's rounds from number
    /// `from` on, or the actor's next step of time.
    fn force_landing(&self, actor: u8, from: u32) {
        let has_shares = self.has_shares();
        let machine = &mut *self.machine.borrow_mut();
        // If a transaction has ended in this step, a later start would also end the transaction
        // later. So the explorer must not move the start.
        let has_ended =
            machine.footprint.ended && !machine.config.reduction.has(Planted::EndsForgotten);
        // A wait that begins later counts in more windows, so the explorer must not move the
        // beginning of a wait.
        let has_begun = machine.footprint.time.has_begun()
            && !machine.config.reduction.has(Planted::BeginningsMoved);
        // If the start happened later, the detached round about which the actor asks might already
        // have landed.
        let may_be_later = !has_ended && !has_begun && !machine.may_ask(actor);
        if machine.alone(has_shares) >> actor & 1 == 1 && may_be_later {
            let mut has_pieces = false;
            machine.forced_pieces(actor, from, |_| has_pieces = true);
            has_pieces |= machine.time.is_asked(actor);
            machine.forced = has_pieces.then_some(Forced::Piece(actor, from));
        }
    }

    /// Takes a death together with the start of an actor that waited for this death.
    fn die(&self, node: u8) {
        self.take(Transition::Die { node });
        self.settle();
        let machine = &mut *self.machine.borrow_mut();
        let dead = machine.lives[usize::from(node)].id;
        machine.forced =
            machine.is_awaited(Trigger::Lost(dead)).then_some(Forced::StartAfter(dead));
    }

    /// Polls coroutines and lands pieces as long as no actor can observe at which moment these steps
    /// happen.
    pub(crate) fn settle(&self) {
        let has_shares = self.has_shares();
        while self.panicked.borrow().is_none() && self.machine.borrow().steps < STEPS_MAX {
            let ready = {
                let machine = self.machine.borrow();
                let is_ready = |actor: &usize| machine.actors[*actor].status == Status::Ready;
                let mut ready = (0..machine.actors.len()).filter(is_ready).peekable();
                let alone = if ready.peek().is_some() { machine.alone(has_shares) } else { 0 };
                ready.find(|actor| alone >> actor & 1 == 1).map(|actor| actor as u8)
            };
            if let Some(actor) = ready {
                self.take(Transition::Poll { actor });
                continue;
            }
            let time = self.machine.borrow().time_at_once();
            if let Some(transition) = time {
                self.take(transition);
                continue;
            }
            let at_once = self.machine.borrow().at_once();
            let Some((transition, (index, (batch, position, line)))) = at_once else { return };
            self.record(transition);
            let machine = &mut *self.machine.borrow_mut();
            machine.steps += 1;
            machine.land(index, batch, position, line);
        }
    }

    /// Returns whether the execution has reached the bound on the number of transitions.
    pub(crate) fn is_too_long(&self) -> bool {
        self.machine.borrow().steps >= STEPS_MAX
    }

    fn poll(&self, actor: u8, is_start: bool) {
        let (before, kept_before) = (self.objects(), self.kept_before());
        let seen = self.has_shares().then(|| self.seen_by(actor, &before));
        self.machine.borrow_mut().begin_poll(actor, is_start, seen);
        let polled = self.poll_coroutine(usize::from(actor));
        self.machine.borrow_mut().end_poll(actor, polled);
        for (object, (after, before)) in self.objects().into_iter().zip(before).enumerate() {
            if after != before {
                let audience = self.audience(object);
                let machine = &mut *self.machine.borrow_mut();
                machine.footprint.shares_changed = true;
                machine.sharing.change_object(object, actor, audience);
                machine.wake(audience);
            }
        }
        if polled.is_some() {
            self.check_kept(&kept_before);
        }
        let machine = &mut *self.machine.borrow_mut();
        (machine.current, machine.gate_open) = (None, false);
    }

    /// Polls a coroutine. Returns whether the coroutine has ended, or `None` if the coroutine panicked.
    fn poll_coroutine(&self, actor: usize) -> Option<bool> {
        let taken = self.coroutines.borrow_mut()[actor].take();
        let mut coroutine = taken.expect("only coroutines that have not ended are polled");
        let mut context = Context::from_waker(IN_TURN);
        let polled = catch_unwind(AssertUnwindSafe(|| coroutine.as_mut().poll(&mut context)));
        match polled {
            Ok(Poll::Pending) => {
                self.coroutines.borrow_mut()[actor] = Some(coroutine);
                Some(false)
            }
            Ok(Poll::Ready(())) => {
                drop(coroutine);
                Some(true)
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("(no text)");
                *self.panicked.borrow_mut() = Some(text.to_string());
                // The values that the coroutine captured may be in any state after a panic. Nothing
                // reads the captured values again.
                std::mem::forget(coroutine);
                None
            }
        }
    }

    /// Runs the coroutines of dead nodes to their end. Every round of a dead node's coroutine ends in
    /// `Fenced`.
    pub(crate) fn post_mortem(&self) {
        self.machine.borrow_mut().is_detached = true;
        let count = self.coroutines.borrow().len();
        for actor in 0..count {
            if self.machine.borrow().actors[actor].status != Status::Dead {
                continue;
            }
            self.machine.borrow_mut().current = Some(actor as u8);
            for _ in 0..LAST_POLLS_MAX {
                let is_left = self.coroutines.borrow()[actor].is_some();
                if !is_left || self.poll_coroutine(actor) != Some(false) {
                    break;
                }
            }
            self.machine.borrow_mut().current = None;
        }
        self.machine.borrow_mut().is_detached = false;
    }
}

impl Machine {
    fn begin_poll(&mut self, actor: u8, is_start: bool, shares: Option<Digest>) {
        self.current = Some(actor);
        self.gate_open = is_start;
        self.forget_changed_parts();
        let group = self.life_of(actor).actors;
        self.footprint.actor(group);
        self.footprint.polled = true;
        // A coroutine may know the number of its polls. Coroutines that share local memory may know
        // the order of their polls.
        self.observe(mix(0x9011, 0));
        self.polled = Polled { news: is_start, ..Polled::default() };
        let state = &mut self.actors[usize::from(actor)];
        let (is_new, shares_seen) = (state.status == Status::Unstarted, state.shares_seen);
        if let Some(seen) = shares.filter(|seen| *seen != shares_seen) {
            state.shares_seen = seen;
            self.observe(seen);
        }
        if is_new {
            self.note(Some(actor), What::Started);
        }
    }

    fn end_poll(&mut self, actor: u8, ended: Option<bool>) {
        let Polled { waits, slept, at_gate, news } = self.polled;
        let idle_polls = if slept { self.config.idle_sleeps } else { self.config.idle_polls };
        let state = &mut self.actors[usize::from(actor)];
        state.idle = if news || waits || at_gate { 0 } else { state.idle + 1 };
        state.status = match ended {
            Some(true) => Status::Finished,
            _ if at_gate => Status::AtGate,
            _ if waits => Status::Waiting,
            _ if state.idle <= idle_polls => Status::Ready,
            _ => Status::Idle,
        };
        if state.status == Status::Finished {
            state.idle = 0;
            self.time.leave(actor);
            self.note(Some(actor), What::Finished);
        }
        let group = self.life_of(actor).actors & !(1 << actor);
        if news && group != 0 {
            self.wake(group);
        }
    }
}
