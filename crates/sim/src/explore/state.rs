//! The digest that identifies a state.
//!
//! Invariant: two executions that reach states with the same digest can continue in the same ways,
//! and the judge gives their final states the same verdict. The file docs/design/0011-explorer.md
//! justifies each omission from the digest.

use super::config::Planted;
use super::hash::{Digest, chain, mix};
use super::machine::{Forced, Life, Machine};

impl Machine {
    /// Adds the digest of a piece of a round that has taken effect to the state of the actor's incarnation. The
    /// coroutine that posted the round has not received the results yet.
    pub(crate) fn add_landed(&mut self, actor: u8, landed: Digest) {
        let life = self.actors[usize::from(actor)].life;
        let sum = &mut self.lives[life].landed;
        *sum = sum.wrapping_add(landed);
    }

    /// Returns the digest of an incarnation's rounds in flight, in the order in which these rounds
    /// were posted.
    fn in_flight_of(&self, life: &Life) -> Digest {
        if self.config.reduction.has(Planted::RemainsForgotten) {
            return 0;
        }
        let flights = self.flights.live.iter().map(|index| self.flights.get(*index));
        let mine = flights.filter(|flight| life.actors >> flight.actor & 1 == 1);
        mine.fold(0, |digest, flight| flight.add_pending(digest, self.flights.held_by(flight)))
    }

    /// Returns the digest of the state, without the registered objects.
    pub(crate) fn digest(&self) -> Digest {
        let mut digest = self.memory.digest;
        for (index, life) in self.lives.iter().enumerate() {
            let broke = u64::from(life.is_dead) | u64::from(life.is_declared) << 1;
            let seen = match life.left {
                None => chain(life.observed, life.landed),
                Some(left) => chain(left, self.in_flight_of(life)),
            };
            let seen = chain(seen, mix(index as u64, broke));
            digest = digest.wrapping_add(chain(seen, mix(0x11fe, index as u64)));
        }
        for (index, actor) in self.actors.iter().enumerate() {
            let is_over = self.lives[actor.life].left.is_some();
            let (idle, clock) = if is_over { (0, 0) } else { (actor.idle, actor.clock) };
            let place = (index as u64) << 40 | u64::from(idle) << 8 | actor.status as u64;
            digest = digest.wrapping_add(mix(place ^ 0xac70 << 48, clock));
        }
        let down = self.is_down.iter().fold(0, |bits, is_down| bits << 1 | u64::from(*is_down));
        let forced = match self.forced {
            None => 0,
            Some(Forced::Piece(actor, _)) => u64::from(actor) + 1,
            Some(Forced::Answer(actor)) => 2 << 32 | u64::from(actor),
            Some(Forced::StartAfter(node)) => 1 << 32 | u64::from(node.slot.0),
        };
        let mut rest = chain(mix(0xd044, down), mix(0xf0ce, forced));
        let spent = u64::from(self.spent.lost) << 32 | u64::from(self.spent.doubled);
        rest = chain(rest, mix(0x5be7, spent));
        rest = chain(rest, self.messages.digest());
        rest = chain(rest, self.time.digest());
        for sum in [self.order, self.revoked] {
            rest = chain(rest, sum);
        }
        digest.wrapping_add(rest)
    }
}
