//! TPC-C's nine tables: their ids, columns, keys and indexes.
//!
//! The tables implement clause 1.3 of the specification, revision 5.11. Every specified column
//! exists, in one of three forms:
//! * a column that is part of the primary key is stored only in the key;
//! * a number has the fewest bytes that hold its range. The customer's and the stock's counters have
//!   four bytes, because a run may count further than four digits;
//! * money is in cents, a rate is in ten-thousandths, and a date is in whole seconds, where 0 means
//!   null. Text has its full width and is padded with zeros.
//!
//! `O_OL_CNT` and `O_ALL_LOCAL` share a byte, so an order has 8 bytes, and fills half a memory line
//! together with its head. An order line fills one memory line, and so does a history row. A new
//! order has only a key. A table needs at least one column, so the table of new orders has a column
//! of one byte that is always 0. Columns that one transaction uses together are adjacent, because
//! transactions read long rows line by line.
//!
//! Invariant: different parts always give different keys, and keys sort in the order of their parts.
//! In every table except ITEM, which has no warehouse, the highest 24 bits of a key are the
//! warehouse. So all rows of a warehouse can be in the same shard.
//!
//! ```text
//!            63        40 | 39  36 | 35              4 | 3    0
//! warehouse  warehouse    |        |                   |
//! district   warehouse    | distr. |                   |
//! customer   warehouse    | distr. | customer (36 bits)
//! order, new order, line  | distr. | order             | line
//! stock      warehouse    | item (40 bits)
//! history    warehouse    | session (20 bits), count (20 bits)
//! item       item (64 bits)
//! ```

use super::CriticalField;
use super::scale::Scale;
use tarn_store::placement::catalog::Options;
use tarn_store::schema::{ColumnId, ColumnType, IndexId, IndexPart, TableId, TableSchema};
use tarn_engine::session::transaction::IndexKey;

pub(super) const WAREHOUSE: TableId = TableId(0);
pub(super) const DISTRICT: TableId = TableId(1);
pub(super) const CUSTOMER: TableId = TableId(2);
pub(super) const HISTORY: TableId = TableId(3);
pub(super) const NEW_ORDER: TableId = TableId(4);
pub(super) const ORDERS: TableId = TableId(5);
pub(super) const ORDER_LINE: TableId = TableId(6);
pub(super) const ITEM: TableId = TableId(7);
pub(super) const STOCK: TableId = TableId(8);

/// The index of customers by warehouse, district, last name, first name.
pub(super) const CUSTOMER_BY_NAME: IndexId = IndexId(0);
/// The index of new orders by warehouse, district, number.
pub(super) const NEW_ORDER_OLDEST: IndexId = IndexId(1);
/// The index of orders by warehouse, district, customer, number.
pub(super) const ORDERS_BY_CUSTOMER: IndexId = IndexId(2);

const WAREHOUSE_SHIFT: u32 = 40;
const DISTRICT_SHIFT: u32 = 36;
const ORDER_SHIFT: u32 = 4;
const SESSION_SHIFT: u32 = 20;
/// The bits of the warehouse in a key. The warehouse is the critical field.
const WAREHOUSE_BITS: u64 = u64::MAX << WAREHOUSE_SHIFT;
/// The bits of the district in keys that contain a district.
const DISTRICT_BITS: u64 = 0xf << DISTRICT_SHIFT;
/// The bits of the customer's number in a customer's key.
const CUSTOMER_BITS: u64 = (1 << DISTRICT_SHIFT) - 1;
/// The number of rows of one session of HISTORY.
pub(super) const SESSION_ROWS: u64 = 1 << SESSION_SHIFT;
/// The number of sessions of HISTORY.
pub(super) const SESSIONS: u64 = 1 << (WAREHOUSE_SHIFT - SESSION_SHIFT);

/// The width of a last name in bytes.
pub(super) const LAST_BYTES: usize = 16;
/// The width of `C_DATA` in bytes.
pub(super) const CUSTOMER_DATA_BYTES: usize = 500;
/// The width of `H_DATA` in bytes.
pub(super) const HISTORY_DATA_BYTES: usize = 24;

