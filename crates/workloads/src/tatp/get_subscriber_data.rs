//! The transaction GetSubscriberData: reads a subscriber's row.
//!
//! Invariant: the number in the row is the subscriber's own number. If it is another number, the read
//! was torn.

use super::Found;
use super::tables::{SUBSCRIBER, digits, number, sub_nbr};
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::Failure;
use tarn_store::schema::Cells;

/// Runs the transaction. `second` is 0 if the transaction reads only one subscriber.
#[inline]
pub(super) async fn run(
    coordinator: &mut Coordinator,
    id: u64,
    second: u64,
) -> Result<Found, Failure> {
    coordinator
        .transact_read_only(async |tx| {
            let row = tx.read(SUBSCRIBER, id, Cells::ALL);
            let other = (second != 0).then(|| tx.read(SUBSCRIBER, second, Cells::ALL));
            tx.fetch().await?;
            let mut found = Found { success: true, torn: 0 };
            for (id, handle) in std::iter::once((id, row)).chain(other.map(|it| (second, it))) {
                match tx.get(handle) {
                    Some(row) => {
                        found.torn += u64::from(row.bytes(number()) != digits(sub_nbr(id)));
                    }
                    None => found.success = false,
                }
            }
            Ok(found)
        })
        .await
}
