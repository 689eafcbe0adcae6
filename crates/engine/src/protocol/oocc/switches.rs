//! OOCC's switches, phases and reasons to abort.
//!
//! Invariant: the positions of [`On`] and [`Phase`] are those in [`SWITCHES`] and [`PHASES`].

use tarn_store::ids::AbortReason;
use crate::cluster::info::{Limit, Only, Switch};

/// The switches, by position in [`SWITCHES`].
#[derive(Clone, Copy)]
pub(super) enum On {
    Intent = 0,
    WriteUnlock = 1,
    ValidateReadWrite = 2,
    RefuseLocked = 3,
    RaiseBeforeValidation = 4,
    ExclusiveIfReads = 5,
    CheckLines = 6,
    UnlockLate = 7,
    WriterTag = 8,
    FirstLineFirst = 9,
    FenceBeforeRecovery = 10,
    SettleBeforeLog = 11,
    ReleaseOwn = 12,
    ReleaseGranted = 13,
    KeepVersion = 14,
    ProtectAbsent = 15,
    LockCas = 16,
    Lease = 17,
    CountFromAcks = 18,
    CompareLease = 19,
    RefuseIntent = 20,
    FollowedIsReleased = 21,
    HeaderFirst = 22,
    MarkDecided = 23,
    ProtectRanges = 24,
    CheckFences = 25,
    SiblingWithSplit = 26,
    Implicit = 27,
    CountBeforeReading = 28,
    AskBehindLocks = 29,
    CountAtOnce = 30,
    Stillness = 31,
    AnnounceWrites = 32,
    ExclusiveIfExplicit = 33,
    HalfLines = 34,
    TakeLogBack = 35,
}

