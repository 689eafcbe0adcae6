//! The sums and counts over the tables that the conditions need. One scan of each table computes
//! them.
//!
//! Invariant: this module checks only whether the rows that a row names exist. A row counts as a
//! stranger if its warehouse, district, customer or item does not exist. An order line also counts as
//! a stranger if its order does not exist.

use super::super::population::loaded_quantity;
use super::super::scale::{DISTRICTS, Scale};
use super::super::tables::{CUSTOMER, DISTRICT, HISTORY, ITEM, NEW_ORDER, ORDERS, ORDER_LINE, STOCK, WAREHOUSE, c_balance, c_ytd_payment, customer_of, d_next_o_id, d_ytd, district_of, h_amount, h_c_d_id, h_c_id, h_c_w_id, h_d_id, item_of, line_count, line_of, o_c_id, o_carrier_id, o_lines, ol_amount, ol_delivery_d, ol_i_id, ol_quantity, ol_supply_w_id, order_of, s_order_cnt, s_quantity, s_remote_cnt, s_ytd, w_ytd, warehouse_of};
use super::super::tally::district_index;
use tarn_engine::site::Context;
use tarn_engine::admin::inspect::{Stored, scan};
use tarn_store::ids::Failure;

/// The sums of one warehouse.
#[derive(Clone, Copy, Default)]
pub(super) struct Warehouse {
    pub(super) ytd: i64,
    /// The sum of the payments in HISTORY.
    pub(super) paid: i64,
}

/// The sums and counts of one district.
#[derive(Clone, Copy, Default)]
pub(super) struct District {
    pub(super) ytd: i64,
    pub(super) next_o_id: u64,
    /// The sum of the payments in HISTORY.
    pub(super) paid: i64,
    pub(super) orders: u64,
    pub(super) last_order: u64,
    /// The sum of `O_OL_CNT` over the district's orders.
    pub(super) lines_counted: u64,
    pub(super) lines: u64,
    pub(super) new_orders: u64,
    pub(super) first_new: u64,
    pub(super) last_new: u64,
}

/// The sums of one customer.
#[derive(Clone, Copy, Default)]
pub(super) struct Customer {
    pub(super) balance: i64,
    pub(super) ytd_payment: i64,
    /// The sum of the payments in HISTORY.
    pub(super) paid: i64,
    /// The sum of the amounts of the customer's delivered order lines.
    pub(super) delivered: i64,
}

/// The facts about one order and its lines.
#[derive(Clone, Copy)]
pub(super) struct Order {
    key: u64,
    customer: u32,
    pub(super) lines: u8,
    pub(super) is_delivered: bool,
    pub(super) is_new: bool,
    /// A mask with one bit for each line of the order that the scan found.
    pub(super) found: u16,
    /// The number of lines whose date of delivery does not agree with the order's carrier.
    pub(super) misdated: u8,
}

/// One stock, and the amount that was taken from it according to order lines.
#[derive(Clone, Copy, Default)]
pub(super) struct Stock {
    pub(super) quantity: u64,
    pub(super) ytd: u64,
    pub(super) count: u64,
    pub(super) remote: u64,
    pub(super) taken: u64,
    pub(super) lines: u64,
    pub(super) remote_lines: u64,
    pub(super) loaded: u64,
}

/// The sums and counts of all tables that the conditions need.
pub(super) struct Seen {
    pub(super) scale: Scale,
    pub(super) warehouses: Vec<Warehouse>,
    pub(super) districts: Vec<District>,
    pub(super) customers: Vec<Customer>,
    /// All orders, sorted by key.
    pub(super) orders: Vec<Order>,
    pub(super) stocks: Vec<Stock>,
    /// The number of rows that the scans found, by table.
    pub(super) rows: [u64; 9],
    pub(super) strangers: u64,
    /// The number of rows of NEW-ORDER that have no order.
    pub(super) orphans: u64,
}

