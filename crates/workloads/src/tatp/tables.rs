//! TATP's tables: their ids, columns and keys.
//!
//! Invariant: different parts always give different keys. In every table the lower 40 bits of a key
//! are the subscriber's id. So all rows of one subscriber can be in the same shard.

use super::population::Population;
use tarn_store::schema::{ColumnId, ColumnType, TableId, TableSchema};

pub(super) const SUBSCRIBER: TableId = TableId(0);
pub(super) const SUBSCRIBER_NUMBER: TableId = TableId(1);
pub(super) const ACCESS_INFO: TableId = TableId(2);
pub(super) const SPECIAL_FACILITY: TableId = TableId(3);
pub(super) const CALL_FORWARDING: TableId = TableId(4);

/// The hours at which a forwarding may start.
pub(super) const START_TIMES: [u8; 3] = [0, 8, 16];
/// The number of digits of a subscriber's number.
pub(super) const DIGITS: usize = 15;
const SUBSCRIBER_BITS: u32 = 40;
const TYPE_BITS: u32 = 4;
/// The largest number of subscribers. An id fits into its bits of a key, and the subscriber's number
/// has 15 digits.
pub(super) const SUBSCRIBERS_MAX: u64 = (1 << SUBSCRIBER_BITS) - 1;

macro_rules! columns {
    ($($name:ident = $position:literal),+ $(,)?) => {
        $(#[inline]
        pub(super) const fn $name() -> ColumnId {
            ColumnId($position)
        })+
    };
}
columns! {
    // subscriber
    number = 0, bits = 1, hex = 2, byte2 = 3, msc_location = 4, vlr_location = 5,
    // subscriber_number
    s_id = 0,
    // access_info
    data1 = 0, data2 = 1, data3 = 2, data4 = 3,
    // special_facility
    is_active = 0, error_control = 1, data_a = 2, data_b = 3,
    // call_forwarding
    end_time = 0, numberx = 1,
}

/// Returns the schemas of all tables, in the order of their ids. Rows are padded to `value_bytes`.
pub(super) fn schemas(population: &Population, value_bytes: usize) -> Vec<TableSchema> {
    use ColumnType::{Bytes, U16, U32, U64, U8};
    let [subscribers, access_infos, facilities, forwardings] = population.counts;
    let table = |name, records| {
        TableSchema::new(name, records).critical_bits((1 << SUBSCRIBER_BITS) - 1)
    };
    let filled = |schema: TableSchema| match value_bytes.saturating_sub(schema.payload_bytes()) {
        0 => schema,
        missing => schema.column("filler", Bytes(missing as u16)),
    };
    vec![
        filled(
            table("subscriber", subscribers)
                .column("sub_nbr", Bytes(DIGITS as u16))
                .column("bits", U16)
                .column("hex", Bytes(5))
                .column("byte2", Bytes(10))
                .column("msc_location", U32)
                .column("vlr_location", U32),
        ),
        table("subscriber_number", subscribers).column("s_id", U64),
        filled(
            table("access_info", access_infos)
                .column("data1", U8)
                .column("data2", U8)
                .column("data3", Bytes(3))
                .column("data4", Bytes(5)),
        ),
        filled(
            table("special_facility", facilities)
                .column("is_active", U8)
                .column("error_cntrl", U8)
                .column("data_a", U8)
                .column("data_b", Bytes(5)),
        ),
        filled(
            table("call_forwarding", forwardings)
                .column("end_time", U8)
                .column("numberx", Bytes(DIGITS as u16)),
        ),
    ]
}

/// Returns the key of the subscriber's number, which is its digits as an integer. A subscriber's
/// number is the id, padded with zeros.
#[inline]
pub(super) fn sub_nbr(id: u64) -> u64 {
    id
}

/// Returns the 15 digits of a subscriber's number.
#[inline]
pub(super) fn digits(mut number: u64) -> [u8; DIGITS] {
    let mut digits = [b'0'; DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit += (number % 10) as u8;
        number /= 10;
    }
    digits
}

/// Returns the key of an access right or of a facility.
#[inline]
pub(super) fn typed(id: u64, of_type: u8) -> u64 {
    debug_assert!(id <= SUBSCRIBERS_MAX);
    id | (u64::from(of_type) << SUBSCRIBER_BITS)
}

/// Returns the key of a forwarding.
#[inline]
pub(super) fn forwarding(id: u64, sf_type: u8, start_time: u8) -> u64 {
    typed(id, sf_type) | (u64::from(start_time) << (SUBSCRIBER_BITS + TYPE_BITS))
}

/// Returns the parts of a key: subscriber, type and start time.
pub(super) fn parts(key: u64) -> (u64, u8, u8) {
    let above = key >> SUBSCRIBER_BITS;
    (key & SUBSCRIBERS_MAX, (above & ((1 << TYPE_BITS) - 1)) as u8, (above >> TYPE_BITS) as u8)
}

/// Returns the number that a forwarding forwards to. This number is a function of the forwarding's
/// key and end time, so that a check notices a torn or wrong row.
#[inline]
pub(super) fn forwarded_to(key: u64, end_time: u8) -> [u8; DIGITS] {
    let word = tarn_fabric::rng::mix(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(end_time));
    digits(word % 1_000_000_000_000_000)
}
