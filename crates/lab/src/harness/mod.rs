//! Steps that several kinds of runs have in common.
//!
//! Map: [`watch`] is told how far a run is; `simulated` makes a database on simulated hardware; `rest` loads
//! tables and looks at memory while nothing runs; `mortal` is a coroutine that dies with its compute node.
//!
//! Invariant: nothing here knows which kind of run calls it.

pub(crate) mod mortal;
pub(crate) mod rest;
pub(crate) mod simulated;
pub mod watch;

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
