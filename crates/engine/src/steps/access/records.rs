//! Access of transactions to records: each system decides by these functions how it finds records and how it protects
//! reads.
//!
//! Invariant: a caller first adds records and then fetches them. After the fetch, the caller learns whether all the
//! records that it has seen belong to one moment. If the processor can load memory directly (near memory), the
//! functions for near memory do the same steps without waiting. If a step for near memory would have to wait, the
//! step is not done, and the ordinary code with rounds follows.

use super::batch_read::{self, BatchOutcome, BatchRead};
use super::{Access, Which, fetch, home, is_of_one_read, near, validate_those};
use crate::cluster::rules::Phase;
use crate::site::Context;
use crate::steps::locks::Locks;
use crate::transaction::working_set::{Added, Handle, Txn, Upgrade};
use tarn_fabric::local::DirectMemory;
use tarn_fabric::round::Round;
use tarn_store::ids::Failure;
use tarn_store::placement::catalog::Table;

/// The outcome of a step that never waits. `None` means that the step was not done, and that the ordinary code with
/// rounds has to follow.
pub type AtOnce = Option<Result<(), Failure>>;

/// The functions by which a system's transactions access records: see the text at the beginning of this file.
pub trait RecordAccess<P> {
    /// Adds an entry for a record that is in no entry of the transaction yet. The function may plan verbs into the
    /// round that the next fetch sends, because it knows the key, the hash and the table.
    fn add(system: &P, cx: &Context, txn: &mut Txn, table: &Table, added: Added) -> Handle;

    /// Plans a further step for a fetched record, because the caller needs more of the record than its entry has. The
    /// caller has already set the entry's mode to the mode that it wants now. This function sets the field `progress`
    /// of the entry to the step that the next fetch must do for the record.
    fn upgrade(system: &P, cx: &Context, txn: &mut Txn, index: usize, further: Upgrade);

    /// Fetches every entry of the transaction that was not fetched before: this is the execute phase of one block.
    ///
    /// # Errors
    /// The transaction aborts, and the caller then rolls it back.
    fn fetch(system: &P, cx: &Context, txn: &mut Txn) -> impl Future<Output = Result<(), Failure>>;

    /// Returns whether a fetched transaction has already committed, because it has nothing to validate, write or
    /// release.
    fn is_committed(system: &P, txn: &Txn) -> bool;

    /// Validates all reads that the transaction has made up to now. Returns `Ok` if the memory contained all these
    /// records, as the transaction read them, at one single moment. The caller validates the reads before it reports
    /// an abort that the transaction's body has requested. A commit does not call `validate`. The round must contain
    /// no planned verb when the caller calls `validate`.
    ///
    /// # Errors
    /// An abort: perhaps there was no single moment at which the memory contained all records as the transaction read
    /// them. Returns an error if the fabric cannot complete a verb.
    fn validate(
        system: &P,
        cx: &Context,
        txn: &mut Txn,
    ) -> impl Future<Output = Result<(), Failure>>;

    /// Returns whether the records of this table that the caller adds next only for reading stay merely noted until
    /// the fetch. For records that are only noted, `near::note_read` replaces `add`, and the caller gives
    /// `note_looks` the number of noted records.
    #[inline(always)]
    fn notes_reads(_: &Context, _: &Txn, _: &Table) -> bool {
        false
    }

    /// Counts `count` noted records in the metrics.
    #[inline(always)]
    fn note_looks(_: &P, _: &Context, _: usize) {}

    /// For near memory ([`tarn_fabric::port::Port::near`]): prefetches the lines of a fetch, if the fetch can end
    /// without waiting once these lines have arrived. Returns the near memory, if this function has prefetched the
    /// lines of the fetch. After this function has prefetched the lines, the caller calls
    /// [`RecordAccess::fetch_near`].
    #[inline(always)]
    fn ask_near<'a>(_: &P, _: &'a Context, _: &mut Txn) -> Option<DirectMemory<'a>> {
        None
    }

    /// Ends the fetch that [`RecordAccess::ask_near`] has begun.
    #[inline(always)]
    fn fetch_near(_: &P, _: &Context, _: &mut Txn, _: DirectMemory<'_>) -> AtOnce {
        None
    }

    /// Commits a transaction without waiting, if the memory is near and the commit has nothing to wait for.
    #[inline(always)]
    fn commit_near(_: &P, _: &Context, _: &mut Txn) -> AtOnce {
        None
    }

    /// Returns whether one call may read a batch of records. For near memory, the call uses
    /// [`RecordAccess::read_together`]; otherwise it uses a fetch and a commit without a body.
    #[inline(always)]
    fn reads_together(_: &Context) -> bool {
        false
    }

    /// Reads a batch of records from near memory, as a whole transaction. The second call searches the records that
    /// the first call has not found in their home bins.
    #[inline(always)]
    fn read_together(
        _: &P,
        _: &Context,
        _: (&mut BatchRead, &mut Round),
        _: (DirectMemory<'_>, bool),
    ) -> BatchOutcome {
        BatchOutcome::Unusual
    }
}

