//! The steps that several protocols have in common: access to records and indexes, locks beside records, logs, and
//! recovery by logs.
//!
//! Map of the modules:
//! - `access` finds, locks and reads records.
//! - `structure` finds, locks and reads the parts of indexes, and changes the shape of indexes. `index` has the
//!   details of hash indexes; `trees` reads whole ordered indexes.
//! - `locks` has the kinds of locks that a record can have. `node_locks` has the locks that are words in memory
//!   nodes.
//! - `commit` has the phases of a commit. `in_place` decides which bytes a commit writes in place.
//! - `log` sends log entries to their log areas. [`settle`] reads log entries to decide each transaction in doubt,
//!   and then completes or undoes that transaction.
//! - `recorder` writes transactions into a history.
//!
//! Invariant: no module in this folder names a protocol, or knows the order of the phases in which a protocol
//! commits.

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

/// Puts the transaction in doubt: from this call on, only the contents of the memory nodes show whether the
/// transaction has committed.
#[inline]
pub(crate) fn begin_doubt(cx: &Context, txn: &mut Txn) {
    txn.in_doubt = true;
    if txn.recorded_in.is_some() {
        recorder::enter_doubt(cx, txn);
    }
}

/// Returns the failure of a transaction for which this node does not know how many of its writes have landed.
#[cold]
pub(crate) fn unknown(cx: &Context, txn: &Txn) -> Failure {
    cx.explain(Explanation::Unknown(txn.tag))
}

/// A system (protocol) that lists its rules and phases. Every step asks the system for its rules and phases through
/// this trait.
pub trait Described: Sized {
    /// All facts about the system that the program knows without running the system.
    const INFO: ProtocolInfo;

    /// The number that each shared rule has in the system's list of rules.
    const RULES: RuleNumbers = RuleNumbers::of(Self::INFO.switches);
    /// The number that each shared phase has in the system's list of phases.
    const PHASES: PhaseNumbers = PhaseNumbers::of(Self::INFO.phases);

    /// Returns the switches of this variant of the system, which show the rules that the variant keeps.
    fn switches(&self) -> Switches;

    /// Returns whether this variant of the system keeps a rule that several systems have in common.
    #[inline(always)]
    fn keeps(&self, rule: Rule) -> bool {
        match Self::RULES.number(rule) {
            Some(number) => self.switches().is_on(number),
            None => true,
        }
    }

    /// Notes in the metrics that the transaction enters a phase that several systems have in common.
    #[inline(always)]
    fn enter(&self, cx: &Context, phase: Phase) {
        let number = Self::PHASES.number(phase);
        debug_assert!(number.is_some(), "{} does not list {phase:?}", Self::INFO.name);
        if let Some(number) = number {
            cx.metrics.phase(number);
        }
    }
}
