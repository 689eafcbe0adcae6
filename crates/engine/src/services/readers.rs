//! Explicit leases: which records and leaves the transactions of a compute node are reading, for whoever is about to write one.
//!
//! Invariant: a record is counted here before the first READ of it is sent, and until the reader's window has closed. A writer looks when
//! all of its locks are acknowledged. Then *nobody reads it* means that every window has closed in which it was found without
//! that lock: whoever reads it from now on finds the lock. And *somebody reads it* may be said of what nobody reads: places are fewer than
//! records, and who has died is counted for as long as his node is there.
//!
//! After section VI-C of the paper "OOCC", which says that leases can also be granted by a processor that is asked; how, it leaves open
//! (docs/protocols/oocc.md).

use crate::services::Transport;
use crate::services::lock::sync::{Ordering, Site, Words, fence, order, zeroed};
use std::fmt;
use tarn_fabric::address::{Address, NodeId};
use tarn_fabric::rng::mix;
use tarn_fabric::rpc::{CallFuture, RpcConfig};
use tarn_store::schema::TableId;

/// Places of a node that nobody explores: 512 KiB, of which what is used is touched.
pub const READER_PLACES: usize = 1 << 16;

/// Where the readers of a record, or of a node of an ordered index, are counted at any compute node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordName(pub u64);

impl RecordName {
    /// Of a key of a table.
    #[inline]
    pub fn of(table: TableId, key: u64) -> RecordName {
        RecordName(mix(key ^ mix(u64::from(table.0).wrapping_add(1))))
    }

    /// Of a node of an ordered index, which stays where it is for as long as anybody may have it locked.
    #[inline]
    pub fn of_node(address: Address) -> RecordName {
        RecordName(mix(!address.to_word()))
    }
}

/// See the module's text.
pub struct NodeReaders {
    /// The node.
    pub id: NodeId,
    /// How it asks others.
    pub transport: Transport,
    /// Its messages.
    pub rpc: RpcConfig,
    /// A count a place.
    counts: Words,
    mask: u64,
}

impl NodeReaders {
    /// Of a node whose transactions read nothing yet; `places` is a power of two.
    pub fn new(id: NodeId, transport: Transport, rpc: RpcConfig, places: usize) -> NodeReaders {
        assert!(places.is_power_of_two(), "{places} places");
        NodeReaders { id, transport, rpc, counts: zeroed(places), mask: places as u64 - 1 }
    }

    /// The count of a record.
    #[inline]
    pub fn place(&self, RecordName(name): RecordName) -> usize {
        (name & self.mask) as usize
    }

    /// Somebody is about to read what is counted here: see [`NodeReaders::told`].
    #[inline]
    pub fn enter(&self, place: usize) {
        self.counts[place].fetch_add(1, Ordering::Relaxed);
    }

    /// Whoever looks from now on, or has a lock that the READs which follow do not find, sees what was entered.
    #[inline]
    pub fn told(&self) {
        fence(Site::ReadingTold, Ordering::SeqCst);
    }

    /// His window has closed.
    #[inline]
    pub fn leave(&self, place: usize) {
        let before = self.counts[place].fetch_sub(1, order(Site::ReadingEnded, Ordering::Release));
        debug_assert!(before > 0, "nobody leaves who has not entered");
    }

    /// What was locked before this shows to whoever enters after what the looks that follow see.
    #[inline]
    pub(crate) fn about_to_look(&self) {
        fence(Site::ReadingAsked, Ordering::SeqCst);
    }

    /// Whether anybody reads what is counted there.
    #[inline]
    pub(crate) fn is_read(&self, place: usize) -> bool {
        self.counts[place].load(order(Site::ReadingSeenEnded, Ordering::Acquire)) != 0
    }

    /// Whether anybody reads any of these, or may.
    pub fn reads_any(&self, mut names: impl Iterator<Item = RecordName>) -> bool {
        self.about_to_look();
        names.any(|name| self.is_read(self.place(name)))
    }

    /// Stands for all that is counted, for whoever tells states apart.
    pub fn digest(&self) -> u64 {
        let counts = (0..self.counts.len()).map(|place| self.counts[place].load(Ordering::Relaxed));
        let held = counts.enumerate().filter(|(_, count)| *count != 0);
        held.fold(0, |all, (place, count)| mix(all ^ mix((place as u64) << 32 | count)))
    }

    /// Readers that are counted.
    pub fn counted(&self) -> u64 {
        (0..self.counts.len()).map(|place| self.counts[place].load(Ordering::Relaxed)).sum()
    }
}

impl fmt::Debug for NodeReaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeReaders").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What one transaction has to do with explicit leases.
#[derive(Default)]
pub struct Reading {
    /// Where it is counted at its node.
    pub(crate) places: Vec<u32>,
    /// How many of its entries are.
    pub(crate) entries: usize,
    /// Fetches that it has begun since it is.
    pub(crate) fetches: u32,
    /// Whether it is at nodes of an ordered index.
    pub(crate) nodes: bool,
    /// Whether it reads what it was not counted at when it began to read: see [`Reading::is_late`].
    pub(crate) late: bool,
    /// What it has asked other nodes by messages, if it is about to write, and has no answer to.
    pub(crate) asked: Vec<CallFuture>,
    /// Whether it has asked all of them.
    pub(crate) has_asked: bool,
    /// Whether it may ask: what it writes are records, each of which has a name.
    pub may_ask: bool,
    /// **Broken**: what was asked too early.
    pub early: Option<bool>,
}

impl Reading {
    /// Whether it has to leave yet.
    #[inline]
    pub fn is_counted(&self) -> bool {
        !self.places.is_empty()
    }

    /// Whether it reads what it was not counted at when it began to read. Of such a record nobody was told in time that it would be read: a writer
    /// may have written it without a wait who comes behind another, whose data the reader has not seen and whose lock he has not met.
    /// So it is in no lease.
    #[inline]
    pub fn is_late(&self) -> bool {
        self.late
    }

    /// For the next transaction. What it was counted for it has left before, in whatever way it ended.
    #[inline]
    pub fn begin(&mut self) {
        debug_assert!(self.places.is_empty(), "it has left");
        self.asked.clear();
        (self.entries, self.fetches, self.nodes, self.late) = (0, 0, false, false);
        (self.has_asked, self.may_ask, self.early) = (false, false, None);
    }
}
