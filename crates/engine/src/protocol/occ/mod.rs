//! OCC: optimistic concurrency control in four rounds that are awaited one after the other. OCC's locks lie beside
//! records with one version, and OCC uses only one-sided verbs.
//!
//! OCC is the baseline of OOCC's evaluation (Wu, Zhang, Chen, Liao, Shan, Wu, "OOCC: One-round Optimistic Concurrency
//! Control for Read-Only Disaggregated Transactions"). OOCC's paper calls this baseline FORD-style, because it is
//! FORD without the fused log. OCC uses the locks, logs and recovery of protocols with undo logs; see
//! docs/protocols/occ.md.
//!
//! # Round trips (the RTT budget, asserted by tests/all/rtt_budget.rs)
//!
//! | transaction | rounds until the reply | then |
//! |---|---|---|
//! | read-only, one record | 1 | |
//! | read-only, several records | 2: read, validate | |
//! | write, address known, nothing else read | 3: lock + read, log, write | unlock |
//! | write, address known, others read | 4: lock + read, validate, log, write | unlock |
//! | write, address unknown | + 1: the record's bin | |
//! | record away from its home, or absent | + 1: its bucket; + 1 for each overflow block | |
//! | abort | 1 at lock, 2 at validation | release |
//! | own abort | + 1: validate, as a commit would: none after one record that was only read, or if all that was read is locked | release |

mod commit;

use super::Protocol;
use crate::cluster::info::{ProtocolInfo, Switch, Switches};
use crate::cluster::rules::{OURS, PUBLISHED, Rule, rule, rule_number};
use crate::site::Context;
use crate::steps::Described;
use crate::steps::access::{Access, Validated};
use crate::steps::locks::ByCas;
use crate::steps::settle::undo::{IN_PLACE, UndoLog};
use crate::steps::structure::Structure;
use crate::transaction::working_set::Txn;
use tarn_store::ids::Failure;

const SWITCHES: &[Switch] = &[
    Rule::ValidateReads.of(PUBLISHED),
    Rule::RefuseLocked.of(PUBLISHED),
    Rule::UnlockLate.of(OURS),
    Rule::ReleaseGranted.of(PUBLISHED),
    rule(
        "log-after-validation",
        "a commit sends the undo log when validation has passed; off: before validation, and an \
         abort leaves a log",
        OURS,
    ),
    Rule::ProtectAbsent.of(PUBLISHED),
    Rule::ReleaseOnAbort.of(PUBLISHED),
    Rule::LockCas.of(PUBLISHED),
    Rule::FenceBeforeRecovery.of(OURS),
    Rule::SettleBeforeLog.of(PUBLISHED),
    Rule::ReleaseOwn.of(OURS),
    Rule::KeepVersion.of(PUBLISHED),
    Rule::ProtectRanges.of(PUBLISHED),
    Rule::CheckFences.of(PUBLISHED),
    Rule::SiblingWithSplit.of(PUBLISHED),
];
const LOG_AFTER_VALIDATION: usize = rule_number(SWITCHES, "log-after-validation");

/// The protocol OCC with its switches.
pub struct Occ {
    switches: Switches,
}

impl Described for Occ {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "occ",
        citation: "OCC, as the evaluation of OOCC describes it",
        switches: SWITCHES,
        ..IN_PLACE
    };

    #[inline(always)]
    fn switches(&self) -> Switches {
        self.switches
    }
}

impl Structure for Occ {
    #[inline]
    fn commit(&self, cx: &Context, txn: &mut Txn) -> impl Future<Output = Result<(), Failure>> {
        commit::commit(self, cx, txn)
    }
}

impl Access for Occ {
    type Locks = ByCas;
}

impl Protocol for Occ {
    type Records = Validated;
    type Log = UndoLog;

    fn new(switches: Switches) -> Occ {
        Occ { switches }
    }
}