impl Seen {
    pub(super) fn new(scale: &Scale) -> Seen {
        let warehouses = scale.warehouses as usize;
        let districts = warehouses * usize::from(DISTRICTS);
        let fresh = District { first_new: u64::MAX, ..District::default() };
        Seen {
            scale: *scale,
            warehouses: vec![Warehouse::default(); warehouses],
            districts: vec![fresh; districts],
            customers: vec![Customer::default(); districts * scale.customers as usize],
            orders: Vec::new(),
            stocks: vec![Stock::default(); warehouses * scale.items as usize],
            rows: [0; 9],
            strangers: 0,
            orphans: 0,
        }
    }

    /// Scans all tables. The scan of the orders comes before the scans of rows that belong to orders.
    pub(super) async fn gather(&mut self, cx: &Context) -> Result<(), Failure> {
        scan(cx, WAREHOUSE, |row| self.warehouse(&row)).await?;
        scan(cx, DISTRICT, |row| self.district(&row)).await?;
        scan(cx, CUSTOMER, |row| self.customer(&row)).await?;
        scan(cx, ORDERS, |row| self.order(&row)).await?;
        self.orders.sort_unstable_by_key(|order| order.key);
        scan(cx, NEW_ORDER, |row| self.new_order(&row)).await?;
        scan(cx, STOCK, |row| self.stock(&row)).await?;
        scan(cx, ORDER_LINE, |row| self.line(&row)).await?;
        scan(cx, HISTORY, |row| self.history(&row)).await?;
        scan(cx, ITEM, |row| {
            self.rows[7] += 1;
            self.strangers += u64::from(!(1..=u64::from(self.scale.items)).contains(&row.key));
        })
        .await
    }

    fn has_warehouse(&self, w: u32) -> bool {
        (1..=self.scale.warehouses).contains(&w)
    }

    fn district_at(&self, w: u32, d: u8) -> Option<usize> {
        let known = self.has_warehouse(w) && (1..=DISTRICTS).contains(&d);
        known.then(|| district_index(w, d))
    }

    fn customer_at(&self, w: u32, d: u8, c: u32) -> Option<usize> {
        let district = self.district_at(w, d)?;
        let known = (1..=self.scale.customers).contains(&c);
        known.then(|| district * self.scale.customers as usize + c as usize - 1)
    }

    fn stock_at(&self, w: u32, i: u32) -> Option<usize> {
        let known = self.has_warehouse(w) && (1..=self.scale.items).contains(&i);
        known.then(|| (w as usize - 1) * self.scale.items as usize + i as usize - 1)
    }

    /// Returns the position in `orders` of the order to which the key of an order or line belongs.
    fn order_at(&self, key: u64) -> Option<usize> {
        let key = key & !0xf;
        self.orders.binary_search_by_key(&key, |order| order.key).ok()
    }

    fn warehouse(&mut self, stored: &Stored<'_>) {
        self.rows[0] += 1;
        let w = warehouse_of(stored.key);
        match self.has_warehouse(w) {
            true => self.warehouses[w as usize - 1].ytd = stored.row.i64(w_ytd()),
            false => self.strangers += 1,
        }
    }

    fn district(&mut self, stored: &Stored<'_>) {
        self.rows[1] += 1;
        let Some(at) = self.district_at(warehouse_of(stored.key), district_of(stored.key)) else {
            self.strangers += 1;
            return;
        };
        let district = &mut self.districts[at];
        district.ytd = stored.row.i64(d_ytd());
        district.next_o_id = stored.row.u64(d_next_o_id());
    }

    fn customer(&mut self, stored: &Stored<'_>) {
        self.rows[2] += 1;
        let (key, row) = (stored.key, &stored.row);
        let at = self.customer_at(warehouse_of(key), district_of(key), customer_of(key));
        let Some(at) = at else {
            self.strangers += 1;
            return;
        };
        let customer = &mut self.customers[at];
        customer.balance = row.i64(c_balance());
        customer.ytd_payment = row.i64(c_ytd_payment());
    }

