//! Objects outside of the cluster's memory that coroutines share, and the remains of coroutines that
//! have ended.
//!
//! Invariant: each poll of a coroutine that observes an object counts as an observation of the
//! object. The state that a compute node keeps in its local memory is observed part by part. Only
//! coroutines that report that they have read a part observe the part (module `parts`). The remains
//! of a compute node's coroutines replace these coroutines' observations only after all these
//! coroutines have stopped.

use super::hash::{Digest, chain, mix};
use super::machine::Life;
use super::world::World;
use tarn_fabric::address::{NodeId, NodeSlot};

/// A digest of an object's contents.
pub(crate) type Share = Box<dyn Fn() -> u64>;
/// The state that a compute node keeps in its local memory.
pub(crate) struct Kept {
    pub(super) node: NodeSlot,
    pub(super) digest: Share,
}

/// A digest of the remains of a compute node's coroutines.
pub(crate) type Remains = Box<dyn Fn(NodeId) -> u64>;

/// A registered object outside of the cluster's memory.
pub(crate) struct Object {
    digest: Share,
    /// The nodes whose coroutines observe the object. `None` means all nodes.
    seen_by: Option<Vec<NodeId>>,
}

impl World {
    /// Registers an object for this execution.
    pub(crate) fn share(&self, seen_by: Option<Vec<NodeId>>, digest: Share) {
        self.shares.borrow_mut().push(Object { digest, seen_by });
    }

    /// Registers the state that a compute node keeps in its local memory, for this execution.
    pub(crate) fn keep(&self, node: NodeSlot, digest: Share) {
        self.kept.borrow_mut().push(Kept { node, digest });
    }

    pub(crate) fn has_shares(&self) -> bool {
        !self.shares.borrow().is_empty()
    }

    pub(super) fn objects(&self) -> Vec<u64> {
        self.shares.borrow().iter().map(|object| (object.digest)()).collect()
    }

    fn shares_digest(&self) -> Digest {
        self.objects().into_iter().fold(0, |digest, object| chain(digest, mix(0, object)))
    }

    /// Returns the digest of the registered objects that an actor observes.
    pub(super) fn seen_by(&self, actor: u8, objects: &[u64]) -> Digest {
        let node = self.machine.borrow().life_of(actor).id;
        let shares = self.shares.borrow();
        let sees = |it: &Object| it.seen_by.as_ref().is_none_or(|nodes| nodes.contains(&node));
        let seen = shares.iter().zip(objects).filter(|(share, _)| sees(share));
        seen.fold(0, |digest, (_, object)| chain(digest, mix(0, *object)))
    }

    /// Returns the actors that observe an object, one bit per actor.
    pub(super) fn audience(&self, object: usize) -> u64 {
        let machine = self.machine.borrow();
        let seen_by = &self.shares.borrow()[object].seen_by;
        let lives = machine
            .lives
            .iter()
            .filter(|life| seen_by.as_ref().is_none_or(|nodes| nodes.contains(&life.id)));
        lives.fold(0, |actors, life| actors | life.actors)
    }

    /// Registers the digest of the coroutines' remains, for this execution.
    pub(crate) fn remains(&self, remains: Remains) {
        *self.remains.borrow_mut() = Some(remains);
    }

    /// Reads the remains of each incarnation whose coroutines have all ended. From now on the digest
    /// of the state contains only these remains for that incarnation.
    fn look_at_remains(&self) {
        let remains = self.remains.borrow();
        let machine = &mut *self.machine.borrow_mut();
        let Some(remains) = remains.as_ref().filter(|_| machine.config.reduction.reduces()) else {
            return;
        };
        let alive = machine.alive();
        let is_over = |life: &&mut Life| life.left.is_none() && life.actors & alive == 0;
        for life in machine.lives.iter_mut().filter(is_over) {
            life.left = Some(mix(0x1ef7, remains(life.id)));
        }
    }

    /// Returns the digest that identifies the state.
    pub(crate) fn digest(&self) -> Digest {
        self.look_at_remains();
        let digest = self.machine.borrow().digest();
        let digest = if self.has_shares() { chain(digest, self.shares_digest()) } else { digest };
        let kept = self.kept.borrow();
        kept.iter().fold(digest, |digest, it| chain(digest, mix(0x1e97, (it.digest)())))
    }
}
