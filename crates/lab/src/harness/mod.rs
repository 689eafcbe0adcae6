//! Steps that several kinds of runs have in common.
//!
//! Map: [`phase`] is a part of a run with its counters, `desk` the coroutines of a phase; [`watch`] is told how far a run
//! is, and [`error`] says why there is none; `recording` is the verification phase's history and [`history`] hands it to
//! the checker; [`measured`] is the sum of a phase, [`checks`] the verdicts on a run, [`leases`] the lengths of readers'
//! leases; `lines` is the form of all tables, `letters` that of drawings for terminals, `named` an enum with names.
//! `simulated` makes a database on simulated hardware; `rest` loads tables and looks at memory while nothing runs; `mortal`
//! are coroutines that die with their compute node, `panics` are caught as findings, and `layout` is the shape of records in
//! random schedules and litmuses.
//!
//! Invariant: nothing here knows which kind of run calls it.

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

/// Why a transaction of this thread failed, in words.
pub(crate) fn explained(cx: &Context, failure: Failure) -> String {
    in_words(failure, cx.explanation(failure))
}

/// The explanation of a failure if there is one, else its name.
pub(crate) fn in_words(failure: Failure, explanation: Option<Explanation>) -> String {
    explanation.map_or_else(|| failure.to_string(), |it| it.to_string())
}
