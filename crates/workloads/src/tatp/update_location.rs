//! UpdateLocation: sets the location of the subscriber with a given number.
//!
//! Invariant: the number is looked up in the same transaction, with two fetches, since the second's
//! key is in the first's answer.

use super::tables::{SUBSCRIBER, vlr_location};
use super::{Found, subscriber_of};
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::Failure;
use tarn_store::schema::Cells;

#[inline]
pub(super) async fn run(
    coordinator: &mut Coordinator,
    number: u64,
    location: u32,
) -> Result<Found, Failure> {
    coordinator
        .transact(async |tx| {
            let Some(id) = subscriber_of(tx, number).await? else { return Ok(Found::default()) };
            let subscriber = tx.update(SUBSCRIBER, id, Cells::one(vlr_location()));
            tx.fetch().await?;
            tx.set(subscriber, vlr_location(), u64::from(location));
            Ok(Found { success: tx.existed(subscriber), torn: 0 })
        })
        .await
}
