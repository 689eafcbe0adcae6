//! TPC-C as lock requests, with 121 locks a warehouse, of which 81 are requested by the warehouse's own machine only.
//!
//! Invariant: only locks of customers, and of items, may be requested by other machines. FissLock-Local decides all others where they are.
//! Tables, locks and kinds of transactions as in the traces of Zhang et al., OSDI 2024: 10 order lines, stock of the home warehouse, items
//! without locks, 15 % of payments for a customer of another machine.

use super::{Wanted, Words, below};
use crate::value::{LockId, Machine, Mode};
use std::ops::Range;

/// Locks of a warehouse, by table.
const WAREHOUSE: Range<u32> = 0..1;
const DISTRICT: Range<u32> = 1..11;
const CUSTOMER: Range<u32> = 11..41;
const ORDER: Range<u32> = 41..51;
const HISTORY: Range<u32> = 51..61;
const NEW_ORDER: Range<u32> = 61..71;
const ORDER_LINE: Range<u32> = 71..81;
const STOCK: Range<u32> = 81..111;
const ITEM: Range<u32> = 111..121;

/// Rows of one district, and names of customers. Source: TPC-C, clause 4.3.
const CUSTOMERS: u64 = 3_000;
const LAST_NAMES: u64 = 1_000;
const STOCKS: u64 = 100_000;
const LINES: usize = 10;
/// Ranges of the non-uniform draws. Source: the traces (clause 2.1.6 has 1,023 and 255, and a constant).
const CUSTOMER_BITS: u64 = 1_024;
const LAST_NAME_BITS: u64 = 256;
/// Payments of 100 for a customer of another machine. Source: clause 2.5.1.2.
const REMOTE_PERCENT: u64 = 15;
/// Customers of 100 that are named by their last name. Source: clause 2.5.1.2.
const BY_NAME_PERCENT: u64 = 60;

/// TPC-C.
#[derive(Clone, Debug)]
pub struct Tpcc {
    machines: u16,
    warehouses: u32,
    /// Orders and payments so far: each inserts at the end of its tables.
    orders: u64,
    payments: u64,
}

impl Tpcc {
    /// Locks of a warehouse.
    pub const LOCKS: u32 = ITEM.end;
    /// Locks of a warehouse that its own machine alone requests.
    pub const LOCAL_LOCKS: u32 =
        Tpcc::LOCKS - (CUSTOMER.end - CUSTOMER.start) - (ITEM.end - ITEM.start);
    /// Kinds of transactions.
    pub const KINDS: [&str; 5] =
        ["new-order", "payment", "order-status", "delivery", "stock-level"];
    /// Shares of the kinds, added up. Source: the paper's table 3.
    const UP_TO: [u64; 5] = [45, 88, 92, 96, 100];

    /// `machines` machines, each with `warehouses` warehouses.
    ///
    /// # Panics
    /// If there is none of either.
    #[must_use]
    pub fn new(machines: u16, warehouses: u32) -> Tpcc {
        assert!(machines > 0 && warehouses > 0, "{machines} machines, {warehouses} warehouses");
        Tpcc { machines, warehouses, orders: 0, payments: 0 }
    }

    pub(super) fn locks(&self) -> u32 {
        u32::from(self.machines) * self.warehouses * Tpcc::LOCKS
    }

    /// Whether only the machine of the lock's warehouse requests a lock.
    #[must_use]
    pub fn is_local(lock: LockId) -> bool {
        let place = lock.0 % Tpcc::LOCKS;
        !CUSTOMER.contains(&place) && !ITEM.contains(&place)
    }

    /// The machine of a lock's warehouse.
    #[must_use]
    pub fn home(&self, lock: LockId) -> Machine {
        Machine(1 + (lock.0 / Tpcc::LOCKS / self.warehouses) as u16)
    }

