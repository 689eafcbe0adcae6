//! Motor's switches, phases and reasons to abort.
//!
//! Invariant: the positions of [`On`] and [`Phase`] are those in [`SWITCHES`] and [`PHASES`].

use tarn_store::ids::AbortReason;
use crate::cluster::info::{Limit, Only, Switch};

/// The switches, by position in [`SWITCHES`].
#[derive(Clone, Copy)]
pub(super) enum On {
    ValidateReads = 0,
    RefuseLocked = 1,
    WaitForLocked = 2,
    StampFirst = 3,
    CheckHead = 4,
    TooOld = 5,
    AwaitReplicas = 6,
    UnlockLate = 7,
    UndoLog = 8,
    ReadTogether = 9,
    ProtectAbsent = 10,
    ReleaseGranted = 11,
    ReleaseOnAbort = 12,
    FenceBeforeRecovery = 13,
    SettleBeforeLog = 14,
    ReleaseOwn = 15,
    LockCas = 16,
    ProtectRanges = 17,
    Deltas = 18,
    AtOnce = 19,
}

pub(super) const SWITCHES: &[Switch] = &[
    switch(
        "validate-reads",
        "commit re-reads the head of every record that was read and not locked",
        true,
    ),
    switch(
        "refuse-locked",
        "a transaction that is not declared read-only neither reads nor validates what another has locked",
        true,
    ),
    switch(
        "wait-for-locked",
        "a snapshot that meets a lock looks again: its holder may have a timestamp below the snapshot; \
         off: it takes what the head says",
        false,
    ),
    switch(
        "stamp-first",
        "T_commit is taken before validation's READs are sent; off: after they have passed",
        false,
    ),
    switch(
        "check-head",
        "what is not of one moment by itself (a value of several lines, a delta) is followed by its head \
         once more; off: the STAMP of a value alone decides, and nothing of a delta",
        false,
    ),
    switch(
        "too-old",
        "a snapshot whose version is not kept any more aborts; off: it takes the oldest there is",
        true,
    ),
    switch(
        "await-replicas",
        "the reply comes when every replica has acknowledged the data; off: when they were posted",
        false,
    ),
    switch(
        "unlock-late",
        "locks are released at the primary when every replica has acknowledged its data; off: in one \
         batch with the data, by WRITE at every replica",
        false,
    ),
    switch(
        "undo-log",
        "an undo log goes before the data, in their batch; off: there is none, and who dies while it \
         commits leaves half of it",
        false,
    ),
    switch(
        "read-together",
        "a value whose address is known is read in its head's batch; off: in a round of its own",
        false,
    ),
    switch(
        "protect-absent",
        "an absent read, an insert and a delete protect the bucket's directory record",
        true,
    ),
    switch(
        "release-granted",
        "an abort releases the locks that were granted, by CAS of its own tag; \
         off: it clears every lock that it asked for",
        true,
    ),
    switch(
        "release-on-abort",
        "an abort releases its locks at all; off: they outlive the transaction",
        true,
    ),
    switch(
        "fence-before-recovery",
        "recovery reads nothing before the dead node's access is revoked everywhere; \
         off: the dead, if it still runs, writes on beside it",
        true,
    ),
    switch(
        "settle-before-log",
        "a log area is used again only when nobody needs what it holds: earlier unlocks have settled, \
         the recovery of a dead coordinator of the same number is over; off: at once",
        true,
    ),
    switch(
        "release-own",
        "recovery takes away only locks that carry the dead transaction's tag, by CAS; \
         off: it clears the LOCK of every record in the log, whoever holds it by now",
        true,
    ),
    Switch {
        simulated_only: true,
        ..switch(
            "lock-cas",
            "a lock is taken by CAS; off: it is only assumed, and transactions are not isolated",
            true,
        )
    },
    switch(
        "protect-ranges",
        "the leaves that a scan has read are validated, or of its snapshot; off: what comes into its range is \
         not noticed",
        true,
    ),
    switch(
        "deltas",
        "of older versions what was different is kept; off: every version is whole, and a commit writes it into the place \
         of the oldest",
        true,
    ),
    switch(
        "at-once",
        "heads are written in one batch with what they lead to; off: in a batch of their own, when every replica has \
         acknowledged the log and the versions",
        true,
    ),
];

/// A switch that the published system has, or not: its text, as far as we know it, and its code are one.
const fn switch(name: &'static str, effect: &'static str, published: bool) -> Switch {
    Switch {
        name,
        effect,
        in_literal: published,
        in_measured: published,
        simulated_only: false,
    }
}

/// The phases, in the order of [`PHASES`].
#[derive(Clone, Copy)]
pub(super) enum Phase {
    Locate = 0,
    ReadHead = 1,
    ReadValue = 2,
    Lock = 3,
    LockDirectory = 4,
    Validate = 5,
    Write = 6,
    Unlock = 7,
    UnlockWithData = 8,
    Release = 9,
    Resolve = 10,
    LookAgain = 11,
    Restructure = 12,
    Scan = 13,
    LockLeaf = 14,
    Show = 15,
}

pub(super) const PHASES: &[&str] = &[
    "locate",
    "read_head",
    "read_value",
    "lock",
    "lock_directory",
    "validate",
    "write",
    "unlock",
    "unlock_with_data",
    "release",
    "resolve",
    "look_again",
    "restructure",
    "scan",
    "lock_leaf",
    "show",
];

pub(super) const LIMITS: &[Limit] = &[
    Limit {
        phase: "unlock_with_data",
        only: Only::WithoutMemoryDeath,
        why: "locks are released together with the data where there is one copy, and where there is one \
              copy no memory node dies",
    },
    Limit {
        phase: "show",
        only: Only::InVariant("corrected,-deltas,-at-once"),
        why: "heads are written in their data's batch",
    },
    Limit { phase: "scan", only: Only::WithOrderedIndexes, why: "it reads an ordered index" },
    Limit { phase: "lock_leaf", only: Only::WithOrderedIndexes, why: "leaves are of ordered indexes" },
];

pub(super) const ABORTS: &[AbortReason] = &[
    AbortReason::LockRefused,
    AbortReason::ReadLocked,
    AbortReason::VersionChanged,
    AbortReason::ValidationLocked,
    AbortReason::IndexChanged,
    AbortReason::StaleAddress,
    AbortReason::TooOld,
    AbortReason::NeedsLocks,
    AbortReason::LeafFull,
    AbortReason::UniqueViolation,
    AbortReason::User,
];
