//! The inputs of the five transactions: clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1 and 2.8.1.
//!
//! In the specification a terminal has a fixed home warehouse, and for Stock-Level a fixed home
//! district. A workload draws inputs without knowing the terminal. So it draws the warehouse and the
//! district anew for each transaction, uniformly.
//!
//! Invariant: an input decides everything about a transaction except the date. So a retry runs the
//! same transaction.

use super::profiles::Variant;
use super::random::{NAME_CONSTANT_RUN, Nurand};
use super::scale::{DISTRICTS, LINES_MAX, LINES_MIN, Scale};
use crate::distribution::Dice;
use tarn_fabric::rng::Rng;

/// One line of an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Line {
    /// The number of the item. If the item does not exist, the order is rolled back.
    pub i_id: u32,
    /// The warehouse that supplies the item.
    pub supply_w_id: u32,
    /// The ordered quantity, 1 to 10.
    pub quantity: u8,
}

/// The lines of an order, up to fifteen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lines {
    lines: [Line; LINES_MAX as usize],
    count: u8,
}

impl std::ops::Deref for Lines {
    type Target = [Line];
    #[inline]
    fn deref(&self) -> &[Line] {
        &self.lines[..usize::from(self.count)]
    }
}

/// The way in which an input names a customer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// The customer's number.
    Id(u32),
    /// The number of the customer's last name, 0 to 999.
    Name(u32),
}

/// The input of one transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// Enters an order.
    NewOrder {
        /// The home warehouse.
        w_id: u32,
        /// The number of the district, 1 to 10.
        d_id: u8,
        /// The number of the customer.
        c_id: u32,
        /// The ordered lines.
        lines: Lines,
    },
    /// Takes a customer's payment.
    Payment {
        /// The warehouse that receives the payment.
        w_id: u32,
        /// The number of the district, 1 to 10.
        d_id: u8,
        /// The customer's warehouse.
        c_w_id: u32,
        /// The customer's district.
        c_d_id: u8,
        /// The customer that pays.
        who: Who,
        /// The amount in cents, from 1.00 to 5000.00.
        cents: u32,
    },
    /// Reads a customer's newest order.
    OrderStatus {
        /// The number of the warehouse.
        w_id: u32,
        /// The number of the district, 1 to 10.
        d_id: u8,
        /// The customer whose newest order is read.
        who: Who,
    },
    /// Delivers the oldest new order of every district.
    Delivery {
        /// The number of the warehouse.
        w_id: u32,
        /// The number of the carrier, 1 to 10.
        carrier: u8,
    },
    /// Counts the items of the last 20 orders whose stock is low.
    StockLevel {
        /// The number of the warehouse.
        w_id: u32,
        /// The number of the district, 1 to 10.
        d_id: u8,
        /// The quantity below which a stock counts as low, 10 to 20.
        threshold: u8,
    },
}

/// Returns the number of an item that does not exist.
pub(super) fn unused_item(items: u32) -> u32 {
    items + 1
}

/// Draws the inputs of transactions.
pub(super) struct Draws {
    warehouses: u32,
    items: u32,
    customer: Nurand,
    item: Nurand,
    name: Nurand,
}

impl Draws {
    pub(super) fn new(scale: &Scale) -> Draws {
        let (warehouses, items) = (scale.warehouses, scale.items);
        let name = scale.name_draw(NAME_CONSTANT_RUN);
        Draws { warehouses, items, customer: scale.customer_draw(), item: scale.item_draw(), name }
    }

    #[inline]
    pub(super) fn draw(&self, variant: &Variant, rng: &mut Rng) -> Input {
        let mut dice = Dice::new(rng);
        let w_id = 1 + dice.roll(self.warehouses.into()) as u32;
        let kind = variant.mix.draw(&mut dice);
        let d_id = 1 + dice.roll(DISTRICTS.into()) as u8;
        match kind {
            0 => self.new_order(w_id, d_id, variant, rng),
            1 => self.payment(w_id, d_id, variant, rng),
            2 => Input::OrderStatus { w_id, d_id, who: self.customer(variant, rng) },
            3 => Input::Delivery { w_id, carrier: 1 + dice.roll(10) as u8 },
            _ => Input::StockLevel { w_id, d_id, threshold: 10 + dice.roll(11) as u8 },
        }
    }

    /// Draws a customer. In the specification six in ten customers are named by last name.
    fn customer(&self, variant: &Variant, rng: &mut Rng) -> Who {
        let mut dice = Dice::new(rng);
        match dice.roll(100) < variant.by_name_percent {
            true => Who::Name(self.name.draw(&mut dice)),
            false => Who::Id(self.customer.draw(&mut dice)),
        }
    }

    /// Draws a warehouse other than `home`. If the database has only one warehouse, the function
    /// returns `home`.
    fn another_warehouse(&self, home: u32, dice: &mut Dice) -> u32 {
        if self.warehouses == 1 {
            return home;
        }
        let other = 1 + dice.roll(u64::from(self.warehouses) - 1) as u32;
        if other < home { other } else { other + 1 }
    }

    fn new_order(&self, w_id: u32, d_id: u8, variant: &Variant, rng: &mut Rng) -> Input {
        let mut dice = Dice::new(rng);
        let c_id = self.customer.draw(&mut dice);
        let count = LINES_MIN + dice.roll(u64::from(LINES_MAX - LINES_MIN) + 1) as u8;
        let is_unused = dice.roll(100) < variant.rollback_percent;
        let mut lines = Lines { lines: [Line::default(); LINES_MAX as usize], count };
        for line in &mut lines.lines[..usize::from(count)] {
            let mut dice = Dice::new(rng);
            line.i_id = self.item.draw(&mut dice);
            line.quantity = 1 + dice.roll(10) as u8;
            line.supply_w_id = w_id;
            if dice.roll(100) < variant.remote_line_percent {
                line.supply_w_id = self.another_warehouse(w_id, &mut Dice::new(rng));
            }
        }
        if is_unused {
            lines.lines[usize::from(count) - 1].i_id = unused_item(self.items);
        }
        Input::NewOrder { w_id, d_id, c_id, lines }
    }

    fn payment(&self, w_id: u32, d_id: u8, variant: &Variant, rng: &mut Rng) -> Input {
        let mut dice = Dice::new(rng);
        let cents = 100 + dice.roll(499_901) as u32;
        let (mut c_w_id, mut c_d_id) = (w_id, d_id);
        if dice.roll(100) < variant.remote_payment_percent && self.warehouses > 1 {
            c_d_id = 1 + dice.roll(DISTRICTS.into()) as u8;
            c_w_id = self.another_warehouse(w_id, &mut Dice::new(rng));
        }
        Input::Payment { w_id, d_id, c_w_id, c_d_id, who: self.customer(variant, rng), cents }
    }
}
