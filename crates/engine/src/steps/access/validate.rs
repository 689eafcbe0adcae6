//! Validation: checks whether all records that were read and not locked are unchanged.
//!
//! Invariant: a record counts as unchanged if its LOCK is free or this transaction's, and its VERSION equals the
//! version that the caller has seen. One READ of one line must show both LOCK and VERSION of a record.

use super::{Access, LockState};
use crate::cluster::rules::{Phase, Rule};
use crate::site::Context;
use crate::transaction::lock::LockKind;
use crate::transaction::working_set::{Check, Entry, Progress, Txn};
use tarn_fabric::address::{Address, Target};
use tarn_fabric::round::{BufferOffset, Round};
use tarn_store::ids::{AbortReason, Failure, Mode, OwnerTag};
use tarn_store::layout::Version;

/// The maximum number of a transaction's records that are still in the processor's cache when the transaction
/// validates them.
pub(super) const WARM_CHECKS: usize = 64;

/// Validates everything that the transaction has read and not locked: reads each LOCK and VERSION again.
#[inline]
pub(crate) async fn validate(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
) -> Result<(), Failure> {
    validate_those(access, cx, txn, Which::All).await
}

/// Does the same as [`validate`] for the reads that `which` names.
#[inline]
pub(crate) async fn validate_those(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
    which: Which,
) -> Result<(), Failure> {
    if is_needless(txn) || !access.keeps(Rule::ValidateReads) {
        return Ok(());
    }
    txn.round.begin();
    let first = add_validation(cx, txn, which);
    if txn.round.is_empty() {
        return Ok(()); // the transaction has locked every directory record by now
    }
    access.enter(cx, Phase::Validate);
    if txn.entries.len() + txn.checks.len() <= WARM_CHECKS {
        txn.round.hot();
    }
    cx.port.execute(&mut txn.round).await?;
    Ok(absorb_validation(access, cx, txn, (first, which))?)
}

/// The records and absences that a commit validates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// Everything that the transaction has read and not locked.
    All,
    /// Records that another transaction was about to write when this transaction read them.
    Marked,
    /// Reads without a readers' lock, in a transaction that also reads under readers' locks: these are marked records
    /// and absences.
    Apart,
}

/// A record or directory record that the transaction has read: its kind, its place in memory and its version.
pub(super) type Seen<P> = (LockKind, P, Version);

/// A place in memory, given as an address or as a target.
pub(super) trait Spot: Copy {
    /// Returns the place in memory as a target.
    fn target(self, cx: &Context) -> Target;

    /// Returns the place in memory as an address.
    fn address(self) -> Address;
}

impl Spot for Address {
    #[inline(always)]
    fn target(self, cx: &Context) -> Target {
        cx.groups.primary(self)
    }

    #[inline(always)]
    fn address(self) -> Address {
        self
    }
}

impl Spot for Target {
    #[inline(always)]
    fn target(self, _: &Context) -> Target {
        self
    }

    #[inline(always)]
    fn address(self) -> Address {
        Target::address(self)
    }
}

impl Which {
    #[inline]
    fn names(self, entry: &Entry) -> bool {
        entry.watched && (self == Which::All || entry.marked)
    }

    /// Absences and leaves are never marked, and no transaction reads them under a readers' lock.
    #[inline]
    fn names_check(self, check: &Check) -> bool {
        self != Which::Marked && !check.covered
    }

    /// Returns everything that the transaction must validate: first the records, then the directory records.
    #[inline]
    pub(super) fn seen<'t>(
        self,
        entries: &'t [Entry],
        checks: &'t [Check],
    ) -> impl Iterator<Item = Seen<Address>> + Clone + use<'t> {
        let watched = entries.iter().filter(move |entry| self.names(entry));
        let directories = checks.iter().filter(move |check| self.names_check(check));
        let watched = watched.map(|entry| (LockKind::Record, entry.address, entry.version));
        let directories = directories.map(|it| (LockKind::Directory, it.address, it.version));
        watched.chain(directories)
    }
}

/// Returns whether one consistent READ has read everything that a transaction without locks has seen.
#[inline]
pub(crate) fn is_of_one_read(txn: &Txn) -> bool {
    txn.is_read_only()
        && match &txn.entries[..] {
            // The transaction has read one leaf as of one moment, but it has not read several leaves as of one
            // moment.
            [] => txn.checks.len() <= 1,
            // The reads of one record belong to different moments if the transaction first saw the record absent and
            // later present.
            [only] => only.stable && txn.checks.len() + usize::from(only.watched) <= 1,
            _ => false,
        }
}

/// Returns whether the transaction has read nothing without a lock, so that it needs no validation.
#[inline]
pub(crate) fn is_needless(txn: &Txn) -> bool {
    txn.checks.is_empty() && !txn.entries.iter().any(|entry| entry.watched)
}

/// Adds the READs of the validation to the round. Returns the place in the buffer where the answers to the
/// validation's READs begin.
#[inline]
pub(crate) fn add_validation(cx: &Context, txn: &mut Txn, which: Which) -> BufferOffset {
    let Txn { round, entries, checks, .. } = txn;
    plan_again(cx, (round, entries.len() + checks.len()), which.seen(entries, checks))
}

