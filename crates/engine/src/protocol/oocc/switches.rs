//! OOCC's switches, phases and reasons to abort.
//!
//! Invariant: each rule's and phase's number is its position in [`SWITCHES`] or [`PHASES`], found by its name.

use crate::cluster::rules::Rule;
use crate::cluster::rules::{OURS, PUBLISHED, phase_number, rule, rule_number};
use crate::cluster::info::{Limit, Only, Switch};

/// The numbers of OOCC's own rules.
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
    rule("intent", "who reads nothing that it does not write locks with a mark that lets readers pass, and keeps them away only when \
         it is about to write; off: every lock keeps readers away from the first", PUBLISHED),
    rule("write-unlock", "data and release are one batch where all of a transaction is on one node, which has the only copy; \
         off: the locks are released when the data are acknowledged", PUBLISHED),
    rule("validate-read-write", "a transaction that writes looks again at what it has read and not locked; off: it does not", OURS),
    rule("refuse-locked", "a record that another has locked against readers is neither read nor validated; off: versions alone are \
         compared", OURS),
    rule("raise-before-validation", "what lets readers pass is raised before what was read is looked at again; off: in the same round", OURS),
    rule("exclusive-if-reads", "who reads anything that it does not write keeps readers away from the first; off: it lets them pass, too", OURS),
    Rule::CheckLines.of(OURS),
    rule("unlock-late", "locks are released when every replica has acknowledged its data; off: in one batch with the primary's data, \
         the backups not awaited", OURS),
    rule("writer-tag", "a redo log is finished if a record shows that its transaction wrote it; off: if there is one", OURS),
    rule("first-line-first", "a record's first line, which names its writer, is written before its others; off: all in one WRITE", OURS),
    Rule::FenceBeforeRecovery.of(OURS),
    Rule::SettleBeforeLog.of(PUBLISHED),
    Rule::ReleaseOwn.of(OURS),
    Rule::ReleaseGranted.of(PUBLISHED),
    Rule::KeepVersion.of(PUBLISHED),
    Rule::ProtectAbsent.of(PUBLISHED),
    Rule::LockCas.of(PUBLISHED),
    rule("lease", "writers wait a lease between their locks and their data, and whoever reads for no longer than that does not \
         look again; off: everybody looks again, and nobody waits", PUBLISHED),
    rule("count-from-acks", "a writer's wait begins when its last lock is acknowledged; off: when the round that asks for locks is sent", OURS),
    rule("compare-lease", "a reader looks again if leases have changed while it read; off: it believes the length of when it began", OURS),
    rule("refuse-intent", "who writes refuses to have read what another is going to write; off: he passes it as readers do", OURS),
    rule("followed-is-released", "recovery takes it from a record's later version that its lock was given back, also where the LOCK died with its \
         node; off: LOCK words alone say so", OURS),
    rule("header-first", "of what the growth of an index changes, each copy gets the header first, which names who changed it; off: last", OURS),
    rule("mark-decided", "who changes nodes of an ordered index, none of which names its writer, marks a log area of each group in front of its \
         data there: it was decided to commit; off: it does not", OURS),
    Rule::ProtectRanges.of(PUBLISHED),
    Rule::CheckFences.of(PUBLISHED),
    Rule::SiblingWithSplit.of(PUBLISHED),
    rule("implicit", "leases are implicit: a writer waits whether anybody reads or not; off: explicit: nodes count what they read, a \
         writer asks them, and waits if one reads what he writes, or does not say", PUBLISHED),
    rule("count-before-reading", "under explicit leases a reader is counted before it reads; off: when it has read", PUBLISHED),
    rule("ask-behind-locks", "under explicit leases a writer asks who reads when it has all of its locks; off: before it asks for them", PUBLISHED),
    rule("count-at-once", "under explicit leases who reads more than he was counted at when he began to read is in no lease; off: he is", PUBLISHED),
    rule("stillness", "who reads near memory by one call does not look again if nobody has begun to write meanwhile; off: if he was in lease", OURS),
    rule("announce-writes", "a writer says, behind its locks and before its data, that it begins to write; off: it does not", OURS),
    rule("exclusive-if-explicit", "under explicit leases every lock keeps readers away from the first; off: who reads nothing lets them pass there, too, and \
         asks who reads before he keeps them away", PUBLISHED),
    rule("half-lines", "a record that half a line has room for takes no more, and does not say who wrote it; off: a whole line, which does", OURS),
    rule("take-log-back", "who has logged a record that names nobody, and does not write it, takes the entry back before it releases a lock; off: it leaves it", OURS),
];

/// The numbers of the phases that OOCC enters itself.
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
        why: "a transaction commits there, or goes on to what it has to look at again",
    },
    Limit::SCAN,
    Limit::LOCK_LEAF,
    Limit {
        phase: "nobody_reads",
        only: Only::InVariant("corrected,-implicit"),
        why: "under implicit leases nobody is asked whether he reads",
    },
    Limit {
        phase: "still",
        only: Only::WhereMemoryIsNear,
        why: "it compares a word of the process that writers raise",
    },
    Limit { phase: "mark", only: Only::WithOrderedIndexes, why: "its nodes do not say who wrote them" },
];
