//! The transaction InsertCallForwarding: adds a forwarding for a facility of the subscriber with a
//! given number.
//!
//! Invariant: the transaction inserts a forwarding only if the facility exists and has no forwarding
//! from the same hour yet. The transaction also reads the facility, so the inserted row never refers
//! to a missing facility.

use super::tables::{CALL_FORWARDING, SPECIAL_FACILITY, end_time, forwarded_to, forwarding, numberx, typed};
use super::{Found, subscriber_of};
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::Failure;
use tarn_store::schema::Cells;

#[inline]
pub(super) async fn run(
    coordinator: &mut Coordinator,
    (number, sf_type): (u64, u8),
    start_time: u8,
    end: u8,
) -> Result<Found, Failure> {
    coordinator
        .transact(async |tx| {
            let Some(id) = subscriber_of(tx, number).await? else { return Ok(Found::default()) };
            // As the benchmark requires, the transaction reads the types of all facilities that the
            // subscriber has.
            let facilities =
                [1, 2, 3, 4].map(|it| tx.read(SPECIAL_FACILITY, typed(id, it), Cells::NONE));
            tx.fetch().await?;
            if !tx.existed(facilities[usize::from(sf_type) - 1]) {
                return Ok(Found::default());
            }
            let key = forwarding(id, sf_type, start_time);
            let forwarding = tx.insert(CALL_FORWARDING, key);
            tx.fetch().await?;
            let success = !tx.existed(forwarding);
            if success {
                tx.set(forwarding, end_time(), u64::from(end));
                tx.set(forwarding, numberx(), &forwarded_to(key, end));
            }
            Ok(Found { success, torn: 0 })
        })
        .await
}