macro_rules! columns {
    ($($name:ident = $position:literal),+ $(,)?) => {
        $(#[inline]
        pub(super) const fn $name() -> ColumnId {
            ColumnId($position)
        })+
    };
}
columns! {
    // warehouse; its address is columns 3 to 7
    w_ytd = 0, w_tax = 1, w_name = 2,
    // district; its address is columns 4 to 8
    d_ytd = 0, d_next_o_id = 1, d_tax = 2, d_name = 3,
    // customer; its address is columns 11 to 15
    c_balance = 0, c_ytd_payment = 1, c_payment_cnt = 2, c_delivery_cnt = 3, c_discount = 4,
    c_credit = 5, c_last = 6, c_middle = 7, c_credit_lim = 8, c_since = 9, c_first = 10,
    c_phone = 16, c_data = 17,
    // history
    h_c_id = 0, h_c_d_id = 1, h_c_w_id = 2, h_d_id = 3, h_date = 4, h_amount = 5, h_data = 6,
    // orders
    o_c_id = 0, o_entry_d = 1, o_carrier_id = 2, o_lines = 3,
    // order_line
    ol_i_id = 0, ol_supply_w_id = 1, ol_delivery_d = 2, ol_quantity = 3, ol_amount = 4,
    ol_dist_info = 5,
    // item
    i_price = 0, i_im_id = 1, i_name = 2, i_data = 3,
    // stock; S_DIST_01 to S_DIST_10 are columns 5 to 14
    s_quantity = 0, s_ytd = 1, s_order_cnt = 2, s_remote_cnt = 3, s_data = 4,
}

/// Returns the column of a district, from `S_DIST_01` to `S_DIST_10`.
#[inline]
pub(super) const fn s_dist(district: u8) -> ColumnId {
    ColumnId(4 + district)
}

/// The columns of an address.
pub(super) const ADDRESS: [(&str, u16); 5] =
    [("street_1", 20), ("street_2", 20), ("city", 20), ("state", 2), ("zip", 9)];
/// The first column of the warehouse's address.
pub(super) const W_ADDRESS: u8 = 3;
/// The first column of the district's address.
pub(super) const D_ADDRESS: u8 = 4;
/// The first column of the customer's address.
pub(super) const C_ADDRESS: u8 = 11;

/// Returns the schemas of all tables, in the order of their ids.
pub(super) fn schemas(scale: &Scale) -> Vec<TableSchema> {
    let rows = scale.expected_rows();
    let table = |id: TableId, name| {
        TableSchema::new(name, rows[usize::from(id.0)]).critical_bits(WAREHOUSE_BITS)
    };
    vec![
        warehouse(table(WAREHOUSE, "warehouse")),
        district(table(DISTRICT, "district")),
        customer(table(CUSTOMER, "customer")),
        history(table(HISTORY, "history").fingerprinted()),
        table(NEW_ORDER, "new_order")
            .fingerprinted()
            .column("no_filler", ColumnType::U8)
            .ordered("oldest"),
        orders(table(ORDERS, "orders").fingerprinted()),
        order_line(table(ORDER_LINE, "order_line").fingerprinted()),
        item(table(ITEM, "item").critical_bits(0).apart()),
        stock(table(STOCK, "stock")),
    ]
}

/// Returns the same schemas with locks sharded by another field. The locks of a table without this
/// field are sharded by the whole key.
pub(super) fn schemas_by(scale: &Scale, field: CriticalField) -> Vec<TableSchema> {
    let in_district = [DISTRICT, CUSTOMER, NEW_ORDER, ORDERS, ORDER_LINE];
    let bits = |id: TableId| match field {
        CriticalField::Warehouse if id != ITEM => WAREHOUSE_BITS,
        CriticalField::District if in_district.contains(&id) => DISTRICT_BITS,
        CriticalField::Customer if id == CUSTOMER => CUSTOMER_BITS,
        _ => 0,
    };
    let with = |(id, schema): (u16, TableSchema)| schema.critical_bits(bits(TableId(id)));
    (0..).zip(schemas(scale)).map(with).collect()
}

/// The part of an index key that contains the warehouse and the district. An index stores these 28
/// bits in 4 bytes.
const DISTRICT_PART: IndexPart = IndexPart::KeyBits { shift: DISTRICT_SHIFT as u8, bits: 28 };
/// The part of an index key that contains an order's number.
const NUMBER_PART: IndexPart = IndexPart::KeyBits { shift: ORDER_SHIFT as u8, bits: 32 };

/// Returns the common prefix of the keys of a district in an index that starts with
/// [`DISTRICT_PART`].
#[inline]
pub(super) fn district_prefix(w: u32, d: u8) -> IndexKey {
    IndexKey::new().u32((district_key(w, d) >> DISTRICT_SHIFT) as u32)
}

/// Returns the first and the last possible key of a district's new orders. The index sorts whole keys
/// of orders, and only the first 28 bits of a key name the district. A common prefix would need three
/// and a half bytes, so the function returns two bounds instead.
pub(super) fn oldest_bounds(w: u32, d: u8) -> (IndexKey, IndexKey) {
    let (first, last) = (order_key(w, d, 0), line_key(order_key(w, d, u32::MAX), 0xf));
    (IndexKey::new().u64(first), IndexKey::new().u64(last))
}

