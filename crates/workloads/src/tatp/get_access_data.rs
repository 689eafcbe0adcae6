//! The transaction GetAccessData: reads one access right of a subscriber, if the subscriber has this
//! right.
//!
//! Invariant: the transaction is read-only. "No such right" is a valid answer.

use super::Found;
use super::tables::{ACCESS_INFO, typed};
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::Failure;
use tarn_store::schema::Cells;

/// Runs the transaction. `second` is 0 if the transaction reads only one subscriber.
#[inline]
pub(super) async fn run(
    coordinator: &mut Coordinator,
    id: u64,
    second: u64,
    ai_type: u8,
) -> Result<Found, Failure> {
    coordinator
        .transact_read_only(async |tx| {
            let row = tx.read(ACCESS_INFO, typed(id, ai_type), Cells::ALL);
            if second != 0 {
                tx.read(ACCESS_INFO, typed(second, ai_type), Cells::ALL);
            }
            tx.fetch().await?;
            let data = tx.get(row).map(|row| row.payload().first().copied());
            Ok(Found { success: std::hint::black_box(data).is_some(), torn: 0 })
        })
        .await
}
