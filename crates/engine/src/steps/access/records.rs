//! How transactions reach records: a system's answers to where records lie and how a read is protected.
//!
//! Invariant: a caller adds records, fetches them, and is told whether the records that it was shown are of one moment. Where memory is near,
//! the same is done without waiting, or not at all: then the ordinary way follows.

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

/// The outcome of a step that does not wait. `None`: the ordinary way has to follow.
pub type AtOnce = Option<Result<(), Failure>>;

/// See the module's text.
pub trait RecordAccess<P> {
    /// Pushes the entry of a record that is in no entry yet. It may plan verbs into the round
    /// that the next fetch sends, while key, hash and table are at hand.
    fn add(system: &P, cx: &Context, txn: &mut Txn, table: &Table, added: Added) -> Handle;

    /// Plans a further wish for a fetched record, which needs more than its entry has. The entry's mode is already the one that is
    /// wanted now; its progress gets the step that the next fetch is to take.
    fn upgrade(system: &P, cx: &Context, txn: &mut Txn, index: usize, further: Upgrade);

    /// Fetches every entry that is not fetched yet (the execute phase of one block).
    ///
    /// # Errors
    /// An abort: the caller then rolls back.
    fn fetch(system: &P, cx: &Context, txn: &mut Txn) -> impl Future<Output = Result<(), Failure>>;

    /// Returns whether a fetched transaction has committed already, because nothing of it needs to be
    /// validated, written or released.
    fn is_committed(system: &P, txn: &Txn) -> bool;

    /// Looks again at all that the transaction has read so far. Returns `Ok` if all of it was there at one moment. A body's
    /// own abort is told only then; the committing path does not come here. No verb may be planned.
    ///
    /// # Errors
    /// An abort: the records that were read were not, or may not have been, there at one moment. The fabric's.
    fn validate(
        system: &P,
        cx: &Context,
        txn: &mut Txn,
    ) -> impl Future<Output = Result<(), Failure>>;

    /// Returns whether records of this table that are asked for next, to be read only, are noted until the fetch. Then
    /// `near::note_read` does the work of `add`, and `note_looks` is told how often.
    #[inline(always)]
    fn notes_reads(_: &Context, _: &Txn, _: &Table) -> bool {
        false
    }

    /// Counts so many noted records.
    #[inline(always)]
    fn note_looks(_: &P, _: &Context, _: usize) {}

    /// Where memory is near ([`tarn_fabric::port::Port::near`]): asks for the lines of a fetch that it can end without a wait, when they
    /// have had time to come. Returns the memory, if it asked; then [`RecordAccess::fetch_near`] follows.
    #[inline(always)]
    fn ask_near<'a>(_: &P, _: &'a Context, _: &mut Txn) -> Option<DirectMemory<'a>> {
        None
    }

    /// Ends the fetch that [`RecordAccess::ask_near`] has begun.
    #[inline(always)]
    fn fetch_near(_: &P, _: &Context, _: &mut Txn, _: DirectMemory<'_>) -> AtOnce {
        None
    }

    /// Commits, where memory is near and nothing has to be waited for.
    #[inline(always)]
    fn commit_near(_: &P, _: &Context, _: &mut Txn) -> AtOnce {
        None
    }

    /// Returns whether a batch of reads is tried by one call: by [`RecordAccess::read_together`] where memory is near, else by a fetch and a
    /// commit without a body.
    #[inline(always)]
    fn reads_together(_: &Context) -> bool {
        false
    }

    /// Reads a batch where memory is near, as a whole transaction. The second call goes on with the records that the first has not found at
    /// home.
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

/// Records in place, with one version. A transaction looks again at the records that it has read and not locked.
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

/// Records in place, with one version. A transaction locks the records that it reads.
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
            // It is not known which locks were granted.
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
