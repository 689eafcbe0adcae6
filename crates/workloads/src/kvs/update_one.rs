//! The transaction UpdateOne: increments the number of updates in one record's value.

use super::{TABLE, Tally, VALUE, updates_told, value};
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::Failure;
use tarn_store::schema::Cells;

#[inline]
pub(super) async fn run(
    coordinator: &mut Coordinator,
    key: u64,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let told = coordinator
        .transact(async |tx| {
            let record = tx.update(TABLE, key, Cells::ALL);
            tx.fetch().await?;
            let told = tx.get(record).and_then(|row| updates_told(row.bytes(VALUE)));
            tx.set(record, VALUE, &value(told.unwrap_or(0) + 1));
            Ok(told)
        })
        .await?;
    tally.updates += 1;
    tally.torn += u64::from(told.is_none());
    Ok(())
}
