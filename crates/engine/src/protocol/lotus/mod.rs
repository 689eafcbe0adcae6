//! LOTUS: locks in compute nodes, several versions in memory nodes.
//!
//! After Hu, Zuo, Hu, Chen, Wang and Yang, "LOTUS: Optimizing Disaggregated Transactions with Disaggregated Locks";
//! the variant `literal` is the paper's text. Where that text, read literally, loses serializability or data, we
//! deviate; each deviation is a switch, and each switch that can be taken off is a planted bug
//! (docs/protocols/lotus.md has the table).
//!
//! # Round trips until the reply
//!
//! | transaction | rounds | then |
//! |---|---|---|
//! | read-only, declared | T_start (0 from a counter), table of versions, record | |
//! | not declared, writes nothing | locks (0 if they are this node's), tables, records | unlock |
//! | writes | locks, tables, records; C1 invisible and log, C2 timestamp, C3 decision and backups | C4 visible, unlock |
//!
//! A packed record's versions lie in its table: there is no round for the record. No verb of a transaction is an
//! atomic of a memory node.
//!
//! # Not built yet
//! Growth of tables whose slots take several lines.

mod add;
mod cached;
mod commit;
mod execute;
mod find;
mod ideal;
mod insert;
mod near;
mod near_commit;
mod nodes;
mod prepare;
mod recover;
mod short;
mod short_commit;
mod snapshot;

use crate::cluster::rules::Rule;
use crate::steps::access::AtOnce;
use crate::steps::Described;
use crate::steps::settle::{Log, Unsettled, is_settled, is_stray};
use crate::cluster::rules::{OURS, PUBLISHED, phase_number, rule, rule_number};
use crate::cluster::info::{Isolation, Limit, Needs, Only, ProtocolCaps, ProtocolInfo, Switch, Switches};
use super::Protocol;
use tarn_store::placement::catalog::{Options, Table};
use crate::site::Context;
use crate::steps::access::RecordAccess;
use tarn_store::history::Undone;
use tarn_store::index::growth::{Grown, Shard};
use tarn_store::layout::{Discards, LayoutKind, Records, Rules};
use tarn_store::ids::{AbortReason, Failure, Mode};
use tarn_store::schema::TableId;
use crate::steps::structure::{buckets, sweeps};
use crate::transaction::working_set::{Added, Entry, Upgrade, Handle, Txn};
use recover::Left;
use tarn_fabric::local::DirectMemory;
use tarn_fabric::address::Address;