/// Returns the number of bytes of memory that is reserved for a warehouse's rows. For each record the
/// reserved memory has two slots, with their share of the bucket's head. The reserved memory also
/// contains the rows that are stored outside of their slots. The number does not include indexes and
/// ITEM.
pub(super) fn bytes_per_warehouse(scale: &Scale) -> u64 {
    let options = Options::default();
    let bytes = |schema: &TableSchema| {
        let (shape, slot) = (options.bucket, options.slot(schema));
        let slots_bytes = 2 * shape.bucket_bytes(&slot) as u64 / u64::from(shape.slots);
        slots_bytes + slot.body_bytes() as u64
    };
    let rows = scale.rows();
    let all = schemas(scale).into_iter().zip(rows).filter(|(schema, _)| schema.name != "item");
    all.map(|(schema, rows)| rows * bytes(&schema)).sum::<u64>() / u64::from(scale.warehouses)
}

/// Adds the columns of an address to a schema.
fn with_address(schema: TableSchema, prefix: &str) -> TableSchema {
    ADDRESS.iter().fold(schema, |schema, (name, width)| {
        schema.column(&format!("{prefix}_{name}"), ColumnType::Bytes(*width))
    })
}

fn warehouse(table: TableSchema) -> TableSchema {
    use ColumnType::{Bytes, I64, U16};
    let table = table.column("w_ytd", I64).column("w_tax", U16).column("w_name", Bytes(10));
    with_address(table, "w")
}

fn district(table: TableSchema) -> TableSchema {
    use ColumnType::{Bytes, I64, U16, U32};
    let table = table.column("d_ytd", I64).column("d_next_o_id", U32).column("d_tax", U16);
    with_address(table.column("d_name", Bytes(10)), "d")
}

/// Returns the schema of customers. The first line of a row has all columns that New-Order uses, and
/// most of those that Payment uses.
fn customer(table: TableSchema) -> TableSchema {
    use ColumnType::{Bytes, I64, U16, U32};
    let table = table
        .column("c_balance", I64)
        .column("c_ytd_payment", I64)
        .column("c_payment_cnt", U32)
        .column("c_delivery_cnt", U32)
        .column("c_discount", U16)
        .column("c_credit", Bytes(2))
        .column("c_last", Bytes(LAST_BYTES as u16))
        .column("c_middle", Bytes(2))
        .column("c_credit_lim", I64)
        .column("c_since", U32)
        .column("c_first", Bytes(16));
    with_address(table, "c")
        .column("c_phone", Bytes(16))
        .column("c_data", Bytes(CUSTOMER_DATA_BYTES as u16))
        .index(
            "customer_by_name",
            &[DISTRICT_PART, IndexPart::Column(c_last()), IndexPart::Column(c_first())],
            false,
        )
}

fn history(table: TableSchema) -> TableSchema {
    use ColumnType::{Bytes, U16, U32, U8};
    table
        .column("h_c_id", U16)
        .column("h_c_d_id", U8)
        .column("h_c_w_id", Bytes(3))
        .column("h_d_id", U8)
        .column("h_date", U32)
        .column("h_amount", Bytes(3))
        .column("h_data", Bytes(HISTORY_DATA_BYTES as u16))
}

fn orders(table: TableSchema) -> TableSchema {
    use ColumnType::{U16, U32, U8};
    table
        .column("o_c_id", U16)
        .column("o_entry_d", U32)
        .column("o_carrier_id", U8)
        .column("o_ol_cnt_o_all_local", U8)
        .index("orders_by_customer", &[DISTRICT_PART, IndexPart::Column(o_c_id()), NUMBER_PART], true)
}

fn order_line(table: TableSchema) -> TableSchema {
    use ColumnType::{Bytes, U32, U8};
    table
        .column("ol_i_id", Bytes(3))
        .column("ol_supply_w_id", Bytes(3))
        .column("ol_delivery_d", U32)
        .column("ol_quantity", U8)
        .column("ol_amount", Bytes(3))
        .column("ol_dist_info", Bytes(24))
}

fn item(table: TableSchema) -> TableSchema {
    use ColumnType::{Bytes, U16};
    table
        .column("i_price", U16)
        .column("i_im_id", U16)
        .column("i_name", Bytes(24))
        .column("i_data", Bytes(50))
}

/// Returns the schema of stocks. The first line of a row has all columns that every New-Order uses,
/// except the one column `S_DIST_xx` of its district.
fn stock(table: TableSchema) -> TableSchema {
    use ColumnType::{Bytes, U16, U32};
    let table = table
        .column("s_quantity", U16)
        .column("s_ytd", U32)
        .column("s_order_cnt", U32)
        .column("s_remote_cnt", U32)
        .column("s_data", Bytes(50));
    (1..=10).fold(table, |table, district| {
        table.column(&format!("s_dist_{district:02}"), Bytes(24))
    })
}

