//! The database's size: the sizes of the specification, with smaller numbers in some profiles.
//!
//! Invariant: the number of rows of every table is a function of the scale. So loaders agree without
//! communication, and a check knows the number of loaded rows.

use super::random::{Nurand, noise};
use super::tables::order_key;
use tarn_store::ids::UsageError;

/// The largest number of warehouses, which need about a terabyte. The number of a warehouse in a
/// key could be even larger.
const WAREHOUSES_MAX: u64 = 10_000;
/// The number of districts of a warehouse (clause 1.2.1).
pub(super) const DISTRICTS: u8 = 10;
/// The smallest number of lines of an order. `LINES_MAX` is the largest number.
pub(super) const LINES_MIN: u8 = 5;
pub(super) const LINES_MAX: u8 = 15;
/// The specified number of customers of a district, and of initial orders of a district.
const CUSTOMERS: u32 = 3_000;
const ITEMS: u32 = 100_000;
/// The specified number of different last names.
const NAMES: u32 = 1_000;
/// The amount, in cents, that each customer has paid once before the run.
pub(super) const FIRST_PAYMENT_CENTS: i64 = 1_000;

/// The typical row lengths of clause 1.2.1 in bytes, by table.
const RAW_BYTES: [u64; 9] = [89, 95, 655, 46, 8, 24, 54, 82, 306];

/// The sizes of a TPC-C database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scale {
    pub(super) warehouses: u32,
    /// The number of customers of a district, which is also its number of initial orders.
    pub(super) customers: u32,
    pub(super) items: u32,
    /// The number of orders for which the tables have room in addition to the loaded orders. HISTORY
    /// has room for the same number of additional rows.
    pub(super) room: u64,
    /// The number of loaded order lines.
    lines: u64,
}

impl Scale {
    /// Returns the specification's sizes for this number of warehouses.
    #[cfg(test)]
    pub(super) fn spec(warehouses: u32) -> Scale {
        let sizes = Sizes { warehouses: warehouses.into(), ..Sizes::SPEC };
        Scale::new(u64::from(warehouses), sizes).expect("constant sizes make a scale")
    }

    /// Creates the sizes of a database with `warehouses` warehouses.
    ///
    /// # Errors
    /// The number of warehouses is 0, or larger than any machine's memory can hold.
    pub(super) fn new(warehouses: u64, sizes: Sizes) -> Result<Scale, UsageError> {
        if warehouses == 0 || warehouses > WAREHOUSES_MAX {
            let (field, value) = ("records".into(), warehouses.to_string());
            let allowed = format!("1 to {WAREHOUSES_MAX} warehouses");
            return Err(UsageError { field, value, allowed });
        }
        let Sizes { customers, items, room, .. } = sizes;
        let warehouses = warehouses as u32;
        let mut scale = Scale { warehouses, customers, items, room, lines: 0 };
        scale.lines = scale.districts().map(|(w, d)| scale.lines_of_district(w, d)).sum();
        Ok(scale)
    }

    /// Returns every district, as the numbers of its warehouse and of the district.
    pub(super) fn districts(&self) -> impl Iterator<Item = (u32, u8)> + use<> {
        let warehouses = 1..=self.warehouses;
        warehouses.flat_map(|w| (1..=DISTRICTS).map(move |d| (w, d)))
    }

    fn lines_of_district(&self, w: u32, d: u8) -> u64 {
        (1..=self.customers).map(|o| u64::from(loaded_lines(w, d, o))).sum()
    }

    /// Returns the number of delivered orders among a district's initial orders, which is seven in
    /// ten.
    pub(super) fn delivered(&self) -> u32 {
        self.customers - self.customers * 3 / 10
    }

    /// Returns the number of loaded rows, by table.
    pub(super) fn rows(&self) -> [u64; 9] {
        let w = u64::from(self.warehouses);
        let districts = w * u64::from(DISTRICTS);
        let customers = districts * u64::from(self.customers);
        let fresh = districts * u64::from(self.customers - self.delivered());
        let (items, stock) = (u64::from(self.items), w * u64::from(self.items));
        [w, districts, customers, customers, fresh, customers, self.lines, items, stock]
    }

