//! Explicit leases: counts of the records and leaves that a compute node's transactions are reading. Writers request
//! these counts.
//!
//! Invariant: a node begins to count a transaction at a record before the transaction sends its first READ of the
//! record. The node counts it there until its window has closed. A writer checks the counts after all of its locks
//! are acknowledged. If the writer finds *no reader*, every window in which a READ found the record without that lock
//! has closed. A later reader finds the writer's lock. The writer may also find *a reader* of a record that no
//! transaction reads. One reason for such a wrong finding is that several records share one counter. Another reason
//! for it is that a dead reader is counted as long as its node exists.
//!
//! The design follows section VI-C of the paper "OOCC". The paper says that a processor that receives a writer's
//! question can also grant leases, and does not say how (docs/protocols/oocc.md).

use crate::services::Transport;
use crate::services::lock::sync::{Ordering, Site, Words, fence, order, zeroed};
use std::fmt;
use tarn_fabric::address::{Address, NodeId};
use tarn_fabric::rng::mix;
use tarn_fabric::rpc::{CallFuture, RpcConfig};
use tarn_store::schema::TableId;

/// The number of counters of a node that is not explored. The counters take 512 KiB. The node touches memory only for
/// counters in use.
pub const READER_PLACES: usize = 1 << 16;

/// The name of a record, or of a node of an ordered index. Every compute node counts readers under this name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordName(pub u64);

impl RecordName {
    /// The name of a record, computed from its table and key.
    #[inline]
    pub fn of(table: TableId, key: u64) -> RecordName {
        RecordName(mix(key ^ mix(u64::from(table.0).wrapping_add(1))))
    }

    /// The name of a node of an ordered index. The index node keeps its address as long as any transaction may have
    /// locked the node.
    #[inline]
    pub fn of_node(address: Address) -> RecordName {
        RecordName(mix(!address.to_word()))
    }
}

/// A compute node's counts of readers; see the module's text.
pub struct NodeReaders {
    /// The compute node.
    pub id: NodeId,
    /// How the node sends questions to other nodes.
    pub transport: Transport,
    /// The options of the node's messages.
    pub rpc: RpcConfig,
    /// The counters of readers, one for each place.
    counts: Words,
    mask: u64,
}

impl NodeReaders {
    /// Creates the counters of a node whose transactions read nothing yet; `places` is a power of two.
    pub fn new(id: NodeId, transport: Transport, rpc: RpcConfig, places: usize) -> NodeReaders {
        assert!(places.is_power_of_two(), "{places} places");
        NodeReaders { id, transport, rpc, counts: zeroed(places), mask: places as u64 - 1 }
    }

    /// The index of the counter for the record with this name.
    #[inline]
    pub fn place(&self, RecordName(name): RecordName) -> usize {
        (name & self.mask) as usize
    }

    /// Counts a transaction that is about to read a record of this place. See [`NodeReaders::told`].
    #[inline]
    pub fn enter(&self, place: usize) {
        self.counts[place].fetch_add(1, Ordering::Relaxed);
    }

    /// Publishes the counts that the transaction has increased. A writer that checks the counts later sees the
    /// increased counts. If the following READs do not find a writer's lock, that writer also sees the increased
    /// counts.
    #[inline]
    pub fn told(&self) {
        fence(Site::ReadingTold, Ordering::SeqCst);
    }

    /// Decreases the reader count of a place, because a reader's window has closed.
    #[inline]
    pub fn leave(&self, place: usize) {
        let before = self.counts[place].fetch_sub(1, order(Site::ReadingEnded, Ordering::Release));
        debug_assert!(before > 0, "a reader leaves only a place that it entered");
    }

    /// Publishes the writer's locks before the writer checks the counts. A reader that is counted only after this
    /// check finds these locks.
    #[inline]
    pub(crate) fn about_to_look(&self) {
        fence(Site::ReadingAsked, Ordering::SeqCst);
    }

    /// Whether any transaction reads a record of this place.
    #[inline]
    pub(crate) fn is_read(&self, place: usize) -> bool {
        self.counts[place].load(order(Site::ReadingSeenEnded, Ordering::Acquire)) != 0
    }

    /// Whether any transaction reads one of these records, or may read it.
    pub fn reads_any(&self, mut names: impl Iterator<Item = RecordName>) -> bool {
        self.about_to_look();
        names.any(|name| self.is_read(self.place(name)))
    }

    /// A digest of all counts, for code that compares states.
    pub fn digest(&self) -> u64 {
        let counts = (0..self.counts.len()).map(|place| self.counts[place].load(Ordering::Relaxed));
        let held = counts.enumerate().filter(|(_, count)| *count != 0);
        held.fold(0, |all, (place, count)| mix(all ^ mix((place as u64) << 32 | count)))
    }

    /// The sum of all counts of readers.
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
    /// The places at which the node counts this transaction.
    pub(crate) places: Vec<u32>,
    /// The number of the transaction's entries at which the transaction is counted.
    pub(crate) entries: usize,
    /// The number of fetches that the transaction has begun since it was first counted.
    pub(crate) fetches: u32,
    /// Whether the transaction is counted at nodes of an ordered index.
    pub(crate) nodes: bool,
    /// Whether the transaction reads a record at which it was not counted when it began to read. See
    /// [`Reading::is_late`].
    pub(crate) late: bool,
    /// The messages to other nodes about their readers that have no answer yet. A transaction sends such messages if
    /// it is about to write.
    pub(crate) asked: Vec<CallFuture>,
    /// Whether the transaction has sent its question about readers to all other nodes.
    pub(crate) has_asked: bool,
    /// Whether the transaction may ask for readers. The transaction may ask if everything that it writes is a record
    /// with a name.
    pub may_ask: bool,
    /// **Broken**: the answer to a question about readers that the transaction sent too early.
    pub early: Option<bool>,
}

impl Reading {
    /// Whether the transaction is counted, and must still be removed from the counts.
    #[inline]
    pub fn is_counted(&self) -> bool {
        !self.places.is_empty()
    }

    /// Whether the transaction reads a record at which it was not counted when it began to read. No writer of such a
    /// record could find the reader in the counts in time. A first writer may write the record while the reader finds
    /// neither that writer's lock nor its data. A second writer may then write the record without a wait. So such a
    /// transaction is in no lease.
    #[inline]
    pub fn is_late(&self) -> bool {
        self.late
    }

    /// Prepares the state for the next transaction. The previous transaction is no longer counted at any place,
    /// however it ended.
    #[inline]
    pub fn begin(&mut self) {
        debug_assert!(self.places.is_empty(), "it has left");
        self.asked.clear();
        (self.entries, self.fetches, self.nodes, self.late) = (0, 0, false, false);
        (self.has_asked, self.may_ask, self.early) = (false, false, None);
    }
}