/// Returns the key of a warehouse.
#[inline]
pub(super) const fn warehouse_key(w: u32) -> u64 {
    (w as u64) << WAREHOUSE_SHIFT
}

/// Returns the key of a district.
#[inline]
pub(super) const fn district_key(w: u32, d: u8) -> u64 {
    warehouse_key(w) | (d as u64) << DISTRICT_SHIFT
}

/// Returns the key of a customer.
#[inline]
pub(super) const fn customer_key(w: u32, d: u8, c: u32) -> u64 {
    district_key(w, d) | c as u64
}

/// Returns the key of an order. The row of NEW-ORDER for this order has the same key.
#[inline]
pub(super) const fn order_key(w: u32, d: u8, o: u32) -> u64 {
    district_key(w, d) | (o as u64) << ORDER_SHIFT
}

/// Returns the key of an order's line number `line`, counted from 1.
#[inline]
pub(super) const fn line_key(order: u64, line: u8) -> u64 {
    order | line as u64
}

/// Returns the key of the stock of an item in a warehouse.
#[inline]
pub(super) const fn stock_key(w: u32, i: u32) -> u64 {
    warehouse_key(w) | i as u64
}

/// Returns the generated key of a row of HISTORY.
#[inline]
pub(super) const fn history_key(w: u32, session: u64, count: u64) -> u64 {
    warehouse_key(w) | session << SESSION_SHIFT | count
}

/// Returns the warehouse in a key of any table except ITEM.
#[inline]
pub(super) const fn warehouse_of(key: u64) -> u32 {
    (key >> WAREHOUSE_SHIFT) as u32
}

/// Returns the district in the key of a district, customer, order or order line.
#[inline]
pub(super) const fn district_of(key: u64) -> u8 {
    (key >> DISTRICT_SHIFT & 0xf) as u8
}

/// Returns the order's number in the key of an order or order line.
#[inline]
pub(super) const fn order_of(key: u64) -> u32 {
    (key >> ORDER_SHIFT) as u32
}

/// Returns the customer's number in the key of a customer.
#[inline]
pub(super) const fn customer_of(key: u64) -> u32 {
    key as u32
}

/// Returns the line's number in the key of an order line.
#[inline]
pub(super) const fn line_of(key: u64) -> u8 {
    (key & 0xf) as u8
}

/// Returns the item's number in the key of a stock.
#[inline]
pub(super) const fn item_of(key: u64) -> u32 {
    key as u32
}

/// Packs `O_OL_CNT` and `O_ALL_LOCAL` into one byte.
#[inline]
pub(super) const fn pack_lines(count: u8, is_all_local: bool) -> u64 {
    (count | (is_all_local as u8) << 7) as u64
}

/// Returns `O_OL_CNT` from the byte that contains `O_OL_CNT` and `O_ALL_LOCAL`.
#[inline]
pub(super) const fn line_count(packed: u64) -> u8 {
    (packed & 0x7f) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_apart_as_they_were_packed_and_sort_as_their_parts() {
        let order = order_key(105, 10, u32::MAX);
        let line = line_key(order, 15);
        assert_eq!((warehouse_of(line), district_of(line)), (105, 10));
        assert_eq!((order_of(line), line_of(line)), (u32::MAX, 15));
        assert_eq!(customer_of(customer_key(7, 3, 3000)), 3000);
        assert_eq!(item_of(stock_key(7, 100_000)), 100_000);
        let last = history_key(9, SESSIONS - 1, SESSION_ROWS - 1);
        assert_eq!(warehouse_of(last), 9);
        assert!(last < warehouse_key(10));
        assert!(line < line_key(order_key(106, 1, 1), 1));
        assert!(line_key(order_key(1, 1, 9), 15) < line_key(order_key(1, 1, 10), 1));
        assert_eq!(warehouse_of(warehouse_key((1 << 24) - 1)), (1 << 24) - 1);
    }

    #[test]
    fn two_columns_share_a_byte() {
        for is_all_local in [false, true] {
            let packed = pack_lines(15, is_all_local);
            assert_eq!((line_count(packed), packed >> 7 == 1), (15, is_all_local));
        }
    }

    #[test]
    fn rows_lie_as_the_text_says() {
        use tarn_store::layout::Slot;
        let slots: Vec<Slot> =
            schemas(&Scale::spec(1)).iter().map(Slot::of).collect();
        let bytes: Vec<usize> = slots.iter().map(|slot| slot.slot_bytes).collect();
        assert_eq!(bytes, [128, 128, 32, 64, 32, 32, 64, 32, 32]);
        let bodies: Vec<usize> = slots.iter().map(Slot::body_bytes).collect();
        assert_eq!(bodies, [0, 0, 704, 0, 0, 0, 0, 128, 320]);
    }
}
