//! GetAccessData: one access right of a subscriber, if it has it.
//!
//! Invariant: read-only; that there is no such right is an answer like any other.

use super::Found;
use super::tables::{ACCESS_INFO, typed};
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::Failure;
use tarn_store::schema::Cells;

/// A second subscriber of 0 is none.
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
