//! DSLR's switches, phases and reasons to abort.
//!
//! Invariant: the positions of [`On`] and [`Phase`] are those in [`SWITCHES`] and [`PHASES`].

use tarn_store::ids::AbortReason;
use crate::cluster::info::{Limit, Only, Switch};

/// The switches, by position in [`SWITCHES`].
#[derive(Clone, Copy)]
pub(super) enum On {
    WaitTurn = 0,
    PassInTurn = 1,
    ResetAtRest = 2,
    WideCounts = 3,
    ValidateReads = 4,
    RefuseLocked = 5,
    ProtectAbsent = 6,
    ReleaseOnAbort = 7,
    KeepVersion = 8,
    ProtectRanges = 9,
    CheckFences = 10,
    SiblingWithSplit = 11,
}

pub(super) const SWITCHES: &[Switch] = &[
    switch(
        "wait-turn",
        "a lock is held once all are served that came before; off: as soon as its ticket is taken",
    ),
    switch(
        "pass-in-turn",
        "who gives up passes his ticket on when its turn has come; off: at once, as if he had been served",
    ),
    switch(
        "reset-at-rest",
        "counts that have ended are set back when everybody is served; off: at once",
    ),
    switch(
        "wide-counts",
        "counts end at 32768; off: at 32, so that words are set back all the time",
    ),
    switch(
        "validate-reads",
        "absences are looked at again before the commit, and a record that was read and is then to be written is compared; \
         off: both are believed",
    ),
    switch(
        "refuse-locked",
        "what another transaction writes is not taken for unchanged when it is looked at again",
    ),
    switch(
        "protect-absent",
        "an absent read, an insert and a delete protect the bucket's directory record",
    ),
    switch(
        "release-on-abort",
        "an abort releases its locks at all; off: they outlive the transaction",
    ),
    switch(
        "keep-version",
        "a record that comes back counts on from the slot's and its directory's VERSION; \
         off: it begins anew",
    ),
    switch(
        "protect-ranges",
        "the leaves that a scan has read are validated; off: what comes into its range is not noticed",
    ),
    switch(
        "check-fences",
        "a leaf says by its fences which keys it covers; off: what inner nodes led to is believed",
    ),
    switch(
        "sibling-with-split",
        "a split writes the new node and the old one in one transaction; \
         off: the old one first, in a transaction of its own",
    ),
];

/// A switch that `literal` and `measured` keep.
const fn switch(name: &'static str, effect: &'static str) -> Switch {
    Switch { name, effect, in_literal: true, in_measured: true, simulated_only: false }
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
    WaitTurn = 6,
    PassOn = 7,
    SetBack = 8,
    Validate = 9,
    Log = 10,
    Write = 11,
    Unlock = 12,
    Release = 13,
    Resolve = 14,
    Restructure = 15,
    Scan = 16,
    LockLeaf = 17,
}

pub(super) const PHASES: &[&str] = &[
    "locate",
    "read_direct",
    "lock",
    "lock_direct",
    "lock_directory",
    "read_body",
    "wait_turn",
    "pass_on",
    "set_back",
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
