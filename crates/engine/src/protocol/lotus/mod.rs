//! LOTUS: a protocol with locks in compute nodes and several versions of each record in memory nodes.
//!
//! This implementation follows Hu, Zuo, Hu, Chen, Wang and Yang, "LOTUS: Optimizing Disaggregated Transactions with
//! Disaggregated Locks"; the variant `literal` follows the paper's text exactly. This implementation deviates from
//! the paper where a system that follows the paper's text exactly loses serializability or data. Each deviation is a
//! switch, and each switch that can be turned off is a planted bug (docs/protocols/lotus.md has the table).
//!
//! # Round trips (the RTT budget, asserted by tests/all/rtt_budget.rs)
//!
//! | transaction | rounds until the reply | then |
//! |---|---|---|
//! | read-only, declared | 3: T_start (none from a counter of this process), tables of versions, records | |
//! | not declared, writes nothing | 2: tables, records | unlock |
//! | writes | 5: tables, records; C1 invisible and log, C2 timestamp, C3 decision and backups | C4 visible, unlock |
//! | the version tables are remembered | - 1 | |
//! | another node grants the locks | + 1: the LOCK messages of one fetch and their replies | |
//!
//! The versions of a packed record lie in its version table, so no separate round reads the record. No transaction
//! sends an atomic verb to a memory node.
//!
//! # Not built yet
//! Tables whose slots take several cache lines cannot grow yet.

mod add;
mod cached;
mod commit;
mod execute;
mod find;
mod ideal;
mod insert;
mod nodes;
mod prepare;
mod recover;
mod short;
mod short_commit;
mod snapshot;
mod switches;

pub use switches::Lotus;

use super::Protocol;
use crate::cluster::info::{LockServiceNeed, Needs, ProtocolCaps, ProtocolInfo, Switches};
use crate::cluster::rules::Rule;
use crate::services::lock::name::{LockMode, LockName};
use crate::site::Context;
use crate::steps::Described;
use crate::steps::access::{AtOnce, RecordAccess};
use crate::steps::settle::{Log, Unsettled, is_settled};
use crate::steps::structure::{Part, Structure, buckets, sweeps};
use crate::transaction::lock::LockKind;
use crate::transaction::working_set::{Added, Handle, Txn, Upgrade};
use recover::Left;
use switches::{ABORTS, LIMITS, PHASES, SWITCHES, on};
use tarn_fabric::address::Address;
use tarn_fabric::local::DirectMemory;
use tarn_fabric::round::BufferOffset;
use tarn_locks::service::Kind;
use tarn_store::history::Undone;
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::index::btree::scan::Visit;
use tarn_store::index::growth::{Grown, Shard};
use tarn_store::layout::{LayoutKind, Records, VERSION_AT, Version};
use tarn_store::placement::catalog::{Options, Table};
use tarn_store::placement::shard_map::shard_of_address;
use tarn_store::schema::TableId;

/// The form whose locks FissLock grants (Zhang, Cheng, Chen, Chen, "Fast and Scalable In-network Lock Management Using
/// Lock Fission", OSDI 2024): an experiment (docs/protocols/lotus.md).
const OVER_FISSLOCK: &str = "lotus/fisslock";

impl Described for Lotus {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "lotus",
        citation: "Hu, Zuo, Hu, Chen, Wang, Yang: LOTUS, Optimizing Disaggregated Transactions with Disaggregated Locks",
        caps: ProtocolCaps::ALL,
        switches: SWITCHES,
        phases: PHASES,
        limits: LIMITS,
        aborts: ABORTS,
        // A version was INVISIBLE before recovery undid it, so no transaction has seen it.
        undone: |_, _| None,
        // A node whose mark was not written has not changed.
        undone_node: |old, _| Some(Undone::if_found(nodes::undone_version(old))),
    };

    #[inline(always)]
    fn switches(&self) -> Switches {
        self.switches
    }
}

impl Structure for Lotus {
    #[inline]
    fn shows_leaf(&self, txn: &Txn, visit: Visit) -> Result<bool, AbortReason> {
        if !self.scans_snapshot(txn) {
            return Ok(self.keeps(Rule::ProtectRanges));
        }
        match nodes::is_newer(visit.version, txn.stamps.start) && self.switches.is_on(on::TOO_OLD) {
            true => Err(AbortReason::TooOld),
            false => Ok(false),
        }
    }

    /// A leaf does not show which of its index entries were added or removed, nor when.
    fn takes_leaf(&self, txn: &Txn, version: Version) -> Result<(), AbortReason> {
        match self.starts_writers() && nodes::is_newer(version, txn.stamps.start) {
            true => Err(AbortReason::WriteConflict),
            false => Ok(()),
        }
    }

    #[inline]
    fn commit(&self, cx: &Context, txn: &mut Txn) -> impl Future<Output = Result<(), Failure>> {
        commit::commit(self, cx, txn)
    }

    async fn commit_structure(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        commit::commit_structure(self, cx, txn).await
    }

