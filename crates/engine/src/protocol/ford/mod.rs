//! FORD: the locks lie beside records with one version, and FORD uses only one-sided verbs.
//!
//! This implementation follows Zhang, Hua, Zuo and Liu, "FORD: Fast One-sided RDMA-based Distributed Transactions for
//! Disaggregated Persistent Memory", FAST 2022. The variant `literal` follows the paper's text exactly. The variant
//! `measured` follows the public code that later papers measured (`published.rs` has the steps that only this variant
//! takes). Some classes of bugs were found in this public code (Pandora, reported for one-sided transactions; see
//! docs/protocols/ford.md). The variants of FORD keep these classes of bugs as planted bugs.
//!
//! # Round trips (the RTT budget, asserted by tests/all/rtt_budget.rs)
//!
//! | transaction | rounds until the reply | then |
//! |---|---|---|
//! | read-only, one record | 1 | |
//! | read-only, several records | 2: read, validate | |
//! | write, address known, nothing else read | 2: lock + read, log + write | unlock |
//! | write, address known, others read | 3: lock + read, validate, log + write | unlock |
//! | write, address unknown | + 1: the record's bin | |
//! | record away from its home, or absent | + 1: its bucket; + 1 for each overflow block | |
//! | payload of its own (rows beyond 104 B) | + 1 when its address is unknown | |
//! | write, all of it on one node, which has the only copy | as above | nothing: unlocked in the data's batch |
//! | abort | 1 at lock, 2 at validation | release |
//! | own abort | + 1: validate, as a commit would: none after one record that was only read, or if all that was read is locked | release |
//! | split of a bucket, before the next transaction | 4: header, buckets, slots, log + write; + 1 for each overflow block | unlock |
//!
//! The numbers of rounds of a FORD transaction are the same for every number of replicas. The undo log needs no
//! separate round, because at every node it precedes the data in the same batch (see [`tarn_store::log`]).
//!
//! # Deviations from the published system, each a switch
//! See [`Ford::INFO`](crate::steps::Described::INFO).

mod commit;
mod published;
mod short;

use super::Protocol;
use crate::cluster::info::{Limit, Only, ProtocolInfo, Switch, Switches};
use crate::cluster::rules::{
    IN_CODE, IN_TEXT, OURS, PUBLISHED, Rule, phase_number, rule, rule_number,
};
use crate::site::Context;
use crate::steps::Described;
use crate::steps::access::{self, Access, Validated};
use crate::steps::locks::ByCas;
use crate::steps::settle::undo::{IN_PLACE, UndoLog};
use crate::steps::structure::Structure;
use crate::transaction::working_set::Txn;
use tarn_fabric::round::BufferOffset;
use tarn_store::ids::{AbortReason, Failure};

/// The numbers of FORD's own rules, as positions in its list of rules.
mod on {
    use super::*;
    pub const WRITE_AFTER_VALIDATION: usize = rule_number(SWITCHES, "write-after-validation");
    pub const FUSE_LOG: usize = rule_number(SWITCHES, "fuse-log");
    pub const LOG_EVERY_GROUP: usize = rule_number(SWITCHES, "log-every-group");
    pub const WRITE_CHANGES_ONLY: usize = rule_number(SWITCHES, "write-changes-only");
    pub const LOCK_AT_PRIMARY: usize = rule_number(SWITCHES, "lock-at-primary");
    pub const AWAIT_LOG: usize = rule_number(SWITCHES, "await-log");
    pub const VALIDATE_AFTER_LOCKS: usize = rule_number(SWITCHES, "validate-after-locks");
}

