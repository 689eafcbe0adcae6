//! The transaction DepositChecking: pays an amount into a checking account.
//!
//! Invariant: the tally and the balance grow by the same amount.

use super::{BALANCE, CHECKING, DEPOSIT_CENTS, Tally, balance_of};
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::Failure;
use tarn_store::schema::Cells;

#[inline]
pub(super) async fn run(
    coordinator: &mut Coordinator,
    account: u64,
    tally: &mut Tally,
) -> Result<(), Failure> {
    coordinator
        .transact(async |tx| {
            let checking = tx.update(CHECKING, account, Cells::ALL);
            tx.fetch().await?;
            let balance = balance_of(tx, checking)?;
            tx.set(checking, BALANCE, balance + DEPOSIT_CENTS);
            Ok(())
        })
        .await?;
    tally.deposited += DEPOSIT_CENTS;
    Ok(())
}
