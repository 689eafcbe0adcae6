//! Steps that several kinds of runs share.
//!
//! Map:
//! - [`phase`]: a part of a run with its counters. `desk`: the coroutines of a phase.
//! - [`watch`]: receives the progress of a run. [`error`]: the reason for which a run has no report.
//! - `recording`: the verification phase's history. [`history`]: converts this history for the checker.
//! - [`measured`]: the sum of a phase. [`checks`]: the verdicts on a run. [`leases`]: the lengths of readers' leases.
//! - `lines`: the form of all tables. `letters`: text in drawings for terminals. `named`: enums with names.
//! - `simulated`: makes a database on simulated hardware.
//! - `rest`: loads tables and checks the memory while no coordinator runs.
//! - `mortal`: coroutines that die with their compute node. `panics`: catches panics as findings.
//! - `layout`: the memory layouts of records in random schedules and litmus tests.
//!
//! Invariant: no module in this folder depends on the kind of run that calls it.

pub mod checks;
pub mod error;
pub mod history;
pub(crate) mod layout;
pub mod leases;
pub(crate) mod letters;
pub(crate) mod lines;
pub mod measured;
pub(crate) mod mortal;
pub(crate) mod named;
pub(crate) mod panics;
pub mod phase;
pub(crate) mod recording;
pub(crate) mod rest;
pub(crate) mod simulated;
pub mod watch;
pub(crate) mod worker;

use tarn_engine::site::Context;
use tarn_store::ids::{Explanation, Failure};

/// Returns the reason for which a transaction of this thread failed, in words.
pub(crate) fn explained(cx: &Context, failure: Failure) -> String {
    in_words(failure, cx.explanation(failure))
}

/// Returns the explanation of a failure, or the failure's name if no explanation exists.
pub(crate) fn in_words(failure: Failure, explanation: Option<Explanation>) -> String {
    explanation.map_or_else(|| failure.to_string(), |it| it.to_string())
}
