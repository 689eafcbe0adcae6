//! The transaction DeleteCallForwarding: removes a forwarding of the subscriber with a given number.
//!
//! Invariant: the transaction succeeds if and only if the forwarding existed.

use super::tables::{CALL_FORWARDING, forwarding};
use super::{Found, subscriber_of};
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::Failure;

#[inline]
pub(super) async fn run(
    coordinator: &mut Coordinator,
    number: u64,
    sf_type: u8,
    start_time: u8,
) -> Result<Found, Failure> {
    coordinator
        .transact(async |tx| {
            let Some(id) = subscriber_of(tx, number).await? else { return Ok(Found::default()) };
            let forwarding = tx.delete(CALL_FORWARDING, forwarding(id, sf_type, start_time));
            tx.fetch().await?;
            Ok(Found { success: tx.existed(forwarding), torn: 0 })
        })
        .await
}
