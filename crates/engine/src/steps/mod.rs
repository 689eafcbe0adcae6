//! The steps that protocols share: access to records and indexes, locks beside records, logs, recovery by logs.
//!
//! Map:
//! - `access` finds, locks and reads records.
//! - `structure` does the same for indexes, and changes their shape. `index` has the details of hash indexes; `trees`
//!   walks over ordered ones.
//! - `locks` has the kinds of locks beside records. `node_locks` are the locks that are words of memory nodes.
//! - `commit` has phases of a commit. `in_place` decides which bytes a commit writes in place.
//! - `log` sends entries to their areas. [`settle`] makes transactions final by their entries.
//! - `recorder` writes transactions into a history.
//!
//! Invariant: nothing here names a protocol, or knows in which order one commits.

pub mod access;
pub(crate) mod commit;
pub(crate) mod in_place;
pub(crate) mod index;
pub mod locks;
pub(crate) mod log;
pub(crate) mod node_locks;
pub mod recorder;
pub mod settle;
pub mod structure;
pub mod trees;

use crate::cluster::info::{ProtocolInfo, Switches};
use crate::cluster::rules::{Phase, PhaseNumbers, Rule, RuleNumbers};
use crate::site::Context;
use crate::transaction::working_set::Txn;
use tarn_store::ids::{Explanation, Failure};

/// Puts the transaction in doubt: from here on only memory says how it ends.
#[inline]
pub(crate) fn begin_doubt(cx: &Context, txn: &mut Txn) {
    txn.in_doubt = true;
    if txn.recorded_in.is_some() {
        recorder::enter_doubt(cx, txn);
    }
}

/// The failure of a transaction of which this node does not know how much has landed.
#[cold]
pub(crate) fn unknown(cx: &Context, txn: &Txn) -> Failure {
    cx.explain(Explanation::Unknown(txn.tag))
}

/// A system that lists its rules and phases. All steps ask it for them.
pub trait Described: Sized {
    /// Everything that is known of the system without running it.
    const INFO: ProtocolInfo;

    /// The numbers that shared rules have in the system's list.
    const RULES: RuleNumbers = RuleNumbers::of(Self::INFO.switches);
    /// The numbers that shared phases have in the system's list.
    const PHASES: PhaseNumbers = PhaseNumbers::of(Self::INFO.phases);

    /// The variant: which rules it keeps.
    fn switches(&self) -> Switches;

    /// Whether this variant keeps a shared rule.
    #[inline(always)]
    fn keeps(&self, rule: Rule) -> bool {
        match Self::RULES.number(rule) {
            Some(number) => self.switches().is_on(number),
            None => true,
        }
    }

    /// Notes that a shared phase begins.
    #[inline(always)]
    fn enter(&self, cx: &Context, phase: Phase) {
        let number = Self::PHASES.number(phase);
        debug_assert!(number.is_some(), "{} does not list {phase:?}", Self::INFO.name);
        if let Some(number) = number {
            cx.metrics.phase(number);
        }
    }
}
