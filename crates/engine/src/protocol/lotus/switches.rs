//! LOTUS and its switches: the names of the switches, its phases, its reasons to abort, and the rules that follow
//! from the switches.
//!
//! Invariant: all other files of LOTUS may use this file, and this file uses none of those files.

use crate::cluster::info::{Isolation, Limit, Only, Switch, Switches};
use crate::cluster::rules::{OURS, PUBLISHED, phase_number, rule, rule_number};
use crate::site::Context;
use crate::steps::settle::is_stray;
use crate::transaction::working_set::{Intent, Txn};
use tarn_store::ids::{AbortReason, Mode};
use tarn_store::layout::{Discards, Rules};

/// The numbers of LOTUS's own rules, as positions in its list of rules.
pub(super) mod on {
    use super::*;
    pub const LOWER_BOUND: usize = rule_number(SWITCHES, "lower-bound");
    pub const ANY_VISIBLE: usize = rule_number(SWITCHES, "any-visible");
    pub const BACKUPS_FIRST: usize = rule_number(SWITCHES, "backups-first");
    pub const KEEP_NEWEST: usize = rule_number(SWITCHES, "keep-newest");
    pub const TOO_OLD: usize = rule_number(SWITCHES, "too-old");
    pub const CHECKSUM: usize = rule_number(SWITCHES, "checksum");
    pub const STRAY_CELLS: usize = rule_number(SWITCHES, "stray-cells");
    pub const NEWEST_IN_SR: usize = rule_number(SWITCHES, "newest-in-sr");
    pub const AWAIT_SURVIVORS: usize = rule_number(SWITCHES, "await-survivors");
    pub const MARK_NODES: usize = rule_number(SWITCHES, "mark-nodes");
    pub const VERSION_CACHE: usize = rule_number(SWITCHES, "version-cache");
    pub const KEEP_UNCHANGED: usize = rule_number(SWITCHES, "keep-unchanged");
    pub const DROP_AT_GRANT: usize = rule_number(SWITCHES, "drop-at-grant");
    pub const WHOLE_DECISION: usize = rule_number(SWITCHES, "whole-decision");
    pub const LOCKS_APART: usize = rule_number(SWITCHES, "locks-apart");
    pub const SECOND_LOOK: usize = rule_number(SWITCHES, "second-look");
    pub const LOCK_MOVED: usize = rule_number(SWITCHES, "lock-moved");
    pub const BUCKET_NAMES: usize = rule_number(SWITCHES, "bucket-names");
    pub const FORGET_MOVED: usize = rule_number(SWITCHES, "forget-moved");
}

pub(super) const SWITCHES: &[Switch] = &[
    rule(
        "lower-bound",
        "a reader passes over an INVISIBLE version only if its lower bound says that it comes later; \
         off: always (L1)",
        OURS,
    ),
    rule(
        "any-visible",
        "recovery commits what a log has decided or any version of which is visible; \
         off: only if all are (L2)",
        OURS,
    ),
    rule(
        "fence-before-recovery",
        "recovery reads nothing before the dead node's access is revoked everywhere; \
         off: the dead, if it still runs, writes on beside it (L3)",
        OURS,
    ),
    rule(
        "backups-first",
        "versions are visible at the backups before they are at the primary; off: in one round (L4)",
        OURS,
    ),
    rule(
        "keep-newest",
        "the newest committed version is never overwritten; off: it is the one that goes (L9)",
        OURS,
    ),
    rule(
        "too-old",
        "what was discarded is missing to a snapshot that needs it; off: it has never been (L9)",
        OURS,
    ),
    rule(
        "checksum",
        "a version's record says whose it is; off: whatever its memory holds is believed (L16)",
        OURS,
    ),
    rule(
        "stray-cells",
        "an INVISIBLE version of a recovered life is none; off: readers wait for it (L21)",
        OURS,
    ),
    rule(
        "settle-before-log",
        "a log area is used again only when what it decided is visible everywhere; off: at once",
        PUBLISHED,
    ),
    rule(
        "release-on-abort",
        "an abort gives up its locks; off: they outlive the transaction",
        PUBLISHED,
    ),
    rule(
        "newest-in-sr",
        "a transaction with locks changes the newest version, however new; \
         off: it is aborted if that is newer than its beginning, which costs a timestamp (L12)",
        OURS,
    ),
    rule(
        "await-survivors",
        "the shards of a dead owner open when nothing that survivors write rests on its grants; \
         off: when it is recovered (L10)",
        OURS,
    ),
    rule(
        "protect-ranges",
        "leaves that a scan has shown are locked, and looked at again under their locks; off: neither",
        PUBLISHED,
    ),
    rule(
        "mark-nodes",
        "a node says that it is being changed before any of it is; off: readers take half a change",
        PUBLISHED,
    ),
    rule(
        "version-cache",
        "version tables of a node's own shards are remembered; off: they are read, which costs a round",
        PUBLISHED,
    ),
    rule(
        "keep-unchanged",
        "what was read without a lock is remembered only if no write was granted meanwhile; off: in any case (L5)",
        OURS,
    ),
    rule(
        "drop-at-grant",
        "a write grant makes what is remembered unusable until the writer's end; off: only grants to others do (L6)",
        OURS,
    ),
    rule(
        "whole-decision",
        "a snapshot believes a decision that all logs of a group have; off: that one has, which may die with its coordinator",
        OURS,
    ),
    rule(
        "locks-apart",
        "a lock costs memory nodes nothing; off: an FAA when a node's first holder comes and its last goes, as with the \
         ideal lock of the paper's comparison",
        PUBLISHED,
    ),
    rule(
        "second-look",
        "who finds a key in no block of a chain without a lock looks whether the bucket was split meanwhile; off: it is absent",
        PUBLISHED,
    ),
    rule(
        "lock-moved",
        "a split locks the records that it moves; off: writers and readers beside it find their slots another's",
        PUBLISHED,
    ),
    rule(
        "bucket-names",
        "a split locks buckets by the names that inserts lock; off: by names of its own",
        PUBLISHED,
    ),
    rule(
        "forget-moved",
        "where a record's version table was is not remembered once a split has moved it; off: it is",
        PUBLISHED,
    ),
];

