//! The transaction Amalgamate: moves all money of one customer to the checking account of another
//! customer.
//!
//! Invariant: the transaction moves money and does not change the total amount.

use super::{BALANCE, CHECKING, SAVINGS, balance_of};
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::Failure;
use tarn_store::schema::Cells;

#[inline]
pub(super) async fn run(coordinator: &mut Coordinator, from: u64, to: u64) -> Result<(), Failure> {
    coordinator
        .transact(async |tx| {
            let savings = tx.update(SAVINGS, from, Cells::ALL);
            let checking = tx.update(CHECKING, from, Cells::ALL);
            let target = tx.update(CHECKING, to, Cells::ALL);
            tx.fetch().await?;
            let total = balance_of(tx, savings)? + balance_of(tx, checking)?;
            let sum = balance_of(tx, target)? + total;
            tx.set(savings, BALANCE, 0i64);
            tx.set(checking, BALANCE, 0i64);
            tx.set(target, BALANCE, sum);
            Ok(())
        })
        .await
}
