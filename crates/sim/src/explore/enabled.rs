//! The transitions that may happen next.
//!
//! Invariant: [`Machine::enabled`] lists every transition that the contract and the budgets allow.
//! The order of the list depends only on the execution so far. [`Machine::at_once`] and
//! [`Machine::choices`] omit some of these transitions. `docs/design/0011-explorer.md` shows why the
//! omitted orders need not be explored.

use super::actor::Trigger;
use super::config::Planted;
use super::flight::{Flight, Interest, part};
use super::machine::{Forced, Machine, Status};
use super::memory::{LineId, Memory};
use super::transition::Transition;
use tarn_fabric::round::{Verb, VerbKind};

/// The position of a piece in its flight: the batch, the position among the batch's pending verbs, and
/// the line.
pub(crate) type Place = (usize, usize, u16);

impl Machine {
    /// Lists every transition that may happen.
    pub(crate) fn enabled(&self, list: &mut Vec<Transition>) {
        list.clear();
        self.actors_enabled(list, |machine, trigger| machine.has_happened(trigger));
        for index in 0..self.flights.live.len() {
            self.pieces(self.flights.live[index], |transition, _| list.push(transition));
        }
        self.time_enabled(list);
        self.messages_enabled(list);
        self.faults_enabled(list, true);
        self.stalled_pieces(list);
    }

    /// Lists the choices that remain when [`Machine::at_once`] finds no transition.
    pub(crate) fn choices(&self, list: &mut Vec<Transition>) {
        if !self.config.reduction.reduces() {
            return self.enabled(list);
        }
        list.clear();
        match self.forced {
            None => {}
            Some(Forced::Piece(actor, from)) => {
                self.forced_pieces(actor, from, |transition| list.push(transition));
                self.time_steps(actor, |transition| list.push(transition));
                let life = self.actors[usize::from(actor)].life;
                if self.spent.compute < self.config.faults.compute && self.is_worth_dying(life) {
                    list.push(Transition::Die { node: life as u8 });
                }
                return;
            }
            Some(Forced::Answer(actor)) => {
                return self.time_steps(actor, |transition| list.push(transition));
            }
            Some(Forced::StartAfter(node)) => {
                let waits = self.waiting_for(Trigger::Lost(node));
                return list.extend(waits.map(|actor| Transition::Start { actor }));
            }
        }
        self.actors_enabled(list, |machine, trigger| {
            machine.has_happened(trigger) || machine.may_be_declared(trigger).is_some()
        });
        for index in 0..self.flights.live.len() {
            self.pieces(self.flights.live[index], |transition, _| list.push(transition));
        }
        self.time_enabled(list);
        self.messages_enabled(list);
        self.faults_enabled(list, false);
        self.stalled_pieces(list);
    }

    /// Calls `each` for the pieces of the actor's rounds that may land. Rounds with numbers below
    /// `from` are omitted.
    pub(crate) fn forced_pieces(&self, actor: u8, from: u32, mut each: impl FnMut(Transition)) {
        for &index in &self.flights.live {
            let flight = self.flights.get(index);
            if flight.actor == actor && flight.number >= from {
                self.pieces(index, |transition, _| each(transition));
            }
        }
    }

    /// Returns whether the execution is over. An execution is over if only faults, pieces of dead
    /// nodes, and starts whose trigger has not happened remain.
    pub(crate) fn is_over(&self, enabled: &[Transition]) -> bool {
        enabled.iter().all(|transition| match *transition {
            Transition::Piece { actor, .. } => self.life_of(actor).is_dead,
            Transition::Start { actor } => {
                let trigger = self.actors[usize::from(actor)].trigger;
                !trigger.is_none_or(|trigger| self.has_happened(trigger))
            }
            Transition::Poll { .. } | Transition::Deliver { .. } | Transition::Time { .. } => false,
            _ => true,
        })
    }

    fn actors_enabled(
        &self,
        list: &mut Vec<Transition>,
        may_start: impl Fn(&Machine, Trigger) -> bool,
    ) {
        for (index, state) in self.actors.iter().enumerate() {
            let actor = index as u8;
            match state.status {
                Status::Unstarted if state.trigger.is_none_or(|it| may_start(self, it)) => {
                    list.push(Transition::Start { actor });
                }
                Status::AtGate => list.push(Transition::Start { actor }),
                Status::Ready => list.push(Transition::Poll { actor }),
                _ => {}
            }
        }
    }