const SWITCHES: &[Switch] = &[
    Rule::ValidateReads.of(PUBLISHED),
    Rule::RefuseLocked.of(PUBLISHED),
    Rule::UnlockLate.of(IN_CODE),
    Rule::ReleaseGranted.of(PUBLISHED),
    rule(
        "write-after-validation",
        "a commit writes its data when validation has passed; off: before validation, and an \
         abort loses the rollback",
        PUBLISHED,
    ),
    rule(
        "fuse-log",
        "the undo log travels in the data's batch; \
         off: in a round of its own before validation",
        OURS,
    ),
    Rule::ProtectAbsent.of(PUBLISHED),
    Rule::ReleaseOnAbort.of(PUBLISHED),
    rule(
        "log-every-group",
        "the replicas of every written group get a log of their own; off: only the replicas of \
         one group",
        IN_TEXT,
    ),
    rule(
        "write-changes-only",
        "a replica gets the bytes up to the last change; off: it gets the whole item, and a READ \
         flushes it at the last record's backups",
        IN_TEXT,
    ),
    rule(
        "lock-at-primary",
        "LOCK lives at the primary, where a CAS releases it; off: a WRITE sets every replica's \
         LOCK before its data, and a WRITE clears it",
        IN_TEXT,
    ),
    Rule::LockCas.of(PUBLISHED),
    Rule::FenceBeforeRecovery.of(PUBLISHED),
    Rule::SettleBeforeLog.of(PUBLISHED),
    Rule::ReleaseOwn.of(PUBLISHED),
    rule(
        "validate-after-locks",
        "a commit validates its reads when it holds all locks; off: in the round that still takes \
         locks",
        PUBLISHED,
    ),
    Rule::KeepVersion.of(PUBLISHED),
    Rule::ProtectRanges.of(PUBLISHED),
    Rule::CheckFences.of(PUBLISHED),
    Rule::SiblingWithSplit.of(PUBLISHED),
    rule(
        "await-log",
        "a log in a round of its own is acknowledged before validation begins; off: validation's \
         READs travel with it",
        IN_TEXT,
    ),
    Rule::ShareDoorbells.of(IN_TEXT),
    Rule::ProveAbsent.of(IN_TEXT),
];

/// The numbers of the phases that FORD's own code enters.
mod phase {
    use super::*;
    pub const LOG_APART: usize = phase_number(PHASES, "log_apart");
    pub const UNLOCK: usize = phase_number(PHASES, "unlock");
    pub const UNLOCK_WITH_DATA: usize = phase_number(PHASES, "unlock_with_data");
    pub const WRITE: usize = phase_number(PHASES, "write");
}

const PHASES: &[&str] = &[
    "locate",
    "read_direct",
    "lock",
    "lock_direct",
    "lock_directory",
    "read_body",
    "validate",
    "log_apart",
    "write",
    "unlock",
    "release",
    "resolve",
    "restructure",
    "unlock_with_data",
    "scan",
    "lock_leaf",
];

const LIMITS: &[Limit] = &[
    Limit {
        phase: "log_apart",
        only: Only::InVariant("corrected,-fuse-log"),
        why: "with fuse-log on, the undo log travels with the data and has no round of its own",
    },
    Limit::UNLOCK_WITH_DATA,
    Limit::SCAN,
    Limit::LOCK_LEAF,
];

/// The protocol FORD with its switches.
pub struct Ford {
    switches: Switches,
}

impl Described for Ford {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "ford",
        citation: "Zhang, Hua, Zuo, Liu: FORD, FAST 2022",
        switches: SWITCHES,
        phases: PHASES,
        limits: LIMITS,
        ..IN_PLACE
    };

    #[inline(always)]
    fn switches(&self) -> Switches {
        self.switches
    }
}

impl Structure for Ford {
    #[inline]
    fn commit(&self, cx: &Context, txn: &mut Txn) -> impl Future<Output = Result<(), Failure>> {
        commit::commit(self, cx, txn)
    }
}

impl Access for Ford {
    type Locks = ByCas;

    #[inline(always)]
    fn plan_piggyback(&self, cx: &Context, txn: &mut Txn) -> Option<BufferOffset> {
        match self.switches.is_on(on::VALIDATE_AFTER_LOCKS) {
            true => None,
            false => access::plan_early(self, cx, txn),
        }
    }

    fn absorb_piggyback(
        &self,
        cx: &Context,
        txn: &mut Txn,
        at: BufferOffset,
    ) -> Result<(), AbortReason> {
        access::absorb_early(self, cx, txn, at)
    }
}

impl Protocol for Ford {
    type Records = Validated;
    type Log = UndoLog;

    fn new(switches: Switches) -> Ford {
        Ford { switches }
    }
}

#[inline]
fn enter(cx: &Context, phase: usize) {
    cx.metrics.phase(phase);
}
