//! The memory nodes that hold each replica group, in one configuration.
//!
//! Invariant: the node at position 0 is the primary. Locks are held only at the primary, and transactions read from
//! the primary. In the list of nodes, the primary is followed by the other members of the group, then by the nodes
//! whose copies are still joining. Transactions send every WRITE of log and data to joining copies too. Transactions
//! never read joining copies, and recovery does not use them for its decisions. A map is immutable. A new
//! configuration has a new map (`configuration` of the engine).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tarn_fabric::address::{Address, GroupId, NodeSlot, Target};

/// The memory nodes that have a copy of one group.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Copies {
    /// The nodes: the primary first, then the other members, then the joining nodes.
    nodes: Vec<NodeSlot>,
    /// The number of nodes, from the first node on, that are members of the group.
    members: usize,
}

/// The map from replica groups to memory nodes: for each group, its nodes, with the primary first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaGroups {
    groups: Vec<Copies>,
}

impl ReplicaGroups {
    /// Creates a map from the nodes of every group, with the primary first. All given nodes become members of their
    /// group.
    ///
    /// # Panics
    /// If the list has no group, or a group has no node.
    pub fn new(groups: Vec<Vec<NodeSlot>>) -> ReplicaGroups {
        assert!(!groups.is_empty());
        let copies = |nodes: Vec<NodeSlot>| {
            assert!(!nodes.is_empty(), "a primary in every group");
            Copies { members: nodes.len(), nodes }
        };
        ReplicaGroups { groups: groups.into_iter().map(copies).collect() }
    }

    /// The copies of a group. If the group does not exist, the caller has read its number from damaged memory. For a
    /// group that does not exist, the function returns the copies of the first group. The fabric refuses an access to
    /// the unknown group there, because the nodes of the first group do not have the unknown group.
    #[inline]
    fn of(&self, group: GroupId) -> &Copies {
        self.groups.get(usize::from(group.0)).unwrap_or(&self.groups[0])
    }

    /// The number of groups.
    #[inline]
    pub fn count(&self) -> usize {
        self.groups.len()
    }

    /// The number of copies of `group`, including joining copies.
    #[inline]
    pub fn replicas(&self, group: GroupId) -> usize {
        self.of(group).nodes.len()
    }

    /// The members of the group, with the primary first.
    pub fn members(&self, group: GroupId) -> &[NodeSlot] {
        let Copies { nodes, members } = self.of(group);
        &nodes[..*members]
    }

    /// The nodes whose copies of the group are not complete yet.
    pub fn joining(&self, group: GroupId) -> &[NodeSlot] {
        let Copies { nodes, members } = self.of(group);
        &nodes[*members..]
    }

    /// Whether any group has a copy that is not complete yet.
    pub fn is_joining(&self) -> bool {
        self.groups.iter().any(|copies| copies.members < copies.nodes.len())
    }

    /// Returns the target for a verb to `address` at the primary of the address's group.
    #[inline]
    pub fn primary(&self, address: Address) -> Target {
        address.at(self.of(address.group()).nodes[0])
    }

    /// Returns the target for a verb to `address` at the copy with number `position`. Position 0 is the primary.
    #[inline]
    pub fn replica(&self, address: Address, position: usize) -> Target {
        address.at(self.of(address.group()).nodes[position])
    }

