//! The transaction UpdateLocation: sets the location of the subscriber with a given number.
//!
//! Invariant: the transaction itself looks up the number. The transaction needs two fetches, because
//! the result of the first fetch contains the key for the second fetch.

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
