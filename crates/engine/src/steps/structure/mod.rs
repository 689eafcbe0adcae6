//! Indexes as transactions see and change them: scans, the leaves that a commit changes, splits, merges and
//! growth, for every protocol that has them.
//!
//! Map: `scans` are a block's reads of ordered indexes, `leaves` what a commit brings to them. `trees` splits
//! their nodes and enters separators, `merges` merges nodes, `buckets` splits those of hash indexes, `sweeps` empties
//! their slots.
//!
//! Invariant: what nodes, buckets and headers say is the index's; in which order they are locked, compared and
//! written is decided here. How a lock is taken, what protects a leaf that was shown, and how a structural
//! transaction commits is the protocol's: [`Structure`]. Nodes have one version, whatever records have.

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

/// What a lock in a hash index is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The index header, or a bucket: who holds it decides what enters and leaves.
    Bucket,
    /// A slot: of the record with this key, or free.
    Slot(Option<u64>),
}

/// What of all this is the protocol's. The locks that stand here are words of memory nodes, taken by CAS; a protocol
/// whose locks are elsewhere replaces [`Structure::ask`], [`Structure::ask_part`], [`Structure::send`],
/// [`Structure::granted`] and [`Structure::await_locks`]; one whose log is another, [`Structure::log_bytes`].
#[expect(async_fn_in_trait, reason = "called within the engine only")]
pub trait Structure: Described {
    /// A leaf of this version was read without a lock: is it to be validated before the transaction commits?
    ///
    /// # Errors
    /// It is not what the transaction is to see.
    #[inline(always)]
    fn shows_leaf(&self, _: &Txn, _: Visit) -> Result<bool, AbortReason> {
        Ok(self.keeps(Rule::ProtectRanges))
    }

    /// What the next round reads of ordered indexes is in it, and has not been sent.
    #[inline]
    fn is_about_to_scan(&self, _: &Context, _: &mut Txn) {}

    /// A leaf of this version was locked, and will be changed.
    ///
    /// # Errors
    /// This transaction may not.
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

    /// Asks for a lock, and for what it protects, read behind it: the lock's index, and where the image will lie.
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

    /// As [`Structure::ask`], of a part of a hash index; where the image will lie.
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

    /// Length of the log's entry of what stands in a structural transaction's pieces and locks.
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

    /// Whether a lock was granted, once the round that asked for it is over. Reports who has it, if not.
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

/// A structural transaction begins. Its locks are asked for, also where the transaction before it assumed its own.
fn begin(protocol: &impl Structure, cx: &Context, txn: &mut Txn) {
    txn.assumes_locks = false;
    protocol.enter(cx, Phase::Restructure);
}

/// The VERSION of a header, directory or node will be above its own and above `floor`.
fn raise(txn: &mut Txn, lock: usize, floor: Version) {
    let lock = &mut txn.locks[lock];
    (lock.writes, lock.new_version) = (true, lock.old_version.present_after(floor));
}
