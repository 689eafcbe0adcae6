//! OOCC's switches, phases and reasons to abort.
//!
//! Invariant: the number of each rule and phase is its position in [`SWITCHES`] or [`PHASES`]; a search by its name
//! finds the position.

use crate::cluster::info::{Limit, Only, Switch};
use crate::cluster::rules::Rule;
use crate::cluster::rules::{OURS, PUBLISHED, phase_number, rule, rule_number};

/// The numbers of OOCC's own rules, as positions in its list of rules.
pub(super) mod on {
    use super::*;
    pub const INTENT: usize = rule_number(SWITCHES, "intent");
    pub const WRITE_UNLOCK: usize = rule_number(SWITCHES, "write-unlock");
    pub const VALIDATE_READ_WRITE: usize = rule_number(SWITCHES, "validate-read-write");
    pub const RAISE_BEFORE_VALIDATION: usize = rule_number(SWITCHES, "raise-before-validation");
    pub const EXCLUSIVE_IF_READS: usize = rule_number(SWITCHES, "exclusive-if-reads");
    pub const WRITER_TAG: usize = rule_number(SWITCHES, "writer-tag");
    pub const FIRST_LINE_FIRST: usize = rule_number(SWITCHES, "first-line-first");
    pub const LEASE: usize = rule_number(SWITCHES, "lease");
    pub const COUNT_FROM_ACKS: usize = rule_number(SWITCHES, "count-from-acks");
    pub const COMPARE_LEASE: usize = rule_number(SWITCHES, "compare-lease");
    pub const REFUSE_INTENT: usize = rule_number(SWITCHES, "refuse-intent");
    pub const FOLLOWED_IS_RELEASED: usize = rule_number(SWITCHES, "followed-is-released");
    pub const HEADER_FIRST: usize = rule_number(SWITCHES, "header-first");
    pub const MARK_DECIDED: usize = rule_number(SWITCHES, "mark-decided");
    pub const IMPLICIT: usize = rule_number(SWITCHES, "implicit");
    pub const COUNT_BEFORE_READING: usize = rule_number(SWITCHES, "count-before-reading");
    pub const ASK_BEHIND_LOCKS: usize = rule_number(SWITCHES, "ask-behind-locks");
    pub const COUNT_AT_ONCE: usize = rule_number(SWITCHES, "count-at-once");
    pub const STILLNESS: usize = rule_number(SWITCHES, "stillness");
    pub const ANNOUNCE_WRITES: usize = rule_number(SWITCHES, "announce-writes");
    pub const EXCLUSIVE_IF_EXPLICIT: usize = rule_number(SWITCHES, "exclusive-if-explicit");
    pub const HALF_LINES: usize = rule_number(SWITCHES, "half-lines");
    pub const TAKE_LOG_BACK: usize = rule_number(SWITCHES, "take-log-back");
}