    /// Calls `each` for the pieces of a flight that may land next, with their places in the flight. The
    /// list omits READs that watch a word that has not changed.
    pub(crate) fn pieces(&self, index: u32, mut each: impl FnMut(Transition, Place)) {
        self.all_pieces(index, |transition, place, waits| {
            if !waits {
                each(transition, place);
            }
        });
    }

    /// If nothing else can happen, lists the READs that watch an unchanged word. When the explorer
    /// executes such a READ, the READ's coroutine learns that time has passed.
    fn stalled_pieces(&self, list: &mut Vec<Transition>) {
        if !self.is_over(list) {
            return;
        }
        for &index in &self.flights.live {
            self.all_pieces(index, |transition, _, waits| {
                if waits {
                    list.push(transition);
                }
            });
        }
    }

    /// Returns whether a verb is a READ that watches a word that has not changed.
    pub(crate) fn watches_in_vain(&self, verb: &Verb) -> bool {
        let place = || self.memory.place(verb.target, 8).expect("checked when posted");
        verb.has(Verb::WATCHES) && self.memory.word(place()) == verb.expected
    }

    /// Calls `each` for all pieces of a flight that may land next. The last argument says whether the
    /// piece watches a word that has not changed.
    pub(crate) fn all_pieces(&self, index: u32, mut each: impl FnMut(Transition, Place, bool)) {
        let flight = self.flights.get(index);
        let (actor, round) = (flight.actor, flight.number);
        for (at, batch) in flight.batches().iter().enumerate() {
            let (first, overtaking) = batch.next();
            if first.is_none() || self.flights.is_held(flight, batch.node) {
                continue;
            }
            for position in [first, overtaking].into_iter().flatten() {
                let pending = batch.pending[position];
                let is_verb = flight.revokes.is_none();
                let waits = is_verb
                    && self.watches_in_vain(&flight.round.verbs()[usize::from(pending.verb)]);
                let mut lines = pending.lines;
                while lines != 0 {
                    let line = lines.trailing_zeros() as u16;
                    lines &= lines - 1;
                    let transition = Transition::Piece { actor, round, verb: pending.verb, line };
                    each(transition, (at, position, line), waits);
                }
            }
        }
    }

    fn messages_enabled(&self, list: &mut Vec<Transition>) {
        let budget = self.config.faults;
        for it in &self.messages.sent {
            let is_there =
                |life: &super::machine::Life| life.id.slot == it.to.node && !life.is_dead;
            if !self.lives.iter().any(is_there) {
                continue;
            }
            let (actor, message) = (it.actor, it.number);
            list.push(Transition::Deliver { actor, message });
            if self.spent.lost < budget.messages_lost {
                list.push(Transition::Lose { actor, message });
            }
            if self.spent.doubled < budget.messages_doubled && !it.is_doubled {
                list.push(Transition::Double { actor, message });
            }
        }
    }

    fn faults_enabled(&self, list: &mut Vec<Transition>, declared_alone: bool) {
        let budget = self.config.faults;
        for life in 0..self.lives.len() {
            let node = life as u8;
            if self.spent.compute < budget.compute && self.is_worth_dying(life) {
                list.push(Transition::Die { node });
            }
            let trigger = Trigger::Lost(self.lives[life].id);
            if declared_alone && self.may_be_declared(trigger).is_some() {
                list.push(Transition::Declare { node });
            }
        }
        if self.spent.memory < budget.memory {
            let nodes = (0..self.is_down.len()).filter(|node| !self.is_down[*node]);
            list.extend(nodes.map(|node| Transition::MemoryDies { node: node as u8 }));
        }
    }

    /// Returns whether a death of this node would change which transitions are possible. The death
    /// changes the possible transitions if the node has unfinished work, or if an actor waits for the
    /// death.
    fn is_worth_dying(&self, life: usize) -> bool {
        let it = &self.lives[life];
        let is_under_way = |actor: usize| {
            let state = &self.actors[actor];
            let is_to_come = state.trigger.is_some_and(|it| !self.has_happened(it));
            it.actors >> actor & 1 == 1
                && !matches!(state.status, Status::Finished | Status::Dead)
                && !(state.status == Status::Unstarted && is_to_come)
        };
        let in_flight = || {
            self.flights
                .live
                .iter()
                .any(|index| it.actors >> self.flights.get(*index).actor & 1 == 1)
        };
        !it.is_dead
            && !it.is_spared
            && (self.is_awaited(Trigger::Lost(it.id))
                || (0..self.actors.len()).any(is_under_way)
                || in_flight())
    }

