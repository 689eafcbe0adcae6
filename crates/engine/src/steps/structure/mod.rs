//! Reads and changes of indexes by transactions: scans, the leaves that a commit changes, splits, merges and growth,
//! for every protocol that has them.
//!
//! Map:
//! - `scans` has a block's reads of ordered indexes. `leaves` makes a commit's changes to them.
//! - `trees` splits their nodes and enters separators. `merges` merges their nodes.
//! - `buckets` splits the buckets of hash indexes. `sweeps` empties their slots.
//!
//! Invariant: the index decides the bytes of nodes, buckets and headers. This module decides in which order they are
//! locked, compared and written. The protocol decides how a lock is taken, how a leaf that was shown is protected,
//! and how a structural transaction commits: [`Structure`]. A node has one version, even where records have several.

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
use crate::transaction::working_set::{LockKind, Txn};
use tarn_fabric::address::Address;
use tarn_fabric::round::BufferOffset;
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::index::btree::scan::Visit;
use tarn_store::layout::{VERSION_AT, Version};
use tarn_store::placement::catalog::Table;

/// The part of a hash index that a lock protects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The index header, or a bucket: its holder decides which records enter and leave.
    Bucket,
    /// A slot: of the record with this key, or free.
    Slot(Option<u64>),
}

/// A protocol's own part in all this. The defaults are for locks that are words of memory nodes, taken by CAS. A
/// protocol whose locks are elsewhere replaces [`Structure::ask`], [`Structure::ask_part`], [`Structure::send`],
/// [`Structure::granted`] and [`Structure::await_locks`]. A protocol with another log replaces
/// [`Structure::log_bytes`].
#[expect(async_fn_in_trait, reason = "called within the engine only")]
pub trait Structure: Described {
    /// A leaf of this version was read without a lock. Returns whether it is to be validated before the transaction
    /// commits.
    ///
    /// # Errors
    /// The transaction may not see this version.
    #[inline(always)]
    fn shows_leaf(&self, _: &Txn, _: Visit) -> Result<bool, AbortReason> {
        Ok(self.keeps(Rule::ProtectRanges))
    }

    /// The round holds its next reads of ordered indexes, and has not been sent yet.
    #[inline]
    fn is_about_to_scan(&self, _: &Context, _: &mut Txn) {}

    /// A leaf of this version was locked, and will be changed.
    ///
    /// # Errors
    /// This transaction may not change it.
    fn takes_leaf(&self, _: &Txn, _: Version) -> Result<(), AbortReason> {
        Ok(())
    }

    /// Commits; returns when the transaction may be acknowledged.
    ///
    /// # Errors
    /// An abort (the caller rolls back), or `CommitUnknown` (it must not).
    async fn commit(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure>;

    /// Commits a structural transaction: its pieces and locks.
    ///
    /// # Errors
    /// As [`Structure::commit`].
    #[inline]
    async fn commit_structure(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        self.commit(cx, txn).await
    }

    /// Asks for a lock, and for the bytes that it protects, read behind it. Returns the lock's index, and the place
    /// of the image.
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

    /// Asks for the lock on a part of a hash index, like [`Structure::ask`]. Returns the place of the image.
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

    /// Length of the log entry for a structural transaction's pieces and locks.
    fn log_bytes(&self, txn: &Txn) -> usize {
        undo_bytes(txn)
    }

    /// Sends a round that may ask for locks.
    ///
    /// # Errors
    /// The fabric's: any of the locks may have been granted.
    #[inline]
    async fn send(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        cx.port.execute(&mut txn.round).await.map_err(|error| {
            suspect_all_locks(txn);
            error.into()
        })
    }

    /// Returns whether a lock was granted, once the round that asked for it is over. If not, notes its holder.
    #[inline]
    fn granted(&self, cx: &Context, txn: &mut Txn, lock: u32) -> bool {
        node_locks::granted(cx, txn, lock)
    }

    /// Sends the round that asks for the locks from `first` on, notes the versions found under them, and forgets
    /// those that were refused. Returns how many were granted before the first refusal.
    ///
    /// # Errors
    /// As [`Structure::send`].
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

/// Begins a structural transaction. It asks for its locks, also where the transaction before it assumed its own.
fn begin(protocol: &impl Structure, cx: &Context, txn: &mut Txn) {
    txn.assumes_locks = false;
    protocol.enter(cx, Phase::Restructure);
}

/// Gives a header, directory or node a new VERSION, above its own and above `floor`.
fn raise(txn: &mut Txn, lock: usize, floor: Version) {
    let lock = &mut txn.locks[lock];
    (lock.writes, lock.new_version) = (true, lock.old_version.present_after(floor));
}
