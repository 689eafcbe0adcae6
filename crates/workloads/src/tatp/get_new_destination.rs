//! The transaction GetNewDestination: reads the number to which a facility forwards calls at a given
//! hour.
//!
//! Invariant: the transaction reads the facility and all forwardings that can apply in one fetch.

use super::Found;
use super::tables::{CALL_FORWARDING, SPECIAL_FACILITY, START_TIMES, end_time, forwarded_to, forwarding, is_active, numberx, typed};
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::Failure;
use tarn_store::schema::Cells;

#[inline]
pub(super) async fn run(
    coordinator: &mut Coordinator,
    (id, sf_type): (u64, u8),
    start_time: u8,
    before: u8,
) -> Result<Found, Failure> {
    coordinator
        .transact_read_only(async |tx| {
            let facility = tx.read(SPECIAL_FACILITY, typed(id, sf_type), Cells::ALL);
            // The forwardings that start at or before the requested hour. The number of these
            // forwardings is one to three.
            let mut forwardings = [(0, facility); START_TIMES.len()];
            let starts = START_TIMES.iter().filter(|&&start| start <= start_time);
            let mut count = 0;
            for &start in starts {
                let key = forwarding(id, sf_type, start);
                forwardings[count] = (key, tx.read(CALL_FORWARDING, key, Cells::ALL));
                count += 1;
            }
            tx.fetch().await?;
            let active = tx.get(facility).is_some_and(|row| row.u64(is_active()) == 1);
            let mut found = Found::default();
            for &(key, handle) in &forwardings[..count] {
                let Some(row) = tx.get(handle) else { continue };
                let end = row.u64(end_time());
                found.success |= active && u64::from(before) < end;
                found.torn += u64::from(row.bytes(numberx()) != forwarded_to(key, end as u8));
            }
            Ok(found)
        })
        .await
}