    /// Returns the number of rows, by table, for which the tables have room.
    pub(super) fn expected_rows(&self) -> [u64; 9] {
        let mut rows = self.rows();
        let mean_lines = u64::from(LINES_MIN + LINES_MAX) / 2;
        for (table, of_an_order) in [(3, 1), (4, 1), (5, 1), (6, mean_lines)] {
            rows[table] += of_an_order * self.room;
        }
        rows
    }

    /// Returns the number of bytes of a warehouse's rows, computed with the specification's row
    /// lengths. The number does not include the table ITEM.
    pub(super) fn raw_bytes_per_warehouse(&self) -> u64 {
        let rows = self.rows();
        let all: u64 = (0..9).filter(|&it| it != 7).map(|it| rows[it] * RAW_BYTES[it]).sum();
        all / u64::from(self.warehouses)
    }

    /// Returns the number of different last names. The number of names is at most the number of
    /// customers of a district, so each name has a customer.
    pub(super) fn names(&self) -> u32 {
        self.customers.min(NAMES)
    }

    /// Returns the distribution of customer numbers: NURand(1023, 1, 3000), or a scaled form for
    /// fewer customers.
    pub(super) fn customer_draw(&self) -> Nurand {
        Nurand::scaled(1, self.customers, 2_900, 259)
    }

    /// Returns the distribution of item numbers: NURand(8191, 1, 100000), or a scaled form for fewer
    /// items.
    pub(super) fn item_draw(&self) -> Nurand {
        Nurand::scaled(1, self.items, 12_200, 7_911)
    }

    /// Returns the distribution of last names: NURand(255, 0, 999), or a scaled form for fewer names.
    /// `constant` is C.
    pub(super) fn name_draw(&self, constant: u64) -> Nurand {
        Nurand::scaled(0, self.names(), 3_900, constant)
    }
}

/// The sizes of a database that a profile sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sizes {
    pub(super) warehouses: u64,
    pub(super) customers: u32,
    pub(super) items: u32,
    /// The value of [`Scale::room`].
    pub(super) room: u64,
}

impl Sizes {
    /// The specification's sizes, for one warehouse.
    pub(super) const SPEC: Sizes =
        Sizes { warehouses: 1, customers: CUSTOMERS, items: ITEMS, room: 500_000 };
}

/// Returns the number of lines of a loaded order, which is 5 to 15.
pub(super) fn loaded_lines(w: u32, d: u8, o: u32) -> u8 {
    let spread = u64::from(LINES_MAX - LINES_MIN + 1);
    LINES_MIN + noise(order_key(w, d, o), 0x11).roll(spread) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warehouse_has_the_specified_rows() {
        let rows = Scale::spec(2).rows();
        assert_eq!(&rows[..6], &[2, 20, 60_000, 60_000, 18_000, 60_000]);
        assert_eq!(&rows[7..], &[100_000, 200_000]);
        // An order has ten lines on average. The mean of 60,000 draws with standard deviation 3.2 is
        // within 1 % of ten.
        assert!(rows[6].abs_diff(600_000) < 6_000, "{}", rows[6]);
    }

    #[test]
    fn constants_are_the_specified_ones_at_the_specified_scale() {
        let scale = Scale::spec(1);
        assert_eq!(scale.customer_draw().spread(), 1_023);
        assert_eq!(scale.item_draw().spread(), 8_191);
        assert_eq!(scale.name_draw(0).spread(), 255);
    }

    #[test]
    fn an_impossible_scale_names_the_field() {
        for warehouses in [0, WAREHOUSES_MAX + 1] {
            let error = Scale::new(warehouses, Sizes::SPEC).expect_err("refused");
            assert!(error.to_string().starts_with("records = "), "{error}");
        }
    }
}