/// The numbers of its own rules.
mod on {
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

const SWITCHES: &[Switch] = &[
    rule("lower-bound", "a reader passes over an INVISIBLE version only if its lower bound says that it comes later; \
         off: always (L1)", OURS),
    rule("any-visible", "recovery commits what a log has decided or any version of which is visible; \
         off: only if all are (L2)", OURS),
    rule("fence-before-recovery", "recovery reads nothing before the dead node's access is revoked everywhere; \
         off: the dead, if it still runs, writes on beside it (L3)", OURS),
    rule("backups-first", "versions are visible at the backups before they are at the primary; off: in one round (L4)", OURS),
    rule("keep-newest", "the newest committed version is never overwritten; off: it is the one that goes (L9)", OURS),
    rule("too-old", "what was discarded is missing to a snapshot that needs it; off: it has never been (L9)", OURS),
    rule("checksum", "a version's record says whose it is; off: whatever its memory holds is believed (L16)", OURS),
    rule("stray-cells", "an INVISIBLE version of a recovered life is none; off: readers wait for it (L21)", OURS),
    rule("settle-before-log", "a log area is used again only when what it decided is visible everywhere; off: at once", PUBLISHED),
    rule("release-on-abort", "an abort gives up its locks; off: they outlive the transaction", PUBLISHED),
    rule("newest-in-sr", "a transaction with locks changes the newest version, however new; \
         off: it is aborted if that is newer than its beginning, which costs a timestamp (L12)", OURS),
    rule("await-survivors", "the shards of a dead owner open when nothing that survivors write rests on its grants; \
         off: when it is recovered (L10)", OURS),
    rule("protect-ranges", "leaves that a scan has shown are locked, and looked at again under their locks; off: neither", PUBLISHED),
    rule("mark-nodes", "a node says that it is being changed before any of it is; off: readers take half a change", PUBLISHED),
    rule("version-cache", "version tables of a node's own shards are remembered; off: they are read, which costs a round", PUBLISHED),
    rule("keep-unchanged", "what was read without a lock is remembered only if no write was granted meanwhile; off: in any case (L5)", OURS),
    rule("drop-at-grant", "a write grant makes what is remembered unusable until the writer's end; off: only grants to others do (L6)", OURS),
    rule("whole-decision", "a snapshot believes a decision that all logs of a group have; off: that one has, which may die with its coordinator", OURS),
    rule("locks-apart", "a lock costs memory nodes nothing; off: an FAA when a node's first holder comes and its last goes, as with the \
         ideal lock of the paper's comparison", PUBLISHED),
    rule("second-look", "who finds a key in no block of a chain without a lock looks whether the bucket was split meanwhile; off: it is absent", PUBLISHED),
    rule("lock-moved", "a split locks the records that it moves; off: writers and readers beside it find their slots another's", PUBLISHED),
    rule("bucket-names", "a split locks buckets by the names that inserts lock; off: by names of its own", PUBLISHED),
    rule("forget-moved", "where a record's version table was is not remembered once a split has moved it; off: it is", PUBLISHED),
];

/// The numbers of the phases that it enters itself.
mod phase {
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

const PHASES: &[&str] = &[
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

const LIMITS: &[Limit] = &[
    Limit::SCAN,
    Limit { phase: "protect_leaf", only: Only::WithOrderedIndexes, why: "leaves are of ordered indexes" },
    Limit::LOCK_LEAF,
];

const ABORTS: &[AbortReason] = &[
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

/// The protocol with its switches.
pub struct Lotus {
    switches: Switches,
}

impl Lotus {
    /// Which rules versions are chosen by.
    #[inline]
    fn rules(&self) -> Rules {
        let discards = if self.switches.is_on(on::TOO_OLD) { Discards::Above } else { Discards::Forgotten };
        let (lower_bound, keep_newest) = (self.switches.is_on(on::LOWER_BOUND), self.switches.is_on(on::KEEP_NEWEST));
        Rules { lower_bound, discards, keep_newest }
    }

    /// Whether it offers snapshot isolation and no more.
    #[inline]
    fn is_snapshot(&self) -> bool {
        self.switches.isolation() == Isolation::SnapshotIsolation
    }

    /// Whether transactions that write have a T_start: what they change must not be newer.
    #[inline]
    fn starts_writers(&self) -> bool {
        self.is_snapshot() || !self.switches.is_on(on::NEWEST_IN_SR)
    }

    /// Whether this entry of a transaction that may write is read from its snapshot, without a lock.
    #[inline]
    fn reads_snapshot(&self, entry: &Entry) -> bool {
        self.is_snapshot() && entry.mode == Mode::Read
    }

    /// Whether an INVISIBLE version is what a recovered life left without a log: none.
    #[inline]
    fn is_stray(&self, cx: &Context, txn: u64) -> bool {
        self.switches.is_on(on::STRAY_CELLS) && is_stray(cx, txn)
    }
}

#[inline]
fn enter(cx: &Context, phase: usize) {
    cx.metrics.phase(phase);
}

impl Described for Lotus {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "lotus",
        citation: "Hu, Zuo, Hu, Chen, Wang, Yang: LOTUS, Optimizing Disaggregated Transactions with Disaggregated Locks",
        caps: ProtocolCaps::ALL,
        switches: SWITCHES,
        phases: PHASES,
        limits: LIMITS,
        aborts: ABORTS,
        // What is undone was INVISIBLE, and nobody has seen it.
        undone: |_, _| None,
        // A node that no mark has reached is as it was.
        undone_node: |old, _| Some(Undone::if_found(nodes::undone_version(old))),
    };

    #[inline(always)]
    fn switches(&self) -> Switches {
        self.switches
    }
}

/// Records with several versions, under locks in compute nodes.
pub struct Versions;

impl RecordAccess<Lotus> for Versions {
    #[inline(always)]
    fn add(_: &Lotus, cx: &Context, txn: &mut Txn, table: &Table, added: Added) -> Handle {
        add::add(cx, txn, table, added)
    }

    fn upgrade(_: &Lotus, cx: &Context, txn: &mut Txn, index: usize, further: Upgrade) {
        add::upgrade(cx, txn, index, further);
    }

    #[inline]
    fn fetch(
        lotus: &Lotus,
        cx: &Context,
        txn: &mut Txn,
    ) -> impl Future<Output = Result<(), Failure>> {
        execute::fetch(lotus, cx, txn)
    }

    #[inline]
    fn is_committed(_: &Lotus, txn: &Txn) -> bool {
        txn.held.is_empty()
    }

    async fn validate(_: &Lotus, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        txn.held.check(cx)
    }

    #[inline]
    fn ask_near<'a>(lotus: &Lotus, cx: &'a Context, txn: &mut Txn) -> Option<DirectMemory<'a>> {
        near::begin(lotus, cx, txn)
    }