/// Access to records that are changed in place and have one version. In a system with this access, a transaction
/// validates the records that it has read and not locked.
pub struct Validated;

impl<P: Access> RecordAccess<P> for Validated {
    #[inline(always)]
    fn add(system: &P, cx: &Context, txn: &mut Txn, table: &Table, added: Added) -> Handle {
        home::add(system, cx, txn, table, added)
    }

    fn upgrade(_: &P, cx: &Context, txn: &mut Txn, index: usize, further: Upgrade) {
        home::upgrade(cx, txn, index, further);
    }

    #[inline]
    fn fetch(system: &P, cx: &Context, txn: &mut Txn) -> impl Future<Output = Result<(), Failure>> {
        fetch(system, cx, txn)
    }

    #[inline]
    fn is_committed(_: &P, txn: &Txn) -> bool {
        is_of_one_read(txn)
    }

    async fn validate(system: &P, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        validate_those(system, cx, txn, Which::All).await
    }

    #[inline]
    fn notes_reads(cx: &Context, txn: &Txn, table: &Table) -> bool {
        near::notes_reads(cx, txn, table)
    }

    #[inline]
    fn note_looks(system: &P, cx: &Context, count: usize) {
        (0..count).for_each(|_| system.enter(cx, Phase::Locate));
    }

    #[inline(always)]
    fn ask_near<'a>(_: &P, cx: &'a Context, txn: &mut Txn) -> Option<DirectMemory<'a>> {
        near::ask(cx, txn)
    }

    #[inline]
    fn fetch_near(system: &P, cx: &Context, txn: &mut Txn, near: DirectMemory<'_>) -> AtOnce {
        near::read(system, cx, txn, near)
    }

    #[inline]
    fn commit_near(system: &P, cx: &Context, txn: &mut Txn) -> AtOnce {
        let memory = near::ends_near(cx, txn)?;
        Some(near::validate(system, cx, txn, (memory, Which::All)))
    }

    #[inline]
    fn reads_together(_: &Context) -> bool {
        true
    }

    #[inline]
    fn read_together(
        system: &P,
        cx: &Context,
        to: (&mut BatchRead, &mut Round),
        look: (DirectMemory<'_>, bool),
    ) -> BatchOutcome {
        batch_read::read_and_look_again(system, cx, to, look)
    }
}

/// Access to records that are changed in place and have one version. In a system with this access, a transaction
/// locks the records that it reads.
pub struct Locked;

impl<P: Access> RecordAccess<P> for Locked {
    #[inline(always)]
    fn add(system: &P, cx: &Context, txn: &mut Txn, table: &Table, added: Added) -> Handle {
        home::add(system, cx, txn, table, added)
    }

    fn upgrade(_: &P, cx: &Context, txn: &mut Txn, index: usize, further: Upgrade) {
        home::upgrade(cx, txn, index, further);
    }

    #[inline]
    async fn fetch(system: &P, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        P::Locks::open(cx, txn).await;
        match fetch(system, cx, txn).await {
            Ok(()) => Ok(()),
            // After a failure of the fabric, the transaction does not know which locks were granted.
            Err(Failure::Fabric) => Err(Failure::Fabric),
            Err(failure) => Err(P::Locks::leave(system, cx, txn, failure).await),
        }
    }

    #[inline]
    fn is_committed(_: &P, txn: &Txn) -> bool {
        (txn.locks.is_empty() && txn.shares.is_empty() || !P::Locks::GIVES_SHARES_BACK)
            && is_of_one_read(txn)
            && !P::Locks::has_to_cover(txn)
    }

    async fn validate(system: &P, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        if P::Locks::has_to_cover(txn) {
            P::Locks::cover(system, cx, txn).await?;
        }
        validate_those(system, cx, txn, P::VALIDATES).await
    }
}