pub(super) const SWITCHES: &[Switch] = &[
    switch(
        "intent",
        "who reads nothing that it does not write locks with a mark that lets readers pass, and keeps them away only when \
         it is about to write; off: every lock keeps readers away from the first",
        true,
    ),
    switch(
        "write-unlock",
        "data and release are one batch where all of a transaction is on one node, which has the only copy; \
         off: the locks are released when the data are acknowledged",
        true,
    ),
    switch(
        "validate-read-write",
        "a transaction that writes looks again at what it has read and not locked; off: it does not",
        false,
    ),
    switch(
        "refuse-locked",
        "a record that another has locked against readers is neither read nor validated; off: versions alone are \
         compared",
        false,
    ),
    switch(
        "raise-before-validation",
        "what lets readers pass is raised before what was read is looked at again; off: in the same round",
        false,
    ),
    switch(
        "exclusive-if-reads",
        "who reads anything that it does not write keeps readers away from the first; off: it lets them pass, too",
        false,
    ),
    switch(
        "check-lines",
        "the versions of a record's lines are compared; off: what one READ brings is taken for of one moment",
        false,
    ),
    switch(
        "unlock-late",
        "locks are released when every replica has acknowledged its data; off: in one batch with the primary's data, \
         the backups not awaited",
        false,
    ),
    switch(
        "writer-tag",
        "a redo log is finished if a record shows that its transaction wrote it; off: if there is one",
        false,
    ),
    switch(
        "first-line-first",
        "a record's first line, which names its writer, is written before its others; off: all in one WRITE",
        false,
    ),
    switch(
        "fence-before-recovery",
        "recovery reads nothing before the dead node's access is revoked everywhere; \
         off: the dead, if it still runs, writes on beside it",
        false,
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
        false,
    ),
    switch(
        "release-granted",
        "an abort releases the locks that were granted, by CAS of its own tag; \
         off: it clears every lock that it asked for",
        true,
    ),
    switch(
        "keep-version",
        "a record that comes back counts on from the slot's and its directory's VERSION; \
         off: it begins anew",
        true,
    ),
    switch(
        "protect-absent",
        "an absent read, an insert and a delete protect the bucket's directory record",
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
        "lease",
        "writers wait a lease between their locks and their data, and whoever reads for no longer than that does not \
         look again; off: everybody looks again, and nobody waits",
        true,
    ),
    switch(
        "count-from-acks",
        "a writer's wait begins when its last lock is acknowledged; off: when the round that asks for locks is sent",
        false,
    ),
    switch(
        "compare-lease",
        "a reader looks again if leases have changed while it read; off: it believes the length of when it began",
        false,
    ),
    switch(
        "refuse-intent",
        "who writes refuses to have read what another is going to write; off: he passes it as readers do",
        false,
    ),
    switch(
        "followed-is-released",
        "recovery takes it from a record's later version that its lock was given back, also where the LOCK died with its \
         node; off: LOCK words alone say so",
        false,
    ),
    switch(
        "header-first",
        "of what the growth of an index changes, each copy gets the header first, which names who changed it; off: last",
        false,
    ),
    switch(
        "mark-decided",
        "who changes nodes of an ordered index, none of which names its writer, marks a log area of each group in front of its \
         data there: it was decided to commit; off: it does not",
        false,
    ),
    switch(
        "protect-ranges",
        "the leaves that a scan has read are validated; off: what comes into its range is not noticed",
        true,
    ),
    switch(
        "check-fences",
        "a leaf says by its fences which keys it covers; off: what inner nodes led to is believed",
        true,
    ),
    switch(
        "sibling-with-split",
        "a split writes the new node and the old one in one transaction; \
         off: the old one first, in a transaction of its own",
        true,
    ),
    switch(
        "implicit",
        "leases are implicit: a writer waits whether anybody reads or not; off: explicit: nodes count what they read, a \
         writer asks them, and waits if one reads what he writes, or does not say",
        true,
    ),
    switch(
        "count-before-reading",
        "under explicit leases a reader is counted before it reads; off: when it has read",
        true,
    ),
    switch(
        "ask-behind-locks",
        "under explicit leases a writer asks who reads when it has all of its locks; off: before it asks for them",
        true,
    ),
    switch(
        "count-at-once",
        "under explicit leases who reads more than he was counted at when he began to read is in no lease; off: he is",
        true,
    ),
    switch(
        "stillness",
        "who reads near memory by one call does not look again if nobody has begun to write meanwhile; off: if he was in lease",
        false,
    ),
    switch(
        "announce-writes",
        "a writer says, behind its locks and before its data, that it begins to write; off: it does not",
        false,
    ),
    switch(
        "exclusive-if-explicit",
        "under explicit leases every lock keeps readers away from the first; off: who reads nothing lets them pass there, too, and \
         asks who reads before he keeps them away",
        true,
    ),
    switch(
        "half-lines",
        "a record that half a line has room for takes no more, and does not say who wrote it; off: a whole line, which does",
        false,
    ),
    switch(
        "take-log-back",
        "who has logged a record that names nobody, and does not write it, takes the entry back before it releases a lock; off: it leaves it",
        false,
    ),
];

/// A switch that the paper's text has, or not. Nobody else has measured it: there is no other public form.
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
    ReadDirect = 1,
    Lock = 2,
    LockDirect = 3,
    LockDirectory = 4,
    Raise = 5,
    Validate = 6,
    Log = 7,
    Write = 8,
    Unlock = 9,
    UnlockWithData = 10,
    Release = 11,
    Resolve = 12,
    InLease = 13,
    WaitOut = 14,
    Restructure = 15,
    Scan = 16,
    LockLeaf = 17,
    Mark = 18,
    NobodyReads = 19,
    Still = 20,
    TakeBack = 21,
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
    Limit {
    phase: "unlock_with_data",
    only: Only::WithoutMemoryDeath,
    why: "locks are released together with the data where there is one copy, and where there is one \
          copy no memory node dies",
    },
    Limit {
        phase: "in_lease",
        only: Only::InPassing,
        why: "a transaction commits there, or goes on to what it has to look at again",
    },
    Limit { phase: "scan", only: Only::WithOrderedIndexes, why: "it reads an ordered index" },
    Limit { phase: "lock_leaf", only: Only::WithOrderedIndexes, why: "leaves are of ordered indexes" },
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
