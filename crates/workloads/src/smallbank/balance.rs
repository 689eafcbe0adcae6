//! The transaction Balance: reads the sum of a customer's savings and checking balances.
//!
//! Invariant: the transaction is read-only and reads both balances in one fetch.

use super::{CHECKING, SAVINGS, balance_of};
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::Failure;
use tarn_store::schema::Cells;

#[inline]
pub(super) async fn run(coordinator: &mut Coordinator, account: u64) -> Result<(), Failure> {
    let sum = coordinator
        .transact_read_only(async |tx| {
            let savings = tx.read(SAVINGS, account, Cells::ALL);
            let checking = tx.read(CHECKING, account, Cells::ALL);
            tx.fetch().await?;
            Ok(balance_of(tx, savings)? + balance_of(tx, checking)?)
        })
        .await?;
    std::hint::black_box(sum);
    Ok(())
}
