//! OCC's switches, phases and reasons to abort.
//!
//! Invariant: the positions of [`On`] and [`Phase`] are those in [`SWITCHES`] and [`PHASES`].

use tarn_store::ids::AbortReason;
use crate::cluster::info::{Limit, Only, Switch};

/// The switches, by position in [`SWITCHES`].
#[derive(Clone, Copy)]
pub(super) enum On {
    ValidateReads = 0,
    RefuseLocked = 1,
    UnlockLate = 2,
    ReleaseGranted = 3,
    LogAfterValidation = 4,
    ProtectAbsent = 5,
    ReleaseOnAbort = 6,
    LockCas = 7,
    FenceBeforeRecovery = 8,
    SettleBeforeLog = 9,
    ReleaseOwn = 10,
    KeepVersion = 11,
    ProtectRanges = 12,
    CheckFences = 13,
    SiblingWithSplit = 14,
}

pub(super) const SWITCHES: &[Switch] = &[
    switch(
        "validate-reads",
        "commit re-reads the version of every record that was read and not locked",
        (true, true),
    ),
    switch(
        "refuse-locked",
        "a record locked by another transaction is neither read nor validated",
        (true, true),
    ),
    switch(
        "unlock-late",
        "locks are released when every replica has acknowledged its data; \
         off: in one batch with the primary's data",
        (false, false),
    ),
    switch(
        "release-granted",
        "an abort releases the locks that were granted, by CAS of its own tag; \
         off: it clears every lock that it asked for",
        (true, true),
    ),
    switch(
        "log-after-validation",
        "the undo log is sent when validation has passed; \
         off: before, and who aborts leaves one",
        (false, false),
    ),
    switch(
        "protect-absent",
        "an absent read, an insert and a delete protect the bucket's directory record",
        (true, true),
    ),
    switch(
        "release-on-abort",
        "an abort releases its locks at all; off: they outlive the transaction",
        (true, true),
    ),
    Switch {
        simulated_only: true,
        ..switch(
            "lock-cas",
            "a lock is taken by CAS; off: it is only assumed, and transactions are not isolated",
            (true, true),
        )
    },
    switch(
        "fence-before-recovery",
        "recovery reads nothing before the dead node's access is revoked everywhere; \
         off: the dead, if it still runs, writes on beside it",
        (false, false),
    ),
    switch(
        "settle-before-log",
        "a log area is used again only when nobody needs what it holds: earlier unlocks have settled, \
         the recovery of a dead coordinator of the same number is over; off: at once",
        (true, true),
    ),
    switch(
        "release-own",
        "recovery takes away only locks that carry the dead transaction's tag, by CAS; \
         off: it clears the LOCK of every record in the log, whoever holds it by now",
        (false, false),
    ),
    switch(
        "keep-version",
        "a record that comes back counts on from the slot's and its directory's VERSION; \
         off: it begins anew",
        (true, true),
    ),
    switch(
        "protect-ranges",
        "the leaves that a scan has read are validated; off: what comes into its range is not noticed",
        (true, true),
    ),
    switch(
        "check-fences",
        "a leaf says by its fences which keys it covers; off: what inner nodes led to is believed",
        (true, true),
    ),
    switch(
        "sibling-with-split",
        "a split writes the new node and the old one in one transaction; \
         off: the old one first, in a transaction of its own",
        (true, true),
    ),
];

/// A switch that `literal` and `measured` keep, or do not.
const fn switch(
    name: &'static str,
    effect: &'static str,
    (in_literal, in_measured): (bool, bool),
) -> Switch {
    Switch { name, effect, in_literal, in_measured, simulated_only: false }
}

/// The phases, in the order of [`PHASES`].
#[derive(Clone, Copy)]
pub(super) enum Phase {
    Locate = 0,
    ReadDirect = 1,
    Lock = 2,
    LockDirect = 3,
    LockDirectory = 4,
    ReadBody = 5,
    Validate = 6,
    Log = 7,
    Write = 8,
    Unlock = 9,
    Release = 10,
    Resolve = 11,
    Restructure = 12,
    Scan = 13,
    LockLeaf = 14,
}

pub(super) const PHASES: &[&str] = &[
    "locate",
    "read_direct",
    "lock",
    "lock_direct",
    "lock_directory",
    "read_body",
    "validate",
    "log",
    "write",
    "unlock",
    "release",
    "resolve",
    "restructure",
    "scan",
    "lock_leaf",
];

pub(super) const LIMITS: &[Limit] = &[
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
    AbortReason::LeafFull,
    AbortReason::UniqueViolation,
    AbortReason::User,
];
