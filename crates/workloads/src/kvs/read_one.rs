//! The transaction ReadOne: reads one record's value.

use super::{TABLE, Tally, VALUE, updates_told};
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
        .transact_read_only(async |tx| {
            let record = tx.read(TABLE, key, Cells::ALL);
            tx.fetch().await?;
            Ok(tx.get(record).and_then(|row| updates_told(row.bytes(VALUE))))
        })
        .await?;
    tally.torn += u64::from(told.is_none());
    Ok(())
}