/// The numbers of the phases that LOTUS's own code enters.
pub(super) mod phase {
    use super::*;
    pub const CACHED: usize = phase_number(PHASES, "cached");
    pub const DECIDE: usize = phase_number(PHASES, "decide");
    pub const INVISIBLE: usize = phase_number(PHASES, "invisible");
    pub const LOCATE: usize = phase_number(PHASES, "locate");
    pub const LOCK: usize = phase_number(PHASES, "lock");
    pub const PROTECT_LEAF: usize = phase_number(PHASES, "protect_leaf");
    pub const READ_DIRECT: usize = phase_number(PHASES, "read_direct");
    pub const READ_RECORD: usize = phase_number(PHASES, "read_record");
    pub const RELEASE: usize = phase_number(PHASES, "release");
    pub const SHOW: usize = phase_number(PHASES, "show");
    pub const SNAPSHOT: usize = phase_number(PHASES, "snapshot");
    pub const STAMP: usize = phase_number(PHASES, "stamp");
}

pub(super) const PHASES: &[&str] = &[
    "lock",
    "locate",
    "read_direct",
    "read_record",
    "snapshot",
    "invisible",
    "stamp",
    "decide",
    "show",
    "release",
    "resolve",
    "scan",
    "protect_leaf",
    "lock_leaf",
    "restructure",
    "cached",
];

pub(super) const LIMITS: &[Limit] = &[
    Limit::SCAN,
    Limit {
        phase: "protect_leaf",
        only: Only::WithOrderedIndexes,
        why: "leaves are of ordered indexes",
    },
    Limit::LOCK_LEAF,
];

pub(super) const ABORTS: &[AbortReason] = &[
    AbortReason::LockRefused,
    AbortReason::TooOld,
    AbortReason::Undecided,
    AbortReason::WrongOwner,
    AbortReason::OwnerLost,
    AbortReason::WriteConflict,
    AbortReason::NeedsLocks,
    AbortReason::VersionChanged,
    AbortReason::ReadLocked,
    AbortReason::StaleAddress,
    AbortReason::IndexChanged,
    AbortReason::LeafFull,
    AbortReason::UniqueViolation,
    AbortReason::User,
];

/// The protocol LOTUS with its switches.
pub struct Lotus {
    pub(super) switches: Switches,
    /// Whether a lock service grants the locks, instead of the tables of compute nodes.
    pub(super) by_service: bool,
}

impl Lotus {
    /// Returns the rules by which LOTUS chooses a version from a version table.
    #[inline]
    pub(super) fn rules(&self) -> Rules {
        let discards =
            if self.switches.is_on(on::TOO_OLD) { Discards::Above } else { Discards::Forgotten };
        let (lower_bound, keep_newest) =
            (self.switches.is_on(on::LOWER_BOUND), self.switches.is_on(on::KEEP_NEWEST));
        Rules { lower_bound, discards, keep_newest }
    }

    /// Returns whether this variant of LOTUS offers only snapshot isolation.
    #[inline]
    pub(super) fn is_snapshot(&self) -> bool {
        self.switches.isolation() == Isolation::SnapshotIsolation
    }

    /// Returns whether transactions that write have a T_start. Transactions with a T_start may not change a record
    /// with a version after T_start.
    #[inline]
    pub(super) fn starts_writers(&self) -> bool {
        self.is_snapshot() || !self.switches.is_on(on::NEWEST_IN_SR)
    }

    /// Returns whether the transaction reads this entry from a snapshot, without a lock.
    #[inline]
    pub(super) fn reads_snapshot(&self, txn: &Txn, index: usize) -> bool {
        self.scans_snapshot(txn) && txn.entries[index].mode == Mode::Read
    }

    /// Returns whether the leaves that this transaction scans belong to its snapshot and are not locked.
    pub(super) fn scans_snapshot(&self, txn: &Txn) -> bool {
        txn.intent == Intent::ReadOnly || self.is_snapshot()
    }

    /// Returns whether a recovered incarnation has left an INVISIBLE version without a log entry. Such a version
    /// without a log entry counts as absent.
    #[inline]
    pub(super) fn is_stray(&self, cx: &Context, txn: u64) -> bool {
        self.switches.is_on(on::STRAY_CELLS) && is_stray(cx, txn)
    }
}

#[inline]
pub(super) fn enter(cx: &Context, phase: usize) {
    cx.metrics.phase(phase);
}
