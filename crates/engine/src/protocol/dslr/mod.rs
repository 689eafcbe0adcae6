//! DSLR: two-phase locking with tickets, which transactions take by FAA in records with one version. DSLR uses only
//! one-sided verbs.
//!
//! Yoon, Chowdhury, Mozafari, "Distributed Lock Management with RDMA: Decentralization without Starvation",
//! SIGMOD 2018. The locks are those of DSLR's paper; the transactions that use these locks are those of OOCC's
//! evaluation. DSLR uses the logs of protocols with undo logs; see docs/protocols/dslr.md.
//!
//! # Round trips (the RTT budget, asserted by tests/all/rtt_budget.rs)
//!
//! | transaction | rounds until the reply | then |
//! |---|---|---|
//! | read, address known | 1: ticket + read | unlock |
//! | write, address known | 3: ticket + read, log, write | unlock |
//! | other tickets are before | + the looks until the turn has come, + 1: read | |
//! | address unknown | + 1: the record's bin | |
//! | record away from its home, or absent | + 1: its bucket; + 1 for each overflow block | |
//! | read, then written | + 1: ticket + read | |
//! | absence found beside other reads | + 1: validate | |
//! | abort | as far as it came | release, in turn |
//! | own abort, an absence found beside other reads | + 1: validate | release, in turn |
//!
//! In DSLR every record costs two atomic verbs, whether a transaction reads or writes it.

mod commit;

use super::Protocol;
use crate::cluster::info::{ProtocolCaps, ProtocolInfo, Switch, Switches, in_place_phases_and};
use crate::cluster::rules::{PUBLISHED, Rule, rule};
use crate::site::Context;
use crate::steps::Described;
use crate::steps::access::{Access, Locked, Which};
use crate::steps::locks::ticket::ByTicket;
use crate::steps::settle::undo::{IN_PLACE, UndoLog};
use crate::steps::structure::Structure;
use crate::transaction::working_set::Txn;
use tarn_store::ids::Failure;
use tarn_store::layout::LayoutKind;
use tarn_store::placement::catalog::Options;

const SWITCHES: &[Switch] = &[
    Rule::WaitTurn.of(PUBLISHED),
    Rule::PassInTurn.of(PUBLISHED),
    Rule::ResetAtRest.of(PUBLISHED),
    Rule::WideCounts.of(PUBLISHED),
    rule(
        "validate-reads",
        "a commit validates absences, and records that were read before they were locked for \
         writing; off: it trusts both",
        PUBLISHED,
    ),
    rule(
        "refuse-locked",
        "validation fails on a record that another transaction is writing",
        PUBLISHED,
    ),
    Rule::ProtectAbsent.of(PUBLISHED),
    Rule::ReleaseOnAbort.of(PUBLISHED),
    Rule::KeepVersion.of(PUBLISHED),
    Rule::ProtectRanges.of(PUBLISHED),
    Rule::CheckFences.of(PUBLISHED),
    Rule::SiblingWithSplit.of(PUBLISHED),
];

/// The protocol DSLR with its switches.
pub struct Dslr {
    switches: Switches,
}

impl Described for Dslr {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "dslr",
        citation: "DSLR (SIGMOD 2018), as the evaluation of OOCC runs it",
        caps: ProtocolCaps { ranges: true, ..ProtocolCaps::NONE },
        switches: SWITCHES,
        phases: &in_place_phases_and::<18>(&["wait_turn", "pass_on", "set_back"]),
        ..IN_PLACE
    };

    #[inline(always)]
    fn switches(&self) -> Switches {
        self.switches
    }
}

impl Structure for Dslr {
    #[inline]
    fn commit(&self, cx: &Context, txn: &mut Txn) -> impl Future<Output = Result<(), Failure>> {
        commit::commit(self, cx, txn)
    }
}

impl Access for Dslr {
    type Locks = ByTicket;
    const VALIDATES: Which = Which::Apart;
}

impl Protocol for Dslr {
    type Records = Locked;
    type Log = UndoLog;

    fn new(switches: Switches) -> Dslr {
        Dslr { switches }
    }

    fn layout(&self, _: &Options) -> LayoutKind {
        LayoutKind::Ticketed
    }
}
