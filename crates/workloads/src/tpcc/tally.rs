//! The counts of a coordinator's committed TPC-C transactions.
//!
//! Invariant: a transaction is counted after its commit. The checks use only the numbers of orders,
//! payments, deliveries and missing rows. The checks compute all amounts of money from the stored
//! rows.

use super::input::{Input, Line};
use super::scale::DISTRICTS;
use super::tables::{SESSIONS, SESSION_ROWS, history_key};
use crate::untold::{Slack, Untold};
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_store::schema::TableId;

/// The possible effects of uncounted transactions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Uncounted {
    /// The number of orders that uncounted transactions may have entered.
    pub orders: Slack,
    /// The number of lines of orders that uncounted transactions may have entered.
    pub lines: Slack,
    /// The number of payments that may have committed without being counted.
    pub payments: Slack,
    /// The number of orders that uncounted transactions may have delivered, by district. The
    /// districts of warehouse 1 come first.
    pub delivered: Vec<Slack>,
}

/// The counts of a coordinator's committed transactions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// The number of entered orders.
    pub orders: u64,
    /// The number of lines of the entered orders.
    pub lines: u64,
    /// The number of lines that another warehouse supplies.
    pub remote_lines: u64,
    /// The number of New-Orders that named an item which does not exist.
    pub rolled_back: u64,
    /// The number of payments.
    pub payments: u64,
    /// The number of payments by customers of another warehouse.
    pub remote_payments: u64,
    /// The number of Payments and Order-Statuses that found their customer by last name.
    pub by_name: u64,
    /// The number of Order-Status transactions.
    pub statuses: u64,
    /// The number of delivered orders, by district. The districts of warehouse 1 come first.
    pub delivered: Vec<u64>,
    /// The number of times that a Delivery found no new order in a district.
    pub skipped: u64,
    /// The number of Stock-Level transactions.
    pub levels: u64,
    /// The number of items that Stock-Level transactions found low.
    pub low_stocks: u64,
    /// The number of rows that transactions needed and that did not exist.
    pub missing: u64,
    /// The first missing row.
    pub first_missing: Option<(TableId, u64)>,
    /// The number of transactions that ended because they repeatedly did not find an existing row.
    pub overlooked: u64,
    /// The existing row that the first of these transactions did not find.
    pub first_overlooked: Option<(TableId, u64)>,
    /// The number of tries that did not find a row which a second read found.
    pub looked_again: u64,
    /// The possible effects of transactions that were not counted.
    pub untold: Uncounted,
    /// The session of the next row of HISTORY, and the number of rows used in this session. Session 0
    /// means that the coordinator has no session yet.
    session: u64,
    count: u64,
}

impl Tally {
    /// Returns a key for a row of HISTORY that is used only once. Each coordinator takes a session of
    /// its own, and another session when its session is used up. This process hands out the sessions.
    ///
    /// # Panics
    /// After 2^40 rows, which are more than memory can hold.
    #[inline]
    pub(super) fn history_key(&mut self, w: u32, sessions: &AtomicU64) -> u64 {
        if self.session == 0 || self.count == SESSION_ROWS {
            self.session = sessions.fetch_add(1, Ordering::Relaxed);
            self.count = 0;
            assert!(self.session < SESSIONS, "sessions of HISTORY are used up");
        }
        self.count += 1;
        history_key(w, self.session, self.count - 1)
    }

    /// Counts a row that a transaction needed and that is missing.
    pub(super) fn missed(&mut self, table: TableId, key: u64) {
        self.missing += 1;
        self.first_missing.get_or_insert((table, key));
    }

    /// Counts a transaction that repeatedly did not find an existing row.
    pub(super) fn overlooked(&mut self, table: TableId, key: u64) {
        self.overlooked += 1;
        self.first_overlooked.get_or_insert((table, key));
    }

    /// Counts an order that was entered at warehouse `w`.
    #[inline]
    pub(super) fn ordered(&mut self, w: u32, lines: &[Line]) {
        self.orders += 1;
        self.lines += lines.len() as u64;
        self.remote_lines += lines.iter().filter(|line| line.supply_w_id != w).count() as u64;
    }

    /// Counts one delivered order of this district.
    pub(super) fn delivered(&mut self, w: u32, d: u8) {
        let at = district_index(w, d);
        if self.delivered.len() <= at {
            self.delivered.resize(at + 1, 0);
        }
        self.delivered[at] += 1;
    }

