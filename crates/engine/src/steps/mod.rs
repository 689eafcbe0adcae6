//! What protocols share: records and indexes as transactions reach them, locks beside records, logs, recovery by logs.
//!
//! Map: `access` finds, locks and reads records; `structure` does so for indexes, and changes their shape; `node_locks` are locks that are
//! words of memory nodes; `in_place` is what a commit writes there; `log` brings entries to their areas; [`settle`] makes
//! transactions final by their entries.
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

/// From here on the outcome is what the memory says.
#[inline]
pub(crate) fn begin_doubt(cx: &Context, txn: &mut Txn) {
    txn.in_doubt = true;
    if txn.recorded_in.is_some() {
        recorder::enter_doubt(cx, txn);
    }
}

/// The failure of who does not know what has landed.
#[cold]
pub(crate) fn unknown(cx: &Context, txn: &Txn) -> Failure {
    cx.explain(Explanation::Unknown(txn.tag))
}

/// A system that says of itself which rules and phases it has: what all steps ask of it.
pub trait Described: Sized {
    /// What there is to know without running it.
    const INFO: ProtocolInfo;

    /// The numbers of shared rules in its list.
    const RULES: RuleNumbers = RuleNumbers::of(Self::INFO.switches);
    /// The numbers of shared phases in its list.
    const PHASES: PhaseNumbers = PhaseNumbers::of(Self::INFO.phases);

    /// The variant.
    fn switches(&self) -> Switches;

    /// Whether this variant keeps a shared rule.
    #[inline(always)]
    fn keeps(&self, rule: Rule) -> bool {
        match Self::RULES.number(rule) {
            Some(number) => self.switches().is_on(number),
            None => true,
        }
    }

    /// A shared phase begins.
    #[inline(always)]
    fn enter(&self, cx: &Context, phase: Phase) {
        let number = Self::PHASES.number(phase);
        debug_assert!(number.is_some(), "{} does not list {phase:?}", Self::INFO.name);
        if let Some(number) = number {
            cx.metrics.phase(number);
        }
    }
}