    #[inline]
    fn fetch_near(lotus: &Lotus, cx: &Context, txn: &mut Txn, near: DirectMemory<'_>) -> AtOnce {
        near::end(lotus, cx, txn, near)
    }

    #[inline]
    fn commit_near(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> AtOnce {
        near_commit::commit(lotus, cx, txn)
    }
}

/// The log of versions.
pub struct VersionLog;

impl Log<Lotus> for VersionLog {
    type Entry = Left;

    async fn decide(
        lotus: &Lotus,
        cx: &Context,
        left: &mut [Unsettled<Left>],
    ) -> Result<(), Failure> {
        recover::decide(lotus, cx, left).await
    }

    async fn apply(_: &Lotus, cx: &Context, left: &[Unsettled<Left>]) -> Result<(), Failure> {
        recover::apply(cx, left).await
    }

    async fn release(_: &Lotus, cx: &Context, left: &[Unsettled<Left>]) -> Result<(), Failure> {
        recover::release(cx, left).await;
        Ok(())
    }
}

impl Protocol for Lotus {
    type Records = Versions;
    type Log = VersionLog;

    fn new(switches: Switches) -> Lotus {
        Lotus { switches }
    }

    fn layout(&self, asked: &Options) -> LayoutKind {
        match asked.layout {
            several @ LayoutKind::MultiVersion { .. } => several,
            LayoutKind::SingleVersion
            | LayoutKind::Ticketed
            | LayoutKind::Deltas { .. }
            | LayoutKind::Wholes { .. }
            | LayoutKind::Lined { .. } => {
                LayoutKind::MultiVersion { cells: 2, records: Records::Auto }
            }
        }
    }

    fn needs(&self) -> Needs {
        Needs::LOCKS_AND_TIMESTAMPS
    }

    fn rollback(&self, cx: &Context, txn: &mut Txn) {
        cached::unchanged(self, cx, txn);
        commit::roll_back(self, cx, txn);
    }

    fn abandon(&self, cx: &Context, txn: &mut Txn) {
        match txn.in_doubt {
            true => commit::abandon(self, cx, txn),
            // What is prepared and not sent is nobody's affair: the locks may not hold any more.
            false => self.rollback(cx, txn),
        }
    }

    async fn restructure(
        &self,
        cx: &Context,
        txn: &mut Txn,
        shard: Shard,
    ) -> Result<Grown, Failure> {
        if !find::may_grow(cx.table(shard.table)) {
            return Ok(Grown::TooLarge);
        }
        // The locks of the growth before are given up when all of it is over.
        commit::settle_log(self, cx, txn).await?;
        cx.advance_closing();
        let grown = buckets::restructure(self, cx, txn, shard).await;
        if matches!(grown, Err(Failure::Abort(_))) {
            // Locks come all or none: a shorter row is refused less often.
            cx.growth.note_fit(shard, false);
        }
        grown
    }

    async fn sweep(
        &self,
        cx: &Context,
        txn: &mut Txn,
        bucket: (TableId, Address),
    ) -> Result<usize, Failure> {
        commit::settle_log(self, cx, txn).await?;
        cx.advance_closing();
        sweeps::sweep(self, cx, txn, bucket).await
    }

    async fn may_log(&self, cx: &Context, coordinator: u32) -> Result<bool, Failure> {
        match self.keeps(Rule::SettleBeforeLog) {
            // A coordinator that is no more may have left writes on their way. As they end its transaction may
            // go in doubt, and as that is settled what was there before be written back.
            true => Ok(!cx.is_closing(coordinator)
                && cx.is_number_free(coordinator).await?
                && !cx.is_closing(coordinator)
                && is_settled(cx, coordinator).await?),
            false => Ok(true),
        }
    }
}