    /// Returns the actors that may start when the event `trigger` has happened, and that have not
    /// started yet.
    fn waiting_for(&self, trigger: Trigger) -> impl Iterator<Item = u8> {
        let waits = move |actor: &super::machine::ActorState| {
            actor.status == Status::Unstarted && actor.trigger == Some(trigger)
        };
        (0..self.actors.len() as u8).filter(move |index| waits(&self.actors[usize::from(*index)]))
    }

    pub(crate) fn is_awaited(&self, trigger: Trigger) -> bool {
        self.waiting_for(trigger).next().is_some()
    }

    /// Returns whether the event that a conditional actor waits for has happened.
    pub(crate) fn has_happened(&self, trigger: Trigger) -> bool {
        match trigger {
            Trigger::Lost(node) => {
                self.lives.iter().any(|life| life.id == node && (life.is_dead || life.is_declared))
            }
            Trigger::MemoryLost(node) => {
                self.is_down.get(usize::from(node.0)).copied().unwrap_or(false)
            }
        }
    }

    /// Returns the node whose declaration as dead would make the event `trigger` happen, if this
    /// declaration is still possible.
    pub(crate) fn may_be_declared(&self, trigger: Trigger) -> Option<usize> {
        let Trigger::Lost(node) = trigger else { return None };
        let may = self.spent.zombie < self.config.faults.zombie && self.is_awaited(trigger);
        let alive = |life: &super::machine::Life| {
            life.id == node && !life.is_dead && !life.is_declared && !life.is_spared
        };
        self.lives.iter().position(alive).filter(|_| may)
    }

    /// Returns whether the event that a conditional actor waits for has happened or may still happen.
    fn may_happen(&self, trigger: Trigger) -> bool {
        let budget = self.config.faults;
        self.has_happened(trigger)
            || match trigger {
                Trigger::Lost(node) => {
                    let may_die = self.spent.compute < budget.compute
                        && self.lives.iter().any(|life| life.id == node && !life.is_spared);
                    may_die || self.may_be_declared(trigger).is_some()
                }
                Trigger::MemoryLost(_) => self.spent.memory < budget.memory,
            }
    }

    /// Returns the actors that may be polled once more, one bit per actor.
    pub(crate) fn alive(&self) -> u64 {
        let is_over = |state: &super::machine::ActorState| match state.status {
            Status::Finished | Status::Dead => true,
            Status::Unstarted => state.trigger.is_some_and(|it| !self.may_happen(it)),
            _ => false,
        };
        let all = self.actors.iter().enumerate();
        all.fold(0, |alive, (index, state)| alive | u64::from(!is_over(state)) << index)
    }

    /// Returns the actors whose polls no other actor can observe, and which observe no effect of
    /// other actors' polls. For such an actor, no other live actor shares its local memory, and no
    /// message is sent. No other actor changes a registered object or a part of local memory that
    /// such an actor observes. Nor does such an actor change an object or a part that another actor
    /// observes.
    pub(crate) fn alone(&self, has_shares: bool) -> u64 {
        if self.sharing.has_messages {
            return 0;
        }
        let alive = self.alive();
        let is_alone = |actor: usize| {
            let mine = 1u64 << actor;
            let others = alive & !mine;
            let is_apart = || !has_shares || self.sharing.is_apart(mine, others);
            let forgets = self.config.reduction.has(Planted::ObjectsForgotten);
            self.lives[self.actors[actor].life].actors & others == 0
                && (forgets || is_apart())
                && self.sharing.is_apart_in_parts(actor as u8, others)
        };
        (0..self.actors.len()).fold(0, |all, actor| all | u64::from(is_alone(actor)) << actor)
    }

