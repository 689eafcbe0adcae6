//! Access of transactions to records: a system decides here how records are found and how reads are protected.
//!
//! Invariant: a caller adds records and fetches them. After the fetch, the caller learns whether the records that it
//! has seen belong to one moment. If the processor can load memory directly (near memory), the same steps are done
//! without waiting. If some step would have to wait, it is not done at all, and the ordinary code with rounds
//! follows.

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

/// The functions by which a system's transactions access records; see the module's text.
pub trait RecordAccess<P> {
    /// Adds an entry for a record that is in no entry yet. The function may plan verbs into the round that the next
    /// fetch sends, because key, hash and table are known here.
    fn add(system: &P, cx: &Context, txn: &mut Txn, table: &Table, added: Added) -> Handle;

    /// Plans a further step for a fetched record, because the caller needs more than the entry has. The caller has
    /// already set the entry's mode to the one that it wants now. This function sets the entry's progress to the next
    /// fetch's step for the record.
    fn upgrade(system: &P, cx: &Context, txn: &mut Txn, index: usize, further: Upgrade);

    /// Fetches every entry that was not fetched before (the execute phase of one block).
    ///
    /// # Errors
    /// An abort, after which the caller rolls back.
    fn fetch(system: &P, cx: &Context, txn: &mut Txn) -> impl Future<Output = Result<(), Failure>>;

    /// Returns whether a fetched transaction has already committed, because it has nothing to validate, write or
    /// release.
    fn is_committed(system: &P, txn: &Txn) -> bool;

    /// Validates all reads of the transaction up to now. Returns `Ok` if there was one moment at which all these
    /// records were in memory as they were read. The caller uses this function before it reports an abort that a
    /// transaction's body has requested. A commit does not call it. The round must contain no planned verb.
    ///
    /// # Errors
    /// An abort: perhaps there was no single moment at which all records were in memory as they were read. A failure
    /// of the fabric.
    fn validate(
        system: &P,
        cx: &Context,
        txn: &mut Txn,
    ) -> impl Future<Output = Result<(), Failure>>;

    /// Returns whether records of this table that the caller adds next, only for reading, are merely noted until the
    /// fetch. For such records, `near::note_read` replaces `add`, and the caller tells `note_looks` the number of
    /// noted records.
    #[inline(always)]
    fn notes_reads(_: &Context, _: &Txn, _: &Table) -> bool {
        false
    }

    /// Counts `count` noted records in the metrics.
    #[inline(always)]
    fn note_looks(_: &P, _: &Context, _: usize) {}

    /// For near memory ([`tarn_fabric::port::Port::near`]): prefetches the lines of a fetch that can end without
    /// waiting after these lines have arrived. If it has prefetched the lines, returns the memory. After that the
    /// caller calls [`RecordAccess::fetch_near`].
    #[inline(always)]
    fn ask_near<'a>(_: &P, _: &'a Context, _: &mut Txn) -> Option<DirectMemory<'a>> {
        None
    }

    /// Ends the fetch that [`RecordAccess::ask_near`] has begun.
    #[inline(always)]
    fn fetch_near(_: &P, _: &Context, _: &mut Txn, _: DirectMemory<'_>) -> AtOnce {
        None
    }

    /// Commits a transaction without waiting, if memory is near and nothing has to be awaited.
    #[inline(always)]
    fn commit_near(_: &P, _: &Context, _: &mut Txn) -> AtOnce {
        None
    }

    /// Returns whether one call may read a batch of records. The call uses [`RecordAccess::read_together`] for near
    /// memory; otherwise it uses a fetch and a commit without a body.
    #[inline(always)]
    fn reads_together(_: &Context) -> bool {
        false
    }

    /// Reads a batch from near memory, as a whole transaction. The second call continues with the records that the
    /// first call has not found in their home bins.
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

/// Access to records that are changed in place and have one version. A transaction validates the records that it has
/// read and not locked.
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

/// Access to records that are changed in place and have one version. A transaction locks the records that it reads.
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
        (txn.locks.is_empty() || !P::Locks::GIVES_SHARES_BACK) && is_of_one_read(txn)
    }

    async fn validate(system: &P, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        validate_those(system, cx, txn, P::VALIDATES).await
    }
}