    /// The transaction sends this READ after its lock is granted; see [`Structure::send`].
    fn ask(
        &self,
        cx: &Context,
        txn: &mut Txn,
        address: Address,
        (kind, len_bytes): (LockKind, usize),
    ) -> (u32, BufferOffset) {
        txn.held.ask(cx, nodes::name(address), shard_of_address(address), LockMode::Write);
        let index = nodes::note_lock(txn, address, kind);
        (index, txn.round.read(cx.groups.primary(address), len_bytes))
    }

    /// Structural transactions lock buckets and records under the same lock names as inserts and writers. The lock of
    /// a slot without a record is the lock of the slot's bucket.
    fn ask_part(
        &self,
        cx: &Context,
        txn: &mut Txn,
        (table, part): (&Table, Part),
        (address, len_bytes): (Address, usize),
    ) -> BufferOffset {
        let id = table.id.0;
        let lock = match part {
            Part::Bucket if self.switches.is_on(on::BUCKET_NAMES) => {
                Some((LockName::bucket(id, address), shard_of_address(address)))
            }
            Part::Bucket => Some((nodes::name(address), shard_of_address(address))),
            Part::Slot(key) => key.map(|key| (LockName::row(id, key), table.shard_of(key))),
        };
        if let Some((name, shard)) =
            lock.filter(|_| part == Part::Bucket || self.switches.is_on(on::LOCK_MOVED))
        {
            txn.held.ask(cx, name, shard, LockMode::Write);
        }
        let kind = if part == Part::Bucket { LockKind::Directory } else { LockKind::Record };
        nodes::note_lock(txn, address, kind);
        txn.round.read(cx.groups.primary(address), len_bytes)
    }

    fn log_bytes(&self, txn: &Txn) -> usize {
        prepare::log_bytes(txn)
    }

    /// All lock requests of the round are granted before the round reads anything.
    async fn send(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        txn.held.collect(cx, txn.tag).await?;
        Ok(cx.port.execute(&mut txn.round).await?)
    }

    async fn await_locks(
        &self,
        cx: &Context,
        txn: &mut Txn,
        first: usize,
    ) -> Result<usize, Failure> {
        self.send(cx, txn).await?;
        let Txn { round, locks, .. } = txn;
        assert!(round.verbs().len() >= locks.len() - first, "a READ a lock, then others");
        for (lock, read) in locks[first..].iter_mut().zip(round.verbs()) {
            lock.old_version = Version::from_word(round.word(read.buffer().plus(VERSION_AT)));
        }
        Ok(locks.len() - first)
    }
}

/// Access to records with several versions, under locks in compute nodes.
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
        short::begin(lotus, cx, txn)
    }

    #[inline]
    fn fetch_near(lotus: &Lotus, cx: &Context, txn: &mut Txn, near: DirectMemory<'_>) -> AtOnce {
        short::end(lotus, cx, txn, near)
    }

    #[inline]
    fn commit_near(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> AtOnce {
        commit::commit_near(lotus, cx, txn)
    }
}

/// The log in which LOTUS records the versions that a transaction writes.
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

    const NAMES: &'static [&'static str] = &[Self::INFO.name, OVER_FISSLOCK];

    fn new(switches: Switches) -> Lotus {
        Lotus { switches, by_service: false }
    }

    fn named(name: &str, switches: Switches) -> Lotus {
        Lotus { switches, by_service: name == OVER_FISSLOCK }
    }

    fn name(&self) -> &'static str {
        if self.by_service { OVER_FISSLOCK } else { Self::INFO.name }
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
        let service =
            LockServiceNeed { kind: Kind::FissLock, frees_at_once: false, copies_unlocked: false };
        Needs { lock_service: self.by_service.then_some(service), ..Needs::LOCKS_AND_TIMESTAMPS }
    }

    fn rollback(&self, cx: &Context, txn: &mut Txn) {
        cached::unchanged(self, cx, txn);
        commit::roll_back(self, cx, txn);
    }

    fn abandon(&self, cx: &Context, txn: &mut Txn) {
        match txn.in_doubt {
            true => commit::abandon(self, cx, txn),
            // Bytes that were prepared but not sent must not be written any more, because the transaction may have
            // lost its locks by now.
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
        // The locks of the previous growth step are released only after all rounds of that step have ended.
        commit::settle_log(self, cx, txn).await?;
        cx.advance_closing();
        let grown = buckets::restructure(self, cx, txn, shard).await;
        if matches!(grown, Err(Failure::Abort(_))) {
            // Either all locks of this step are granted, or none. The next try requests fewer buckets, because a
            // request for fewer locks is refused less often.
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
            // A coordinator that has ended may have left WRITEs on their way. When these WRITEs end, the transaction
            // of that coordinator may become a transaction in doubt. When that transaction is settled, the node may
            // write the transaction's former bytes back.
            true => Ok(!cx.is_closing(coordinator)
                && cx.is_number_free(coordinator).await?
                && !cx.is_closing(coordinator)
                && is_settled(cx, coordinator).await?),
            false => Ok(true),
        }
    }
}
