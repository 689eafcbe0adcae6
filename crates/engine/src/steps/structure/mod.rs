//! Reads and changes of indexes by transactions, for every protocol that supports them: scans, changes of leaves,
//! splits, merges and growth.
//!
//! Map of the modules:
//! - `scans` has the reads of ordered indexes that a block of a transaction makes. `leaves` makes a commit's changes
//!   of ordered indexes.
//! - `trees` splits nodes of ordered indexes and enters separators into their parents. `merges` merges nodes of
//!   ordered indexes.
//! - `buckets` splits the buckets of hash indexes. `sweeps` empties slots of deleted records in hash indexes.
//!
//! Invariant: the code of an index (not this module) decides the bytes of nodes, buckets and headers. This module
//! decides the order in which a transaction locks, compares and writes nodes, buckets and headers. The protocol
//! decides how a lock is taken, how a leaf that a scan has read is protected, and how a structural transaction
//! commits: see [`Structure`]. A node of a tree has only one version, even in layouts where records have several
//! versions.

pub(crate) mod buckets;
pub(crate) mod leaves;
mod merges;
pub(crate) mod scans;
pub(crate) mod sweeps;
pub(crate) mod trees;

use crate::cluster::rules::{Phase, Rule};
use crate::site::Context;
use crate::steps::Described;
use crate::steps::log::encode::undo_bytes;
use crate::steps::node_locks::{self, suspect_all_locks};
use crate::transaction::lock::LockKind;
use crate::transaction::working_set::Txn;
use tarn_fabric::address::Address;
use tarn_fabric::round::BufferOffset;
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::index::btree::scan::Visit;
use tarn_store::layout::{VERSION_AT, Version};
use tarn_store::placement::catalog::Table;

/// A part of a hash index that one lock protects: a header, bucket or slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The part is the index header, or a bucket. The holder of a bucket's lock decides which records enter or leave
    /// the bucket.
    Bucket,
    /// The part is a slot that contains the record with this key, or (`None`) a free slot.
    Slot(Option<u64>),
}

/// The functions by which a protocol takes part in the reads and changes of indexes. The default functions are for
/// locks that are words in memory nodes and are taken by CAS. A protocol whose locks are not in memory nodes
/// overrides [`Structure::ask`], [`Structure::ask_part`], [`Structure::send`], [`Structure::granted`] and
/// [`Structure::await_locks`]. A protocol with another format of its log overrides [`Structure::log_bytes`].
#[expect(async_fn_in_trait, reason = "called within the engine only")]
pub trait Structure: Described {
    /// The engine calls this function after the transaction has read a leaf of this version without a lock. Returns
    /// whether the transaction must validate this leaf before it commits.
    ///
    /// # Errors
    /// The transaction may not read a leaf of this version.
    #[inline(always)]
    fn shows_leaf(&self, _: &Txn, _: Visit) -> Result<bool, AbortReason> {
        Ok(self.keeps(Rule::ProtectRanges))
    }

    /// The engine calls this function when the next reads of ordered indexes are in the round, before it sends the
    /// round.
    #[inline]
    fn is_about_to_scan(&self, _: &Context, _: &mut Txn) {}

    /// The engine calls this function after the transaction has locked a leaf of this version, which it will change.
    ///
    /// # Errors
    /// This transaction may not change a leaf of this version.
    fn takes_leaf(&self, _: &Txn, _: Version) -> Result<(), AbortReason> {
        Ok(())
    }

    /// Commits the transaction. Returns when the engine may acknowledge the transaction to its caller.
    ///
    /// # Errors
    /// An abort, after which the caller rolls back; or `CommitUnknown`, after which the caller must not roll back.
    async fn commit(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure>;

    /// Commits a structural transaction, which consists of pieces and locks.
    ///
    /// # Errors
    /// Returns the same errors as [`Structure::commit`].
    #[inline]
    async fn commit_structure(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        self.commit(cx, txn).await
    }

    /// Requests a lock, and adds a READ of the bytes that the lock protects after the request. Returns the index of
    /// the lock in the transaction's list, and the place in the buffer of the image of the protected bytes.
    #[inline]
    fn ask(
        &self,
        cx: &Context,
        txn: &mut Txn,
        address: Address,
        (kind, len_bytes): (LockKind, usize),
    ) -> (u32, BufferOffset) {
        let lock = node_locks::ask(cx, txn, address, kind);
        (lock, txn.round.read(cx.groups.primary(address), len_bytes))
    }

    /// Requests the lock on a part of a hash index, in the same way as [`Structure::ask`]. Returns the place of the
    /// part's image in the buffer.
    fn ask_part(
        &self,
        cx: &Context,
        txn: &mut Txn,
        (_, part): (&Table, Part),
        (address, len_bytes): (Address, usize),
    ) -> BufferOffset {
        let kind = if part == Part::Bucket { LockKind::Directory } else { LockKind::Record };
        self.ask(cx, txn, address, (kind, len_bytes)).1
    }

    /// Returns the number of bytes of the log entry for a structural transaction's pieces and locks.
    fn log_bytes(&self, txn: &Txn) -> usize {
        undo_bytes(txn)
    }

    /// Sends a round that may contain requests for locks.
    ///
    /// # Errors
    /// The fabric fails; each lock that the round requested may have been granted.
    #[inline]
    async fn send(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        cx.port.execute(&mut txn.round).await.map_err(|error| {
            suspect_all_locks(txn);
            error.into()
        })
    }

    /// Returns whether a lock was granted, after the end of the round that requested the lock. If the lock was not
    /// granted, notes the transaction that holds the lock.
    #[inline]
    fn granted(&self, cx: &Context, txn: &mut Txn, lock: u32) -> bool {
        node_locks::granted(cx, txn, lock)
    }

    /// Sends the round that requests the locks from the index `first` of the transaction's list on. Notes the version
    /// that each granted lock protects, and removes the refused locks from the list. Returns the number of locks that
    /// were granted before the first refusal.
    ///
    /// # Errors
    /// Returns the same errors as [`Structure::send`].
    async fn await_locks(
        &self,
        cx: &Context,
        txn: &mut Txn,
        first: usize,
    ) -> Result<usize, Failure> {
        self.send(cx, txn).await?;
        let Txn { round, locks, .. } = txn;
        for lock in &mut locks[first..] {
            lock.granted = round.swapped(lock.verb);
            if !lock.granted {
                cx.note_blocking_lock(lock.address, round.found(lock.verb));
            }
            let image = round.verbs()[lock.verb.0 as usize + 1].buffer();
            lock.old_version = Version::from_word(round.word(image.plus(VERSION_AT)));
        }
        let row = locks[first..].iter().take_while(|lock| lock.granted).count();
        locks.retain(|lock| lock.granted);
        Ok(row)
    }
}

/// Begins a structural transaction. A structural transaction requests all its locks, even if the transaction before
/// it only assumed its locks.
fn begin(protocol: &impl Structure, cx: &Context, txn: &mut Txn) {
    txn.assumes_locks = false;
    protocol.enter(cx, Phase::Restructure);
}

/// Gives a header, directory record or node a new VERSION, higher than its old VERSION and higher than `floor`.
fn raise(txn: &mut Txn, lock: usize, floor: Version) {
    let lock = &mut txn.locks[lock];
    (lock.writes, lock.new_version) = (true, lock.old_version.present_after(floor));
}
