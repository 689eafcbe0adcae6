//! The transaction SendPayment: moves an amount from one checking account to another.
//!
//! Invariant: the transaction moves money and does not change the total amount. The transaction does
//! not change an account with too little money.

use super::{BALANCE, CHECKING, SEND_CENTS, Tally, balance_of};
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::schema::Cells;

#[inline]
pub(super) async fn run(
    coordinator: &mut Coordinator,
    from: u64,
    to: u64,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let outcome = coordinator
        .transact(async |tx| {
            let source = tx.update(CHECKING, from, Cells::ALL);
            let target = tx.update(CHECKING, to, Cells::ALL);
            tx.fetch().await?;
            let balance = balance_of(tx, source)?;
            if balance < SEND_CENTS {
                return tx.abort();
            }
            let sum = balance_of(tx, target)? + SEND_CENTS;
            tx.set(source, BALANCE, balance - SEND_CENTS);
            tx.set(target, BALANCE, sum);
            Ok(())
        })
        .await;
    if outcome == Err(Failure::Abort(AbortReason::User)) {
        tally.refused += 1;
        return Ok(());
    }
    outcome
}