    /// Returns a piece that lands without a choice, because no actor can tell when it lands. The
    /// function returns pieces on private lines, and READs of dead nodes.
    pub(crate) fn at_once(&self) -> Option<(Transition, (u32, Place))> {
        let forgets = self.config.reduction.has(Planted::LeftoversForgotten);
        let leftovers = if forgets { 0 } else { self.flights.actors() };
        let users = self.alive() | leftovers;
        for &index in &self.flights.live {
            let flight = self.flights.get(index);
            if flight.revokes.is_some() {
                continue;
            }
            let is_fickle = self.is_fickle(flight);
            let mut found = None;
            self.pieces(index, |transition, place| {
                if found.is_none() && self.is_private(flight, transition, (is_fickle, users)) {
                    found = Some((transition, (index, place)));
                }
            });
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Returns whether an actor can observe when the pieces of a round land. An actor can observe
    /// this moment if the round may still end in an error although its pieces could land. An actor
    /// can also observe this moment if it asks whether a detached round is done, before or after the
    /// round.
    fn is_fickle(&self, flight: &Flight) -> bool {
        let life = self.life_of(flight.actor);
        let may_be_fenced = !life.is_dead && self.sharing.is_revoked_alive(life.id);
        if self.may_ask(flight.actor) {
            return true;
        }
        let may_be_refused = self.spent.memory < self.config.faults.memory || may_be_fenced;
        may_be_refused && !self.config.reduction.has(Planted::RefusalsForgotten)
    }

    /// Returns whether the actor has a detached round in flight about which the actor may have asked.
    pub(crate) fn may_ask(&self, actor: u8) -> bool {
        let is_asked_for = |index: &u32| {
            let flight = self.flights.get(*index);
            flight.interest == Interest::Detached && flight.actor == actor
        };
        self.sharing.has_asks
            && !self.config.reduction.has(Planted::AskingForgotten)
            && self.flights.live.iter().any(is_asked_for)
    }

    fn is_private(
        &self,
        flight: &Flight,
        transition: Transition,
        (is_fickle, users): (bool, u64),
    ) -> bool {
        let Transition::Piece { verb, line, .. } = transition else { return false };
        let verb = &flight.round.verbs()[usize::from(verb)];
        let life = self.life_of(flight.actor);
        let is_read = verb.kind() == VerbKind::Read;
        if life.is_dead && is_read {
            return true;
        }
        let place = self.memory.place(verb.target, verb.len_bytes()).expect("checked when posted");
        let offset =
            if is_read || verb.kind() == VerbKind::Write { part(verb, line).start } else { 0 };
        let line = Memory::line(place + offset);
        let may_die = self.spent.compute < self.config.faults.compute && !life.is_spared;
        let may_die = may_die && !self.config.reduction.has(Planted::DeathsForgotten);
        let is_missed = !is_read && self.sharing.is_judged(line) && (life.is_dead || may_die);
        let others = users & !(1 << flight.actor);
        !is_fickle && !is_missed && !self.sharing.is_disputed(line, !is_read, others)
    }

    /// Handles a round that is posted. If a line may see the accesses of one actor in several orders,
    /// the function marks the line as shared.
    pub(crate) fn mark_own(&mut self, index: u32) {
        if self.config.reduction.has(Planted::OvertakingForgotten) {
            return;
        }
        let flight = self.flights.get(index);
        let mut found = Vec::new();
        let verbs = flight.round.verbs();
        let writes = verbs.iter().enumerate().filter(|(_, verb)| verb.is(VerbKind::Write));
        for (at, write) in writes.filter(|(_, verb)| !verb.has(Verb::FENCED)) {
            let overtaken = verbs[..at].iter().filter(|verb| !verb.is(VerbKind::Write));
            overtaken.for_each(|verb| self.common_lines(verb, write, &mut found));
        }
        for other in self.flights.live.iter().map(|other| self.flights.get(*other)) {
            let is_behind = other.before.is_some() && other.connection == flight.connection;
            let is_mine = other.actor == flight.actor && other.number != flight.number;
            if !is_mine || is_behind || other.is_done() || other.revokes.is_some() {
                continue;
            }
            for (mine, theirs) in
                verbs.iter().flat_map(|mine| other.round.verbs().iter().map(move |it| (mine, it)))
            {
                self.common_lines(mine, theirs, &mut found);
            }
        }
        found.into_iter().for_each(|line| self.sharing.dispute(line));
    }

    fn common_lines(&self, a: &Verb, b: &Verb, found: &mut Vec<LineId>) {
        let lines = |verb: &Verb| {
            let place = self.memory.place(verb.target, verb.len_bytes())?;
            let last = place + verb.len_bytes().max(1) - 1;
            Some((Memory::line(place).0, Memory::line(last).0))
        };
        if let (Some(a), Some(b)) = (lines(a), lines(b)) {
            found.extend((a.0.max(b.0)..=a.1.min(b.1)).map(LineId));
        }
    }
}
