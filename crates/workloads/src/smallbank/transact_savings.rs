//! The transaction TransactSavings: pays an amount into a savings account, or withdraws the amount.
//!
//! Invariant: the balance does not become negative, because otherwise the transaction is rolled back.

use super::{BALANCE, SAVINGS, Tally, balance_of};
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::schema::Cells;

#[inline]
pub(super) async fn run(
    coordinator: &mut Coordinator,
    account: u64,
    cents: i64,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let outcome = coordinator
        .transact(async |tx| {
            let savings = tx.update(SAVINGS, account, Cells::ALL);
            tx.fetch().await?;
            let balance = balance_of(tx, savings)? + cents;
            if balance < 0 {
                return tx.abort();
            }
            tx.set(savings, BALANCE, balance);
            Ok(())
        })
        .await;
    match outcome {
        Ok(()) => tally.saved += cents,
        Err(Failure::Abort(AbortReason::User)) => tally.refused += 1,
        Err(failure) => return Err(failure),
    }
    Ok(())
}