    /// Returns the targets for verbs to `address` at every copy, with the primary first. A WRITE goes to all these
    /// targets.
    #[inline]
    pub fn all(&self, address: Address) -> impl Iterator<Item = Target> + '_ {
        self.of(address.group()).nodes.iter().map(move |&node| address.at(node))
    }

    /// Returns the targets for verbs to `address` at every member of the group, with the primary first. Recovery uses
    /// the copies of members for its decisions.
    pub fn counted(&self, address: Address) -> impl Iterator<Item = Target> + '_ {
        self.members(address.group()).iter().map(move |&node| address.at(node))
    }

    /// Returns the targets for verbs to `address` at every copy except the primary.
    #[inline]
    pub fn backups(&self, address: Address) -> impl Iterator<Item = Target> + '_ {
        self.all(address).skip(1)
    }

    /// All memory nodes of the map, in ascending order.
    pub fn nodes(&self) -> Vec<NodeSlot> {
        let nodes = self.groups.iter().flat_map(|copies| copies.nodes.iter().copied());
        let mut nodes: Vec<NodeSlot> = nodes.collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Returns the map without `node`. In each group whose primary was `node`, the next member becomes the primary.
    /// Returns `None` if a group has no member except `node`, because then the bytes of that group are lost.
    pub fn without(&self, node: NodeSlot) -> Option<ReplicaGroups> {
        let mut map = self.clone();
        for copies in &mut map.groups {
            let members = copies.nodes[..copies.members].iter().filter(|&&it| it != node).count();
            copies.nodes.retain(|&it| it != node);
            copies.members = members;
        }
        map.groups.iter().all(|copies| copies.members > 0).then_some(map)
    }

    /// Returns the map with another member of `group` as its primary.
    ///
    /// # Panics
    /// If the node is not a member of the group.
    #[must_use]
    pub fn with_primary(&self, group: GroupId, node: NodeSlot) -> ReplicaGroups {
        let position = self.members(group).iter().position(|&it| it == node);
        let mut map = self.clone();
        map.groups[usize::from(group.0)].nodes.swap(
            0,
            position.expect(
                "the node is a member of \
            the group",
            ),
        );
        map
    }

    /// Returns the map with one more copy of `group`, which begins to join on `node`.
    ///
    /// # Panics
    /// If the node already has a copy of the group.
    #[must_use]
    pub fn with_joining(&self, group: GroupId, node: NodeSlot) -> ReplicaGroups {
        let mut map = self.clone();
        let nodes = &mut map.groups[usize::from(group.0)].nodes;
        assert!(!nodes.contains(&node), "{node:?} holds {group:?} already");
        nodes.push(node);
        map
    }

    /// Returns a map in which the numbers of primaries per node are as even as possible. `balanced` makes another
    /// member the primary in one group at a time, until no such change makes the numbers more even.
    #[must_use]
    pub fn balanced(&self) -> ReplicaGroups {
        let mut map = self.clone();
        while let Some((group, position)) = map.heavy() {
            map.groups[group].nodes.swap(0, position);
        }
        map
    }

    /// Returns a group whose primary node is the primary of at least two groups more than another member. Also
    /// returns the position of the member that is the primary of the fewest groups.
    fn heavy(&self) -> Option<(usize, usize)> {
        let load = |node: NodeSlot| self.groups.iter().filter(|it| it.nodes[0] == node).count();
        self.groups.iter().enumerate().find_map(|(group, copies)| {
            let lightest = (1..copies.members).min_by_key(|&at| load(copies.nodes[at]))?;
            let is_lighter = load(copies.nodes[lightest]) + 1 < load(copies.nodes[0]);
            is_lighter.then_some((group, lightest))
        })
    }

    /// Returns the map in which every joining copy has become a member.
    #[must_use]
    pub fn joined(&self) -> ReplicaGroups {
        let mut map = self.clone();
        map.groups.iter_mut().for_each(|copies| copies.members = copies.nodes.len());
        map
    }
}

/// The data of a group that the hot path needs.
struct Brief {
    primary: Cell<NodeSlot>,
    replicas: Cell<u16>,
}

/// One thread's copy of the map of its current configuration.
///
/// Invariant: the thread's copy changes only while no transaction of the thread runs. So a transaction sees the same
/// map from its beginning to its end.
pub struct ThreadGroups {
    briefs: Box<[Brief]>,
    whole: RefCell<Rc<ReplicaGroups>>,
}

impl ThreadGroups {
    /// Creates a copy of `map`.
    pub fn new(map: &ReplicaGroups) -> ThreadGroups {
        let brief = |copies: &Copies| Brief {
            primary: Cell::new(copies.nodes[0]),
            replicas: Cell::new(copies.nodes.len() as u16),
        };
        let briefs = map.groups.iter().map(brief).collect();
        ThreadGroups { briefs, whole: RefCell::new(Rc::new(map.clone())) }
    }

    /// Makes this value a copy of another map of the same groups.
    pub fn become_copy_of(&self, map: &ReplicaGroups) {
        assert_eq!(self.count(), map.count(), "configurations have the same groups");
        for (brief, copies) in self.briefs.iter().zip(&map.groups) {
            brief.primary.set(copies.nodes[0]);
            brief.replicas.set(copies.nodes.len() as u16);
        }
        *self.whole.borrow_mut() = Rc::new(map.clone());
    }