    pub(super) fn draw(&mut self, machine: Machine, words: Words, wanted: &mut Vec<Wanted>) -> u8 {
        let roll = below(words, 100);
        let kind = Tpcc::UP_TO.iter().position(|end| roll < *end).unwrap_or_default();
        let here = u32::from(machine.0 - 1) % u32::from(self.machines);
        let home = self.warehouse(here, words);
        let mut want = |lock: LockId, mode| Wanted::add(wanted, lock, mode);
        let any = |table: &Range<u32>, words: Words| {
            LockId(home + table.start + below(words, u64::from(table.end - table.start)) as u32)
        };
        match kind {
            0 => {
                want(LockId(home + WAREHOUSE.start), Mode::Shared);
                let district = any(&DISTRICT, words);
                want(district, Mode::Exclusive);
                let row = u64::from(district.0 - home - DISTRICT.start) * CUSTOMERS
                    + uneven(words, CUSTOMER_BITS, CUSTOMERS);
                // A lock for each 1,000 of the 30,000 customers.
                want(LockId(home + CUSTOMER.start + (row / 1_000) as u32), Mode::Shared);
                for table in [&ORDER, &NEW_ORDER] {
                    want(nth(home, table, self.orders), Mode::Exclusive);
                }
                for _ in 0..LINES {
                    want(nth(home, &STOCK, below(words, STOCKS)), Mode::Exclusive);
                }
                want(nth(home, &ORDER_LINE, self.orders), Mode::Exclusive);
                self.orders += 1;
            }
            1 => {
                want(LockId(home + WAREHOUSE.start), Mode::Exclusive);
                want(any(&DISTRICT, words), Mode::Exclusive);
                let is_remote = self.machines > 1 && below(words, 100) < REMOTE_PERCENT;
                let by = 1 + below(words, u64::from(self.machines - 1).max(1)) as u32;
                let of = if is_remote { (here + by) % u32::from(self.machines) } else { here };
                let of = if is_remote { self.warehouse(of, words) } else { home };
                want(customer(of, words), Mode::Exclusive);
                want(nth(home, &HISTORY, self.payments), Mode::Exclusive);
                self.payments += 1;
            }
            2 => {
                want(customer(home, words), Mode::Shared);
                want(any(&ORDER, words), Mode::Shared);
                want(any(&ORDER_LINE, words), Mode::Shared);
            }
            3 => {
                want(any(&NEW_ORDER, words), Mode::Exclusive);
                want(any(&ORDER, words), Mode::Exclusive);
                want(any(&ORDER_LINE, words), Mode::Shared);
                let row = uneven(words, CUSTOMER_BITS, CUSTOMERS);
                want(nth(home, &CUSTOMER, row), Mode::Exclusive);
            }
            _ => {
                want(any(&DISTRICT, words), Mode::Shared);
                want(any(&ORDER_LINE, words), Mode::Shared);
                want(any(&STOCK, words), Mode::Shared);
            }
        }
        kind as u8
    }

    /// The first lock of one of a machine's warehouses. The machines count from 0 here.
    fn warehouse(&self, machine: u32, words: Words) -> u32 {
        let warehouse = below(words, u64::from(self.warehouses)) as u32;
        (machine * self.warehouses + warehouse) * Tpcc::LOCKS
    }
}

fn nth(home: u32, table: &Range<u32>, row: u64) -> LockId {
    LockId(home + table.start + (row % u64::from(table.end - table.start)) as u32)
}

fn customer(home: u32, words: Words) -> LockId {
    let row = match below(words, 100) < BY_NAME_PERCENT {
        true => uneven(words, LAST_NAME_BITS, LAST_NAMES),
        false => uneven(words, CUSTOMER_BITS, CUSTOMERS),
    };
    nth(home, &CUSTOMER, row)
}

/// TPC-C's non-uniform draw.
fn uneven(words: Words, bits: u64, end: u64) -> u64 {
    (below(words, bits) | below(words, end)) % end
}

#[cfg(test)]
mod tests {
    use super::super::tests::words;
    use super::super::{Trace, Workload};
    use super::*;

    #[test]
    fn a_warehouse_has_121_locks_and_81_of_them_are_local() {
        assert_eq!((Tpcc::LOCKS, Tpcc::LOCAL_LOCKS), (121, 81));
        let local = (0..Tpcc::LOCKS).filter(|lock| Tpcc::is_local(LockId(lock + 5 * Tpcc::LOCKS)));
        assert_eq!(local.count(), 81);
        // The published size: 8 machines with 1,200 warehouses each.
        assert_eq!(Tpcc::new(8, 1_200).locks(), 1_161_600);
    }

    #[test]
    fn local_locks_are_requested_at_home_and_kinds_come_as_often_as_published() {
        let tpcc = Tpcc::new(4, 3);
        let mut workload = Workload::Tpcc(tpcc.clone());
        let trace = Trace::drawn(&mut workload, (40_000, 4), &mut words(8));
        let mut kinds = [0usize; 5];
        let mut remote = 0;
        for it in trace.transactions() {
            kinds[usize::from(it.kind)] += 1;
            let away = it.wanted.iter().filter(|wanted| tpcc.home(wanted.lock()) != it.machine);
            for wanted in away {
                assert!(!Tpcc::is_local(wanted.lock()));
                remote += 1;
            }
        }
        for (kind, percent) in [45, 43, 4, 4, 4].into_iter().enumerate() {
            let expected = 400 * percent;
            assert!(kinds[kind].abs_diff(expected) < 600, "{kinds:?}");
        }
        let expected = kinds[1] * 15 / 100;
        assert!(usize::abs_diff(remote, expected) < 300, "{remote} of {} payments", kinds[1]);
    }
}
