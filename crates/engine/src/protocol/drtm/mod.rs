//! DrTM: two-phase locking in which readers hold leases. DrTM's locks lie beside records with one version, and DrTM
//! uses only one-sided verbs.
//!
//! Wei, Shi, Chen, Chen, Chen, "Fast In-memory Transaction Processing using RDMA and HTM", SOSP 2015, in the form in
//! which the evaluation of OOCC runs it. The paper uses these locks only for records on other nodes; this
//! implementation uses them for all records, without transactional memory. DrTM uses the logs and the recovery of
//! protocols with undo logs; see docs/protocols/drtm.md.
//!
//! # Round trips (the RTT budget, asserted by tests/all/rtt_budget.rs)
//!
//! | transaction | rounds until the reply | then |
//! |---|---|---|
//! | read, address known: the record has no lease, or one that still holds | 1: lease + read | |
//! | read, address known: a lease has run out | 2: lease refused, lease + read | |
//! | write, address known | 3: lock + read, log, write | unlock |
//! | write, a lease still holds | + 1, and the rest of the lease | |
//! | address unknown | + 1: the record's bin | |
//! | record away from its home, or absent | + 1: its bucket; + 1 for each overflow block | |
//! | absence found beside other reads, or a lease has run out before the commit | + 1: validate | |
//! | abort | 1 at lock, 2 at validation | release |
//! | own abort | + 1: validate, as a commit would: none after one record that was only read, or if all that was read is locked | release |
//!
//! In DrTM every read costs one atomic verb, or two atomic verbs if another transaction's lease had ended.

mod commit;

use super::Protocol;
use crate::cluster::info::{
    Limit, Needs, Only, ProtocolCaps, ProtocolInfo, Switch, Switches, in_place_phases_and,
};
use crate::cluster::rules::{OURS, PUBLISHED, Rule, rule};
use crate::site::Context;
use crate::steps::Described;
use crate::steps::access::{Access, Locked};
use crate::steps::locks::lease::ByLease;
use crate::steps::settle::undo::{IN_PLACE, UndoLog};
use crate::steps::structure::Structure;
use crate::transaction::working_set::Txn;
use tarn_store::ids::Failure;

const SWITCHES: &[Switch] = &[
    Rule::ConfirmLeases.of(PUBLISHED),
    rule(
        "refuse-locked",
        "validation fails on a record that another transaction has locked, and no lock is tried \
         where a record was seen locked",
        PUBLISHED,
    ),
    Rule::UnlockLate.of(OURS),
    Rule::ReleaseGranted.of(PUBLISHED),
    Rule::WaitOutLeases.of(PUBLISHED),
    Rule::ProtectAbsent.of(PUBLISHED),
    Rule::ReleaseOnAbort.of(PUBLISHED),
    Rule::LockCas.of(PUBLISHED),
    Rule::FenceBeforeRecovery.of(OURS),
    Rule::SettleBeforeLog.of(PUBLISHED),
    Rule::ReleaseOwn.of(OURS),
    Rule::KeepVersion.of(PUBLISHED),
    Rule::ShareLeases.of(PUBLISHED),
    Rule::ProtectRanges.of(PUBLISHED),
    Rule::CheckFences.of(PUBLISHED),
    Rule::SiblingWithSplit.of(PUBLISHED),
    Rule::LockTogether.of(OURS),
];

/// The protocol DrTM with its switches.
pub struct Drtm {
    switches: Switches,
}

impl Described for Drtm {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "drtm",
        citation: "DrTM (SOSP 2015), as the evaluation of OOCC runs it",
        caps: ProtocolCaps {
            snapshot_isolation: false,
            growth: false,
            memory_recovery: false,
            ..ProtocolCaps::ALL
        },
        switches: SWITCHES,
        phases: &in_place_phases_and::<17>(&["wait_out", "in_lease"]),
        limits: &[
            Limit {
                phase: "in_lease",
                only: Only::InPassing,
                why: "the transaction commits there",
            },
            Limit::SCAN,
            Limit::LOCK_LEAF,
        ],
        ..IN_PLACE
    };

    #[inline(always)]
    fn switches(&self) -> Switches {
        self.switches
    }
}

impl Structure for Drtm {
    #[inline]
    fn commit(&self, cx: &Context, txn: &mut Txn) -> impl Future<Output = Result<(), Failure>> {
        commit::commit(self, cx, txn)
    }
}

impl Access for Drtm {
    type Locks = ByLease;
}

impl Protocol for Drtm {
    type Records = Locked;
    type Log = UndoLog;

    fn new(switches: Switches) -> Drtm {
        Drtm { switches }
    }

    fn needs(&self) -> Needs {
        Needs::READ_LEASES
    }
}