    /// Returns the whole map. The returned value stays the same when the thread later copies another map.
    pub fn whole(&self) -> Rc<ReplicaGroups> {
        Rc::clone(&self.whole.borrow())
    }

    /// The number of groups.
    #[inline]
    pub fn count(&self) -> usize {
        self.briefs.len()
    }

    /// The number of copies of `group`, like [`ReplicaGroups::replicas`].
    #[inline]
    pub fn replicas(&self, group: GroupId) -> usize {
        usize::from(self.briefs[usize::from(group.0)].replicas.get())
    }

    /// Returns the target for a verb to `address` at the primary of its group, like [`ReplicaGroups::primary`].
    #[inline]
    pub fn primary(&self, address: Address) -> Target {
        address.at(self.briefs[usize::from(address.group().0)].primary.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> ReplicaGroups {
        let node = |slot: u16| NodeSlot(slot % 3);
        ReplicaGroups::new((0..3).map(|group| vec![node(group), node(group + 1)]).collect())
    }

    /// An address from damaged memory may name an unknown group. The map gives such an address an existing node and
    /// does not panic. The fabric then refuses the access.
    #[test]
    fn an_unknown_group_maps_to_existing_nodes() {
        let groups = ReplicaGroups::new(vec![vec![NodeSlot(2), NodeSlot(0)], vec![NodeSlot(1)]]);
        let address = Address::new(GroupId(7), 64);
        assert_eq!(groups.primary(address), address.at(NodeSlot(2)));
        assert_eq!(groups.all(address).count(), 2);
        assert_eq!(groups.members(GroupId(u16::MAX)), [NodeSlot(2), NodeSlot(0)]);
    }

    #[test]
    fn a_dead_node_leaves_and_a_spare_joins() {
        let group = GroupId;
        let less = three().without(NodeSlot(1)).expect("a member in every group");
        assert_eq!(less.members(group(0)), [NodeSlot(0)]);
        assert_eq!(less.members(group(1)), [NodeSlot(2)]);
        let more = less.with_joining(group(1), NodeSlot(3));
        assert_eq!(
            (more.members(group(1)), more.joining(group(1))),
            (&[NodeSlot(2)][..], &[NodeSlot(3)][..])
        );
        let address = Address::new(group(1), 64);
        assert_eq!((more.all(address).count(), more.counted(address).count()), (2, 1));
        assert!(more.is_joining() && !more.joined().is_joining());
        assert_eq!(more.joined().members(group(1)), [NodeSlot(2), NodeSlot(3)]);
        // A joining copy that is not complete cannot replace the last member of a group.
        assert_eq!(more.without(NodeSlot(2)), None);
    }

    #[test]
    fn primaries_are_spread_again() {
        let node = NodeSlot;
        let groups =
            (0..3).map(|group| (0..3).map(|it| node((group + it) % 3)).collect()).collect();
        let mut map = ReplicaGroups::new(groups);
        assert_eq!(map.balanced(), map, "each is primary of one group");
        map = map.without(node(0)).expect("members");
        for group in 0..3 {
            map = map.with_joining(GroupId(group), node(3));
        }
        assert_eq!(map.balanced(), map, "a copy that joins is no primary");
        let map = map.joined().balanced();
        let mut primaries = [0, 1, 2].map(|group| map.members(GroupId(group))[0]);
        primaries.sort_unstable();
        assert_eq!(primaries, [node(1), node(2), node(3)]);
        assert!((0..3).all(|group| map.members(GroupId(group)).len() == 3));
    }

    #[test]
    fn a_thread_s_copy_of_the_map_follows() {
        let thread = ThreadGroups::new(&three());
        let (held, address) = (thread.whole(), Address::new(GroupId(1), 64));
        assert_eq!(thread.primary(address).node(), NodeSlot(1));
        thread.become_copy_of(&three().without(NodeSlot(1)).expect("members"));
        assert_eq!(thread.primary(address).node(), NodeSlot(2));
        assert_eq!((thread.replicas(GroupId(1)), held.replicas(GroupId(1))), (1, 2));
    }
}
