//! What must hold of TPC-C's tables when no transaction runs.
//!
//! `C1` to `C12` are the consistency conditions of clause 3.3.2, each on every row that it speaks of, not
//! on a sample. `C11` is written for the initial population; a run delivers orders, and its tally says how
//! many in each district: that is the only condition that is not judged on memory alone. Four rules are
//! ours: every row belongs to what it names and there are as many as there must be; and what was ordered
//! from a stock is what the stock says, which none of the twelve looks at; no transaction missed a row
//! that must be there; and none misses again and again one that is.
//!
//! Invariant: judged by scans of the tables, one after another; of the tally only numbers of orders,
//! payments and deliveries are used.

mod conditions;
mod seen;

use super::scale::Scale;
use super::tally::Tally;
use crate::workload::Invariant;
use seen::Seen;
use tarn_engine::site::Context;
use tarn_store::ids::Failure;

pub(super) async fn check(
    scale: &Scale,
    cx: &Context,
    tally: &Tally,
) -> Result<Vec<Invariant>, Failure> {
    let mut seen = Seen::new(scale);
    seen.gather(cx).await?;
    Ok(conditions::judge(&seen, tally))
}
