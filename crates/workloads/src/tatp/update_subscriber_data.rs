//! The transaction UpdateSubscriberData: sets a subscriber's first flag and the data of one of its
//! facilities.
//!
//! Invariant: the transaction changes both the flag and the data. If the subscriber has no such
//! facility, it changes neither.

use super::Found;
use super::tables::{SPECIAL_FACILITY, SUBSCRIBER, bits, data_a, typed};
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::Failure;
use tarn_store::schema::Cells;

#[inline]
pub(super) async fn run(
    coordinator: &mut Coordinator,
    (id, sf_type): (u64, u8),
    bit_1: bool,
    data: u8,
) -> Result<Found, Failure> {
    coordinator
        .transact(async |tx| {
            let subscriber = tx.update(SUBSCRIBER, id, Cells::one(bits()));
            let facility =
                tx.update(SPECIAL_FACILITY, typed(id, sf_type), Cells::one(data_a()));
            tx.fetch().await?;
            let flags = tx.get(subscriber).map(|row| row.u64(bits()));
            let success = tx.existed(facility);
            if let (true, Some(flags)) = (success, flags) {
                tx.set(subscriber, bits(), (flags & !1) | u64::from(bit_1));
                tx.set(facility, data_a(), u64::from(data));
            }
            Ok(Found { success, torn: 0 })
        })
        .await
}
