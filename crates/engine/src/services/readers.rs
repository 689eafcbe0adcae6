//! Explicit leases: the records and leaves that the transactions of a compute node are reading, for writers that ask.
//!
//! Invariant: a transaction is counted at a record from before its first READ of the record is sent until its window
//! has closed. A writer looks when all of its locks are acknowledged. If it finds *no reader*, then every window in
//! which the record was found without that lock has closed: a later reader finds the lock. It may find *a reader* where
//! there is none. There are fewer places than records, and a dead reader is counted as long as its node is there.
//!
//! After section VI-C of the paper "OOCC". It says that a processor that is asked can also grant leases, and leaves
//! open how (docs/protocols/oocc.md).

use crate::services::Transport;
use crate::services::lock::sync::{Ordering, Site, Words, fence, order, zeroed};
use std::fmt;
use tarn_fabric::address::{Address, NodeId};
use tarn_fabric::rng::mix;
use tarn_fabric::rpc::{CallFuture, RpcConfig};
use tarn_store::schema::TableId;

/// The number of places of a node that is not explored: 512 KiB. Memory is touched only for places in use.
pub const READER_PLACES: usize = 1 << 16;

/// The name under which every compute node counts the readers of a record, or of a node of an ordered index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordName(pub u64);

impl RecordName {
    /// The name of a record, by its table and key.
    #[inline]
    pub fn of(table: TableId, key: u64) -> RecordName {
        RecordName(mix(key ^ mix(u64::from(table.0).wrapping_add(1))))
    }

    /// The name of a node of an ordered index. The node stays in its place as long as any transaction may have it
    /// locked.
    #[inline]
    pub fn of_node(address: Address) -> RecordName {
        RecordName(mix(!address.to_word()))
    }
}

/// A compute node's counts of readers; see the module's text.
pub struct NodeReaders {
    /// The node.
    pub id: NodeId,
    /// How the node asks others.
    pub transport: Transport,
    /// The options of its messages.
    pub rpc: RpcConfig,
    /// One count for each place.
    counts: Words,
    mask: u64,
}

impl NodeReaders {
    /// The counts of a node whose transactions read nothing yet; `places` is a power of two.
    pub fn new(id: NodeId, transport: Transport, rpc: RpcConfig, places: usize) -> NodeReaders {
        assert!(places.is_power_of_two(), "{places} places");
        NodeReaders { id, transport, rpc, counts: zeroed(places), mask: places as u64 - 1 }
    }

    /// The place at which a record is counted.
    #[inline]
    pub fn place(&self, RecordName(name): RecordName) -> usize {
        (name & self.mask) as usize
    }

    /// A transaction is about to read a record that is counted here: see [`NodeReaders::told`].
    #[inline]
    pub fn enter(&self, place: usize) {
        self.counts[place].fetch_add(1, Ordering::Relaxed);
    }

    /// Publishes the counts that were entered. A writer that looks later sees them. So does a writer whose lock the
    /// READs that follow do not find.
    #[inline]
    pub fn told(&self) {
        fence(Site::ReadingTold, Ordering::SeqCst);
    }

    /// The reader's window has closed.
    #[inline]
    pub fn leave(&self, place: usize) {
        let before = self.counts[place].fetch_sub(1, order(Site::ReadingEnded, Ordering::Release));
        debug_assert!(before > 0, "a reader leaves only a place that it entered");
    }

    /// Publishes the writer's locks before it looks. A reader that enters after a look that follows finds these locks.
    #[inline]
    pub(crate) fn about_to_look(&self) {
        fence(Site::ReadingAsked, Ordering::SeqCst);
    }

    /// Whether any transaction reads a record that is counted there.
    #[inline]
    pub(crate) fn is_read(&self, place: usize) -> bool {
        self.counts[place].load(order(Site::ReadingSeenEnded, Ordering::Acquire)) != 0
    }

    /// Whether any transaction reads any of these records, or may read it.
    pub fn reads_any(&self, mut names: impl Iterator<Item = RecordName>) -> bool {
        self.about_to_look();
        names.any(|name| self.is_read(self.place(name)))
    }

    /// A digest of all counts, for code that tells states apart.
    pub fn digest(&self) -> u64 {
        let counts = (0..self.counts.len()).map(|place| self.counts[place].load(Ordering::Relaxed));
        let held = counts.enumerate().filter(|(_, count)| *count != 0);
        held.fold(0, |all, (place, count)| mix(all ^ mix((place as u64) << 32 | count)))
    }

    /// The number of readers that are counted.
    pub fn counted(&self) -> u64 {
        (0..self.counts.len()).map(|place| self.counts[place].load(Ordering::Relaxed)).sum()
    }
}

impl fmt::Debug for NodeReaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeReaders").field("id", &self.id).finish_non_exhaustive()
    }
}

/// One transaction's state for explicit leases.
#[derive(Default)]
pub struct Reading {
    /// The places at which the transaction is counted at its node.
    pub(crate) places: Vec<u32>,
    /// How many of its entries are counted.
    pub(crate) entries: usize,
    /// The number of fetches that it has begun since it is counted.
    pub(crate) fetches: u32,
    /// Whether it is counted at nodes of an ordered index.
    pub(crate) nodes: bool,
    /// Whether it reads a record at which it was not counted when it began to read: see [`Reading::is_late`].
    pub(crate) late: bool,
    /// Questions to other nodes by message that have no answer yet, if it is about to write.
    pub(crate) asked: Vec<CallFuture>,
    /// Whether it has asked all of them.
    pub(crate) has_asked: bool,
    /// Whether it may ask: everything that it writes is a record with a name.
    pub may_ask: bool,
    /// **Broken**: the answer to a question that was asked too early.
    pub early: Option<bool>,
}

impl Reading {
    /// Whether the transaction is counted and has still to leave.
    #[inline]
    pub fn is_counted(&self) -> bool {
        !self.places.is_empty()
    }

    /// Whether the transaction reads a record at which it was not counted when it began to read. For such a record, no
    /// writer was told in time that it would be read. A first writer may write it while the reader finds neither its
    /// lock nor its data. A second writer may then write it without a wait. So such a transaction is in no lease.
    #[inline]
    pub fn is_late(&self) -> bool {
        self.late
    }

    /// Prepares for the next transaction. The last one has left all its places before, however it ended.
    #[inline]
    pub fn begin(&mut self) {
        debug_assert!(self.places.is_empty(), "it has left");
        self.asked.clear();
        (self.entries, self.fetches, self.nodes, self.late) = (0, 0, false, false);
        (self.has_asked, self.may_ask, self.early) = (false, false, None);
    }
}
