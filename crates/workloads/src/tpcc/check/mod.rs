//! Checks the invariants of TPC-C's tables when no transaction runs.
//!
//! `C1` to `C12` are the consistency conditions of clause 3.3.2, The check tests each condition on
//! every row that the condition covers, not on a sample. The specification states `C11` for the
//! initial population. A run also delivers orders, and its tally counts the delivered orders of each
//! district. So `C11` is the only one of these conditions that needs the tally in addition to memory.
//! Four rules are our own, because none of the twelve conditions covers them:
//! - every row names only existing rows, and the number of rows is right;
//! - a stock agrees with the lines that were ordered from it;
//! - no transaction failed to find a row that must exist and does not exist;
//! - no transaction repeatedly failed to find a row that exists.
//!
//! Invariant: the check scans the tables, one after another. The check uses only the numbers of
//! orders, payments and deliveries of the tally.

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
