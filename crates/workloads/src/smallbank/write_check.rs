//! The transaction WriteCheck: cashes a check against the sum of both balances.
//!
//! Invariant: a check above the sum of both balances costs a penalty of 1.00 more. WriteCheck makes
//! write skew possible, because it reads two accounts and writes only one.

use super::{BALANCE, CHECKING, CHECK_CENTS, PENALTY_CENTS, SAVINGS, Tally, balance_of};
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::Failure;
use tarn_store::schema::Cells;

#[inline]
pub(super) async fn run(
    coordinator: &mut Coordinator,
    account: u64,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let penalty = coordinator
        .transact(async |tx| {
            let savings = tx.read(SAVINGS, account, Cells::ALL);
            let checking = tx.update(CHECKING, account, Cells::ALL);
            tx.fetch().await?;
            let balance = balance_of(tx, checking)?;
            let overdrawn = balance_of(tx, savings)? + balance < CHECK_CENTS;
            let penalty = if overdrawn { PENALTY_CENTS } else { 0 };
            tx.set(checking, BALANCE, balance - CHECK_CENTS - penalty);
            Ok(penalty)
        })
        .await?;
    tally.checks += CHECK_CENTS;
    tally.penalties += penalty;
    Ok(())
}
