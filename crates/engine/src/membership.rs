//! Who is in the cluster: views, incarnations, leases.
//!
//! Invariant: a view's number only grows, and an incarnation is given out once. The embedded
//! cluster's membership is fixed but for incarnations; a service that changes views, expires leases
//! and revokes access implements the same trait.

use crate::outcome::UsageError;
use crate::owner::{INCARNATIONS_MAX, SLOTS_MAX};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};
use tarn_fabric::clock::Nanos;

/// A view's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ViewNumber(pub u64);

/// What the engine asks of a membership service.
pub trait Membership: Send + Sync {
    /// The current view.
    fn view(&self) -> ViewNumber;

    /// A new life for a compute node's slot.
    ///
    /// # Errors
    /// When the slot has used up its incarnations or is not one of the cluster's.
    fn join(&self, slot: NodeSlot) -> Result<NodeId, UsageError>;

    /// Whether that life of the node is still a member.
    fn is_member(&self, node: NodeId) -> bool;

    /// Until when a member may act without asking again.
    fn lease_end(&self, node: NodeId) -> Nanos;
}

/// The embedded cluster: everybody who joined stays, until the process ends.
#[derive(Default)]
pub struct EmbeddedMembership {
    view: AtomicU64,
    lives: Vec<AtomicU16>,
}

impl EmbeddedMembership {
    /// For `compute_nodes` slots.
    pub fn new(compute_nodes: usize) -> EmbeddedMembership {
        let lives = (0..compute_nodes.min(SLOTS_MAX)).map(|_| AtomicU16::new(0)).collect();
        EmbeddedMembership { view: AtomicU64::new(1), lives }
    }
}

impl Membership for EmbeddedMembership {
    fn view(&self) -> ViewNumber {
        ViewNumber(self.view.load(Ordering::Acquire))
    }

    fn join(&self, slot: NodeSlot) -> Result<NodeId, UsageError> {
        let refuse = |value: String, allowed: String| UsageError {
            field: "compute node slot".into(),
            value,
            allowed,
        };
        let lives = self.lives.get(usize::from(slot.0)).ok_or_else(|| {
            refuse(slot.0.to_string(), format!("0 to {}", self.lives.len().saturating_sub(1)))
        })?;
        let incarnation = lives.fetch_add(1, Ordering::AcqRel) + 1;
        if usize::from(incarnation) >= INCARNATIONS_MAX {
            return Err(refuse(
                format!("{} in life {incarnation}", slot.0),
                format!("at most {} lives", INCARNATIONS_MAX - 1),
            ));
        }
        Ok(NodeId { slot, incarnation: Incarnation(incarnation) })
    }

    fn is_member(&self, node: NodeId) -> bool {
        self.lives
            .get(usize::from(node.slot.0))
            .is_some_and(|lives| lives.load(Ordering::Acquire) >= node.incarnation.0)
    }

    fn lease_end(&self, _: NodeId) -> Nanos {
        Nanos(u64::MAX)
    }
}