/// Adds READs of the LOCK and VERSION of everything in `seen`, which has at most `most` elements. Returns the place
/// in the buffer where the answers to these READs begin.
#[inline]
pub(super) fn plan_again<P: Spot>(
    cx: &Context,
    (round, most): (&mut Round, usize),
    seen: impl Iterator<Item = Seen<P>>,
) -> BufferOffset {
    let first = round.reserve(16 * most);
    let mut again = first;
    seen.for_each(|(_, at, _)| {
        round.read_into(at.target(cx), again, 16);
        again = again.plus(16);
    });
    first
}

/// Decides the meaning of the LOCK word of a record that a search has found and that the transaction wants in this
/// mode. Returns true if another transaction is about to write the record and still admits readers.
///
/// # Errors
/// Another transaction has locked the record.
#[inline(always)]
pub(super) fn admit(
    access: &impl Access,
    (cx, tag): (&Context, OwnerTag),
    mode: Mode,
    (address, lock): (Address, u64),
) -> Result<bool, AbortReason> {
    if lock == 0 {
        return Ok(false);
    }
    // A record that an insert finds is shown even if readers must lock records. If the system's readers take locks,
    // records in all other modes are locked before they are shown.
    let judged = match mode {
        Mode::Insert => access.judge_again(LockKind::Record, lock, tag, mode),
        _ => access.judge(lock, tag, mode),
    };
    match judged {
        LockState::Free => Ok(false),
        LockState::Marked => Ok(true),
        LockState::Taken => Err(AbortReason::ReadLocked),
        LockState::InTheWay => {
            cx.note_blocking_lock(address, lock);
            let reading = mode == Mode::Read;
            Err(if reading { AbortReason::ReadLocked } else { AbortReason::LockRefused })
        }
    }
}

/// Compares the current LOCK and VERSION of a record with the version that the transaction read before.
#[inline]
pub(super) fn judge_seen<P: Spot>(
    access: &impl Access,
    (cx, tag): (&Context, OwnerTag),
    (kind, at, version): Seen<P>,
    ([lock, now], mode): ([u64; 2], Mode),
) -> Result<(), AbortReason> {
    match access.judge_again(kind, lock, tag, mode) {
        LockState::InTheWay => {
            cx.note_blocking_lock(at.address(), lock);
            Err(AbortReason::ValidationLocked)
        }
        LockState::Taken => Err(AbortReason::ValidationLocked),
        LockState::Free | LockState::Marked if now != version.word() => {
            Err(AbortReason::VersionChanged)
        }
        LockState::Free | LockState::Marked => Ok(()),
    }
}

/// Compares the answers to the validation's READs with everything that the transaction read before.
pub(crate) fn absorb_validation(
    access: &impl Access,
    cx: &Context,
    txn: &Txn,
    (first, which): (BufferOffset, Which),
) -> Result<(), AbortReason> {
    // A transaction that holds locks wants to write. A lock with a mark lets readers pass, but need not let writers
    // pass.
    let mode = if txn.is_read_only() { Mode::Read } else { Mode::Update };
    let seen = which.seen(&txn.entries, &txn.checks);
    absorb_again(access, (cx, txn.tag), (&txn.round, first), (seen, mode))
}

/// Compares the answers to the READs of [`plan_again`] with everything that the transaction read before.
#[inline]
pub(super) fn absorb_again<P: Spot>(
    access: &impl Access,
    (cx, tag): (&Context, OwnerTag),
    (round, first): (&Round, BufferOffset),
    (seen, mode): (impl Iterator<Item = Seen<P>>, Mode),
) -> Result<(), AbortReason> {
    let (mut at, mut verdict) = (first, Ok(()));
    for seen in seen {
        let now = (*round.array(at), mode);
        verdict = verdict.and(judge_seen(access, (cx, tag), seen, now));
        at = at.plus(16);
    }
    verdict
}

/// A deliberate error (the switch `validate-after-locks` is off): adds the validation's READs to a round that still
/// requests locks. Returns the place in the buffer for the answers to these READs, if there is anything to validate.
#[cold]
pub(crate) fn plan_early(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
) -> Option<BufferOffset> {
    let waits_for_lock = |entry: &Entry| {
        entry.progress == Progress::Lock
            || (entry.progress == Progress::Direct && !entry.only_reads())
    };
    let asks = txn.entries[txn.fetched..].iter().any(waits_for_lock);
    if !asks || is_needless(txn) || !access.keeps(Rule::ValidateReads) {
        return None;
    }
    Some(add_validation(cx, txn, Which::All))
}

/// Handles the answers to the READs of [`plan_early`]. The transaction does not validate the records that pass this
/// check again.
#[cold]
pub(crate) fn absorb_early(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
    first: BufferOffset,
) -> Result<(), AbortReason> {
    absorb_validation(access, cx, txn, (first, Which::All))?;
    txn.entries.iter_mut().for_each(|entry| entry.watched = false);
    txn.checks.iter_mut().for_each(|check| check.covered = true);
    Ok(())
}