    /// Records a transaction that was not counted. A New-Order whose last item does not exist changes
    /// nothing.
    pub(super) fn untold(&mut self, input: &Input, ended: Untold, i_unused: u32) {
        let untold = &mut self.untold;
        match input {
            Input::NewOrder { lines, .. } if lines.iter().all(|line| line.i_id != i_unused) => {
                untold.orders.note(ended, 1, 1);
                let lines = lines.len() as i64;
                untold.lines.note(ended, lines, lines);
            }
            Input::Payment { .. } => untold.payments.note(ended, 1, 1),
            Input::Delivery { w_id, .. } => {
                let (first, last) = (district_index(*w_id, 1), district_index(*w_id, DISTRICTS));
                if untold.delivered.len() <= last {
                    untold.delivered.resize(last + 1, Slack::default());
                }
                // A Delivery may have found no new order in a district.
                untold.delivered[first..=last].iter_mut().for_each(|it| it.note(ended, 0, 1));
            }
            Input::NewOrder { .. } | Input::OrderStatus { .. } | Input::StockLevel { .. } => {}
        }
    }

    /// Returns the number of orders that uncounted transactions may have delivered in this district.
    pub(super) fn untold_in(&self, index: usize) -> Slack {
        self.untold.delivered.get(index).copied().unwrap_or_default()
    }

    /// Returns the number of this district's orders that were delivered.
    pub(super) fn delivered_in(&self, index: usize) -> u64 {
        self.delivered.get(index).copied().unwrap_or(0)
    }

    pub(super) fn add(&mut self, other: Tally) {
        self.orders += other.orders;
        self.lines += other.lines;
        self.remote_lines += other.remote_lines;
        self.rolled_back += other.rolled_back;
        self.payments += other.payments;
        self.remote_payments += other.remote_payments;
        self.by_name += other.by_name;
        self.statuses += other.statuses;
        self.skipped += other.skipped;
        self.levels += other.levels;
        self.low_stocks += other.low_stocks;
        self.missing += other.missing;
        self.first_missing = self.first_missing.or(other.first_missing);
        self.overlooked += other.overlooked;
        self.first_overlooked = self.first_overlooked.or(other.first_overlooked);
        self.looked_again += other.looked_again;
        if self.delivered.len() < other.delivered.len() {
            self.delivered.resize(other.delivered.len(), 0);
        }
        let (mine, theirs) = (&mut self.untold, other.untold);
        mine.orders.add(theirs.orders);
        mine.lines.add(theirs.lines);
        mine.payments.add(theirs.payments);
        if mine.delivered.len() < theirs.delivered.len() {
            mine.delivered.resize(theirs.delivered.len(), Slack::default());
        }
        for (mine, theirs) in mine.delivered.iter_mut().zip(theirs.delivered) {
            mine.add(theirs);
        }
        for (mine, theirs) in self.delivered.iter_mut().zip(other.delivered) {
            *mine += theirs;
        }
    }

    /// Returns the number of transactions that ended. The number includes transactions that did not
    /// find a row.
    pub(super) fn transactions(&self) -> u64 {
        let delivered: u64 = self.delivered.iter().sum();
        let deliveries = (delivered + self.skipped) / u64::from(DISTRICTS);
        let updates = self.orders + self.rolled_back + self.payments + deliveries;
        updates + self.statuses + self.levels + self.missing + self.overlooked
    }

    /// Returns the counts as text, together with the specified values.
    pub(super) fn outcomes(&self) -> Vec<(&'static str, String)> {
        let share = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
        let delivered: u64 = self.delivered.iter().sum();
        let named = share(self.by_name, self.payments + self.statuses);
        let remote = share(self.remote_payments, self.payments);
        vec![
            (
                "rolled_back",
                format!("{:.2} % of New-Orders", share(self.rolled_back, self.orders + self.rolled_back)),
            ),
            ("lines", format!("{:.2} an order", self.lines as f64 / self.orders.max(1) as f64)),
            ("remote_lines", format!("{:.2} %", share(self.remote_lines, self.lines))),
            ("remote_payments", format!("{remote:.1} %")),
            ("by_last_name", format!("{named:.1} % of Payments and Order-Status")),
            ("delivered", format!("{delivered} orders, {} districts had none", self.skipped)),
            ("looked_again", format!("{} rows that were there although a try missed them", self.looked_again)),
            (
                "low_stocks",
                format!("{:.1} a Stock-Level", self.low_stocks as f64 / self.levels.max(1) as f64),
            ),
        ]
    }
}

/// Returns the position of a district among all districts.
#[inline]
pub(super) fn district_index(w: u32, d: u8) -> usize {
    (w as usize - 1) * usize::from(DISTRICTS) + usize::from(d) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_history_are_never_given_twice() {
        let sessions = AtomicU64::new(1);
        let (mut one, mut other) = (Tally::default(), Tally::default());
        let mut keys: Vec<u64> = (0..SESSION_ROWS + 5)
            .flat_map(|_| [&mut one, &mut other].map(|tally| tally.history_key(1, &sessions)))
            .collect();
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all);
    }
}
