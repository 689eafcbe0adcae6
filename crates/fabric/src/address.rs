//! Names of nodes, replica groups, and bytes of remote memory.
//!
//! Invariant: an address never holds a pointer. An address consists of a replica group and an offset. Every replica
//! of a group stores the same bytes at the same offsets. So the same address is valid at the primary, at all backups,
//! and in another process that maps the same memory at another place.
//!
//! ```text
//! Address   63        48 47         36 35                                   0
//!          |  (zero)    |   group 12  |              offset 36               |
//! Target   63        48 47         36 35                                   0
//!          |  node 16   |   group 12  |              offset 36               |
//! ```

use std::fmt;

/// The number of bytes of one cache line. A READ or a WRITE is atomic within one line.
pub const LINE_BYTES: usize = 64;

const OFFSET_BITS: u32 = 36;
const GROUP_BITS: u32 = 12;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;
const ADDRESS_MASK: u64 = (1 << (OFFSET_BITS + GROUP_BITS)) - 1;

/// The maximum number of replica groups that an [`Address`] can name.
pub const GROUPS_MAX: usize = 1 << GROUP_BITS;
/// The maximum size in bytes of one replica group's memory (64 GiB).
pub const GROUP_BYTES_MAX: u64 = 1 << OFFSET_BITS;

/// The number of a node in the cluster's table of nodes. A restarted node keeps its slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeSlot(pub u16);

/// The incarnation of a node. Each restart of a node gives its slot the next incarnation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Incarnation(pub u16);

/// One incarnation of a node. Owner tags, leases and messages contain both the slot and the incarnation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId {
    /// The node's number in the table of nodes.
    pub slot: NodeSlot,
    /// The number of the node's incarnation.
    pub incarnation: Incarnation,
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}.{}", self.slot.0, self.incarnation.0)
    }
}

/// A set of memory nodes that hold the same bytes at the same offsets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(pub u16);

/// The address of a byte in the memory pool: its replica group and its offset. The value zero means "no address".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Address(u64);

impl Address {
    /// The value that means "no address". Offset 0 of group 0 contains the superblock, so no record has this address.
    pub const NULL: Address = Address(0);

    /// Creates the address of byte `offset_bytes` of `group`. Both numbers must fit into their fields of an address.
    #[inline]
    pub fn new(group: GroupId, offset_bytes: u64) -> Address {
        debug_assert!(usize::from(group.0) < GROUPS_MAX);
        debug_assert!(offset_bytes < GROUP_BYTES_MAX);
        Address((u64::from(group.0) << OFFSET_BITS) | offset_bytes)
    }

    /// Returns the replica group of the address.
    #[inline]
    pub fn group(self) -> GroupId {
        GroupId((self.0 >> OFFSET_BITS) as u16)
    }

    /// Returns the offset in bytes, which is the same on every replica.
    #[inline]
    pub fn offset_bytes(self) -> u64 {
        self.0 & OFFSET_MASK
    }

    /// Returns the address that is `bytes` bytes higher in the same group.
    #[inline]
    pub fn plus(self, bytes: usize) -> Address {
        debug_assert!(self.offset_bytes() + (bytes as u64) < GROUP_BYTES_MAX);
        Address(self.0 + bytes as u64)
    }

    /// Returns the address as a word of remote memory. The address has 48 bits, and the upper 16 bits of the word are
    /// zero.
    #[inline]
    pub fn to_word(self) -> u64 {
        self.0
    }

    /// Decodes an address from a word of remote memory. The upper 16 bits of the word are ignored.
    #[inline]
    pub fn from_word(word: u64) -> Address {
        Address(word & ADDRESS_MASK)
    }

    /// Whether this address is [`Address::NULL`].
    #[inline]
    pub fn is_null(self) -> bool {
        self.0 == 0
    }

    /// Returns the target that means this address at the replica on `node`.
    #[inline]
    pub fn at(self, node: NodeSlot) -> Target {
        Target((u64::from(node.0) << (OFFSET_BITS + GROUP_BITS)) | self.0)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{}+{:#x}", self.group().0, self.offset_bytes())
    }
}

/// An address at one replica. A verb is sent to a target.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Target(u64);

impl Target {
    /// Returns the memory node that executes verbs to this target.
    #[inline]
    pub fn node(self) -> NodeSlot {
        NodeSlot((self.0 >> (OFFSET_BITS + GROUP_BITS)) as u16)
    }

    /// Returns the target's address within the memory pool.
    #[inline]
    pub fn address(self) -> Address {
        Address(self.0 & ADDRESS_MASK)
    }

    /// Returns the target for another address of the same group, at the same node.
    #[inline]
    pub fn beside(self, address: Address) -> Target {
        debug_assert_eq!(self.address().group(), address.group());
        Target((self.0 & !OFFSET_MASK) | address.offset_bytes())
    }

    /// Returns this target's offset in the region that contains `other`. If this target lies in another region, the
    /// result is [`GROUP_BYTES_MAX`] or more, which lies beyond the end of any region.
    #[inline]
    pub fn offset_beside(self, other: Target) -> u64 {
        self.0.wrapping_sub(other.0 & !OFFSET_MASK)
    }

    /// Returns the target that is `bytes` bytes higher, at the same node and in the same group.
    #[inline]
    pub fn plus(self, bytes: usize) -> Target {
        debug_assert!(self.address().offset_bytes() + (bytes as u64) < GROUP_BYTES_MAX);
        Target(self.0 + bytes as u64)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}:{:?}", self.node().0, self.address())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_round_trip_at_their_limits() {
        for (node, group, offset) in
            [(0, 0, 0), (65535, 4095, GROUP_BYTES_MAX - 1), (7, 1, 1 << 35)]
        {
            let target = Address::new(GroupId(group), offset).at(NodeSlot(node));
            assert_eq!(target.node(), NodeSlot(node));
            assert_eq!(target.address().group(), GroupId(group));
            assert_eq!(target.address().offset_bytes(), offset);
            assert_eq!(Address::from_word(target.address().to_word()), target.address());
            assert_eq!(target.offset_beside(target), offset);
        }
    }
    #[test]
    fn an_offset_beside_another_region_is_beyond_every_region() {
        let ends = [0, GROUP_BYTES_MAX - 1];
        let places = [(0, 0), (0, 1), (1, 0), (7, 4095), (65535, 0), (65535, 4095)];
        for (node, group) in places {
            for other in places.into_iter().filter(|&other| other != (node, group)) {
                for (offset, base) in ends.into_iter().flat_map(|a| ends.map(|b| (a, b))) {
                    let here = Address::new(GroupId(group), offset).at(NodeSlot(node));
                    let there = Address::new(GroupId(other.1), base).at(NodeSlot(other.0));
                    assert!(here.offset_beside(there) >= GROUP_BYTES_MAX);
                }
            }
        }
    }
}