    fn order(&mut self, stored: &Stored<'_>) {
        self.rows[5] += 1;
        let (key, row) = (stored.key, &stored.row);
        let (w, d) = (warehouse_of(key), district_of(key));
        let (at, buyer) = (self.district_at(w, d), row.u64(o_c_id()) as u32);
        let (Some(at), Some(customer)) = (at, self.customer_at(w, d, buyer)) else {
            self.strangers += 1;
            return;
        };
        let lines = line_count(row.u64(o_lines()));
        let district = &mut self.districts[at];
        district.orders += 1;
        district.last_order = district.last_order.max(order_of(key).into());
        district.lines_counted += u64::from(lines);
        let is_delivered = row.u64(o_carrier_id()) != 0;
        let (customer, is_new, found, misdated) = (customer as u32, false, 0, 0);
        self.orders.push(Order { key, customer, lines, is_delivered, is_new, found, misdated });
    }

    fn new_order(&mut self, stored: &Stored<'_>) {
        self.rows[4] += 1;
        let (w, d) = (warehouse_of(stored.key), district_of(stored.key));
        let Some(at) = self.district_at(w, d) else {
            self.strangers += 1;
            return;
        };
        let (district, o) = (&mut self.districts[at], u64::from(order_of(stored.key)));
        district.new_orders += 1;
        district.first_new = district.first_new.min(o);
        district.last_new = district.last_new.max(o);
        match self.order_at(stored.key) {
            Some(order) => self.orders[order].is_new = true,
            None => self.orphans += 1,
        }
    }

    fn stock(&mut self, stored: &Stored<'_>) {
        self.rows[8] += 1;
        let (key, row) = (stored.key, &stored.row);
        let Some(at) = self.stock_at(warehouse_of(key), item_of(key)) else {
            self.strangers += 1;
            return;
        };
        self.stocks[at] = Stock {
            quantity: row.u64(s_quantity()),
            ytd: row.u64(s_ytd()),
            count: row.u64(s_order_cnt()),
            remote: row.u64(s_remote_cnt()),
            loaded: loaded_quantity(key),
            ..Stock::default()
        };
    }

    fn line(&mut self, stored: &Stored<'_>) {
        self.rows[6] += 1;
        let (key, row) = (stored.key, &stored.row);
        let (w, supply) = (warehouse_of(key), row.u64(ol_supply_w_id()) as u32);
        let district = self.district_at(w, district_of(key));
        let stock = self.stock_at(supply, row.u64(ol_i_id()) as u32);
        let (Some(district), Some(stock)) = (district, stock) else {
            self.strangers += 1;
            return;
        };
        self.districts[district].lines += 1;
        if order_of(key) > self.scale.customers {
            // Loaded order lines took nothing from the stock.
            let stock = &mut self.stocks[stock];
            stock.taken += row.u64(ol_quantity());
            stock.lines += 1;
            stock.remote_lines += u64::from(supply != w);
        }
        let Some(order) = self.order_at(key) else {
            self.strangers += 1;
            return;
        };
        let order = &mut self.orders[order];
        order.found |= 1 << line_of(key);
        let is_delivered = row.u64(ol_delivery_d()) != 0;
        order.misdated += u8::from(is_delivered != order.is_delivered);
        if is_delivered {
            self.customers[order.customer as usize].delivered += row.u64(ol_amount()) as i64;
        }
    }

    fn history(&mut self, stored: &Stored<'_>) {
        self.rows[3] += 1;
        let (w, row) = (warehouse_of(stored.key), &stored.row);
        let district = self.district_at(w, row.u64(h_d_id()) as u8);
        let (c_w, c_d) = (row.u64(h_c_w_id()) as u32, row.u64(h_c_d_id()) as u8);
        let customer = self.customer_at(c_w, c_d, row.u64(h_c_id()) as u32);
        let (Some(district), Some(customer)) = (district, customer) else {
            self.strangers += 1;
            return;
        };
        let cents = row.u64(h_amount()) as i64;
        self.warehouses[w as usize - 1].paid += cents;
        self.districts[district].paid += cents;
        self.customers[customer].paid += cents;
    }
}
