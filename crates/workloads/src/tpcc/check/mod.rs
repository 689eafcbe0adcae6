//! The invariants of TPC-C's tables when no transaction runs.
//!
//! `C1` to `C12` are the consistency conditions of clause 3.3.2, each checked on every row that it
//! covers, not on a sample. `C11` is written for the initial population. A run delivers orders, and
//! its tally says how many in each district: that is the only condition that is not judged on
//! memory alone. Four rules are ours, which none of the twelve covers:
//! - every row belongs to the rows that it names, and the number of rows is right;
//! - a stock agrees with the lines that were ordered from it;
//! - no transaction missed a row that must be there;
//! - no transaction misses an existing row again and again.
//!
//! Invariant: judged by scans of the tables, one after another; of the tally only numbers of
//! orders, payments and deliveries are used.

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
