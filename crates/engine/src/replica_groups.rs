//! Which memory nodes hold which replica group, in the current view.
//!
//! Invariant: position 0 is the primary; locks live there and there alone, and reads go there.
//! A view's map is immutable; a change of view replaces it.

use tarn_fabric::address::{Address, GroupId, NodeSlot, Target};

/// The nodes of every group, primary first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaGroups {
    groups: Vec<Vec<NodeSlot>>,
    primaries: Vec<NodeSlot>,
}

impl ReplicaGroups {
    /// From the nodes of every group, primary first.
    ///
    /// # Panics
    /// If there is no group, or a group has no node.
    pub fn new(groups: Vec<Vec<NodeSlot>>) -> ReplicaGroups {
        assert!(!groups.is_empty());
        let primaries =
            groups.iter().map(|nodes| *nodes.first().expect("a primary in every group")).collect();
        ReplicaGroups { groups, primaries }
    }

    /// How many groups there are.
    #[inline]
    pub fn count(&self) -> usize {
        self.groups.len()
    }

    /// How many copies there are of `group`.
    #[inline]
    pub fn replicas(&self, group: GroupId) -> usize {
        self.groups[usize::from(group.0)].len()
    }

    /// The address at its primary.
    #[inline]
    pub fn primary(&self, address: Address) -> Target {
        address.at(self.primaries[usize::from(address.group().0)])
    }

    /// The address at the replica at `position`; 0 is the primary.
    #[inline]
    pub fn replica(&self, address: Address, position: usize) -> Target {
        address.at(self.groups[usize::from(address.group().0)][position])
    }

    /// The address at every replica, primary first.
    #[inline]
    pub fn all(&self, address: Address) -> impl Iterator<Item = Target> + '_ {
        self.groups[usize::from(address.group().0)].iter().map(move |&node| address.at(node))
    }

    /// The address at every backup.
    #[inline]
    pub fn backups(&self, address: Address) -> impl Iterator<Item = Target> + '_ {
        self.all(address).skip(1)
    }

    /// Every memory node, ascending.
    pub fn nodes(&self) -> Vec<NodeSlot> {
        let mut nodes: Vec<NodeSlot> = self.groups.iter().flatten().copied().collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}