pub(super) const SWITCHES: &[Switch] = &[
    rule(
        "intent",
        "a transaction that writes every record it reads locks with an intent mark, which lets readers pass; it \
         keeps readers out only when it is about to write; off: every lock keeps readers out from the start",
        PUBLISHED,
    ),
    rule(
        "write-unlock",
        "a transaction whose records all lie on one node, in their only copy, sends data and release in \
         one batch; off: it releases its locks when the data are acknowledged",
        PUBLISHED,
    ),
    rule(
        "validate-read-write",
        "a transaction that writes validates the records that it read without a lock; off: it does \
         not",
        OURS,
    ),
    rule(
        "refuse-locked",
        "a transaction neither reads nor validates a record that another has locked against readers; off: \
         it compares versions only",
        OURS,
    ),
    rule(
        "raise-before-validation",
        "a transaction raises its intent marks to exclusive locks before it validates; off: in \
         the same round",
        OURS,
    ),
    rule(
        "exclusive-if-reads",
        "a transaction that reads a record without writing it keeps readers out of its locked \
         records from the start; off: it lets them pass, too",
        OURS,
    ),
    Rule::CheckLines.of(OURS),
    rule(
        "unlock-late",
        "a transaction releases its locks when every replica has acknowledged its data; off: in one batch \
         with the primary's data, without waiting for the backups",
        OURS,
    ),
    rule(
        "writer-tag",
        "recovery finishes a redo log if a record names the log's transaction as its writer; off: it \
         finishes every redo log",
        OURS,
    ),
    rule(
        "first-line-first",
        "a transaction writes a record's first line, which names the writer, before the others; off: \
         all lines in one WRITE",
        OURS,
    ),
    Rule::FenceBeforeRecovery.of(OURS),
    Rule::SettleBeforeLog.of(PUBLISHED),
    Rule::ReleaseOwn.of(OURS),
    Rule::ReleaseGranted.of(PUBLISHED),
    Rule::KeepVersion.of(PUBLISHED),
    Rule::ProtectAbsent.of(PUBLISHED),
    Rule::LockCas.of(PUBLISHED),
    rule(
        "lease",
        "a writer waits one lease between its locks and its data, and a reader that took no longer skips \
         validation; off: every reader validates, and no writer waits",
        PUBLISHED,
    ),
    rule(
        "count-from-acks",
        "a writer's wait begins when its last lock is acknowledged; off: when it sends the round that \
         asks for locks",
        OURS,
    ),
    rule(
        "compare-lease",
        "a reader validates if the lease's length changed while it read; off: it trusts the length of its \
         beginning",
        OURS,
    ),
    rule(
        "refuse-intent",
        "a transaction that writes refuses a record that it has read and another has marked with intent; \
         off: it passes the mark as readers do",
        OURS,
    ),
    rule(
        "followed-is-released",
        "recovery concludes from a record's later version that the lock was released, even if the \
         LOCK died with its node; off: it trusts LOCK words alone",
        OURS,
    ),
    rule(
        "header-first",
        "growth of an index writes the header, which names the writer, to each copy before the rest; off: \
         after the rest",
        OURS,
    ),
    rule(
        "mark-decided",
        "nodes of ordered indexes do not name their writer, so a transaction that changes them marks a log \
         area of each group as decided before its data there; off: it does not",
        OURS,
    ),
    Rule::ProtectRanges.of(PUBLISHED),
    Rule::CheckFences.of(PUBLISHED),
    Rule::SiblingWithSplit.of(PUBLISHED),
    rule(
        "implicit",
        "leases are implicit: every writer waits; off: explicit: nodes count their readers, and a writer asks \
         all nodes, and waits if one reads its records or does not answer",
        PUBLISHED,
    ),
    rule(
        "count-before-reading",
        "under explicit leases a node counts a reader before it reads; off: after it has read",
        PUBLISHED,
    ),
    rule(
        "ask-behind-locks",
        "under explicit leases a writer asks nodes for their readers when it has all its locks; off: \
         before it asks for the locks",
        PUBLISHED,
    ),
    rule(
        "count-at-once",
        "under explicit leases a reader that goes on to places where it was not counted at its beginning \
         is in no lease; off: it is in lease",
        PUBLISHED,
    ),
    rule(
        "stillness",
        "a reader of near memory in one call skips validation if no write has begun meanwhile; off: if it was \
         in lease",
        OURS,
    ),
    rule(
        "announce-writes",
        "a writer announces its write after its locks and before its data; off: it does not",
        OURS,
    ),
    rule(
        "exclusive-if-explicit",
        "under explicit leases every lock keeps readers out from the start; off: a transaction \
         that writes every record it reads lets them pass there, too, and asks nodes for their readers before it keeps them \
         out",
        PUBLISHED,
    ),
    rule(
        "half-lines",
        "a record that fits half a line takes half a line, and does not name its writer; off: it takes a \
         whole line, which names the writer",
        OURS,
    ),
    rule(
        "take-log-back",
        "a transaction that logged a record without a writer's name, and then does not write it, takes \
         the entry back before it releases a lock; off: it leaves the entry",
        OURS,
    ),
];

/// The numbers of the phases that OOCC's own code enters.
pub(super) mod phase {
    use super::*;
    pub const IN_LEASE: usize = phase_number(PHASES, "in_lease");
    pub const LOG: usize = phase_number(PHASES, "log");
    pub const MARK: usize = phase_number(PHASES, "mark");
    pub const NOBODY_READS: usize = phase_number(PHASES, "nobody_reads");
    pub const RAISE: usize = phase_number(PHASES, "raise");
    pub const STILL: usize = phase_number(PHASES, "still");
    pub const TAKE_BACK: usize = phase_number(PHASES, "take_back");
    pub const UNLOCK: usize = phase_number(PHASES, "unlock");
    pub const UNLOCK_WITH_DATA: usize = phase_number(PHASES, "unlock_with_data");
    pub const VALIDATE: usize = phase_number(PHASES, "validate");
    pub const WAIT_OUT: usize = phase_number(PHASES, "wait_out");
    pub const WRITE: usize = phase_number(PHASES, "write");
}

pub(super) const PHASES: &[&str] = &[
    "locate",
    "read_direct",
    "lock",
    "lock_direct",
    "lock_directory",
    "raise",
    "validate",
    "log",
    "write",
    "unlock",
    "unlock_with_data",
    "release",
    "resolve",
    "in_lease",
    "wait_out",
    "restructure",
    "scan",
    "lock_leaf",
    "mark",
    "nobody_reads",
    "still",
    "take_back",
];

pub(super) const LIMITS: &[Limit] = &[
    Limit::UNLOCK_WITH_DATA,
    Limit {
        phase: "in_lease",
        only: Only::InPassing,
        why: "the transaction commits there, or goes on to validate",
    },
    Limit::SCAN,
    Limit::LOCK_LEAF,
    Limit {
        phase: "nobody_reads",
        only: Only::InVariant("corrected,-implicit"),
        why: "under implicit leases no node is asked for its readers",
    },
    Limit {
        phase: "still",
        only: Only::WhereMemoryIsNear,
        why: "the phase compares a counter of the process, which writers raise",
    },
    Limit {
        phase: "mark",
        only: Only::WithOrderedIndexes,
        why: "only nodes of ordered indexes do not name their writer",
    },
];
