//! Motor's switches, phases and reasons to abort.
//!
//! Invariant: the number of each rule and phase is its position in [`SWITCHES`] or [`PHASES`]; a search by its name
//! finds the position.

use crate::cluster::info::{Limit, Only, Switch};
use crate::cluster::rules::Rule;
use crate::cluster::rules::{IN_TEXT, OURS, PUBLISHED, phase_number, rule, rule_number};
use tarn_store::ids::AbortReason;

/// The numbers of Motor's own rules, as positions in its list of rules.
pub(super) mod on {
    use super::*;
    pub const WAIT_FOR_LOCKED: usize = rule_number(SWITCHES, "wait-for-locked");
    pub const STAMP_FIRST: usize = rule_number(SWITCHES, "stamp-first");
    pub const CHECK_HEAD: usize = rule_number(SWITCHES, "check-head");
    pub const TOO_OLD: usize = rule_number(SWITCHES, "too-old");
    pub const AWAIT_REPLICAS: usize = rule_number(SWITCHES, "await-replicas");
    pub const UNDO_LOG: usize = rule_number(SWITCHES, "undo-log");
    pub const READ_TOGETHER: usize = rule_number(SWITCHES, "read-together");
    pub const DELTAS: usize = rule_number(SWITCHES, "deltas");
    pub const AT_ONCE: usize = rule_number(SWITCHES, "at-once");
}

pub(super) const SWITCHES: &[Switch] = &[
    rule(
        "validate-reads",
        "a commit re-reads the head of every record that it read without a lock",
        PUBLISHED,
    ),
    rule(
        "refuse-locked",
        "a transaction that is not declared read-only neither reads nor validates a record that another \
         has locked",
        PUBLISHED,
    ),
    rule(
        "wait-for-locked",
        "a snapshot that meets a lock reads the head again, because the holder may have a timestamp \
         below the snapshot; off: it trusts the head",
        OURS,
    ),
    rule(
        "stamp-first",
        "a commit takes T_commit before it sends validation's READs; off: after they have passed",
        OURS,
    ),
    rule(
        "check-head",
        "a transaction re-reads the head behind a value that may mix moments (several lines, or a delta); \
         off: it checks the STAMP of a value alone, and nothing of a delta",
        OURS,
    ),
    rule(
        "too-old",
        "a snapshot aborts if its version is no longer kept; off: it takes the oldest version that is kept",
        PUBLISHED,
    ),
    rule(
        "await-replicas",
        "the caller gets its reply when every replica has acknowledged the data; off: when the data are \
         posted",
        OURS,
    ),
    rule(
        "unlock-late",
        "a commit releases its locks at the primary when every replica has acknowledged its data; off: in \
         one batch with the data, by WRITE at every replica",
        OURS,
    ),
    rule(
        "undo-log",
        "a commit sends an undo log before the data, in their batch; off: it has no log, and a coordinator \
         that dies in its commit leaves half of it",
        OURS,
    ),
    rule(
        "read-together",
        "a value whose address is known is read in its head's batch; off: in a round of its own",
        OURS,
    ),
    Rule::ProtectAbsent.of(PUBLISHED),
    Rule::ReleaseGranted.of(PUBLISHED),
    Rule::ReleaseOnAbort.of(PUBLISHED),
    Rule::FenceBeforeRecovery.of(PUBLISHED),
    Rule::SettleBeforeLog.of(PUBLISHED),
    Rule::ReleaseOwn.of(PUBLISHED),
    Rule::LockCas.of(PUBLISHED),
    rule(
        "protect-ranges",
        "a commit validates the leaves that its scans have read, or they are of its snapshot; off: it \
         does not notice new records in their ranges",
        PUBLISHED,
    ),
    rule(
        "deltas",
        "older versions are kept as differences; off: every version is whole, and a commit writes it into the \
         place of the oldest",
        PUBLISHED,
    ),
    rule(
        "at-once",
        "a commit writes heads in one batch with the versions that they lead to; off: in a batch of their own, \
         when every replica has acknowledged the log and the versions",
        PUBLISHED,
    ),
    Rule::ShareDoorbells.of(IN_TEXT),
    Rule::ProveAbsent.of(IN_TEXT),
];

/// The numbers of the phases that Motor's own code enters.
pub(super) mod phase {
    use super::*;
    pub const LOCATE: usize = phase_number(PHASES, "locate");
    pub const LOCK: usize = phase_number(PHASES, "lock");
    pub const LOCK_DIRECTORY: usize = phase_number(PHASES, "lock_directory");
    pub const LOOK_AGAIN: usize = phase_number(PHASES, "look_again");
    pub const READ_HEAD: usize = phase_number(PHASES, "read_head");
    pub const READ_VALUE: usize = phase_number(PHASES, "read_value");
    pub const SHOW: usize = phase_number(PHASES, "show");
    pub const UNLOCK: usize = phase_number(PHASES, "unlock");
    pub const UNLOCK_WITH_DATA: usize = phase_number(PHASES, "unlock_with_data");
    pub const VALIDATE: usize = phase_number(PHASES, "validate");
    pub const WRITE: usize = phase_number(PHASES, "write");
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
        why: "locks are released with the data only where records have one copy, and there no memory node dies",
    },
    Limit {
        phase: "show",
        only: Only::InVariant("corrected,-deltas,-at-once"),
        why: "heads are written in their data's batch",
    },
    Limit {
        phase: "scan",
        only: Only::WithOrderedIndexes,
        why: "the phase reads an ordered index",
    },
    Limit {
        phase: "lock_leaf",
        only: Only::WithOrderedIndexes,
        why: "only ordered indexes have leaves",
    },
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
