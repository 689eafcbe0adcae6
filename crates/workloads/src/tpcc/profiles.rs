//! TPC-C's profiles: the benchmark's own profile, and the profiles of papers.
//!
//! Invariant: the note of each profile names every deviation from the benchmark's own definition.
//! `tpcc/mod.rs` names the deviations that all profiles share.

use super::scale::Sizes;
use crate::distribution::Mix;
use crate::workload::Profile;

pub(super) struct Variant {
    pub(super) profile: Profile,
    pub(super) sizes: Sizes,
    pub(super) mix: &'static Mix,
    /// The percentage of Payments and Order-Statuses that find their customer by last name.
    pub(super) by_name_percent: u64,
    /// The percentage of payments by customers of another warehouse.
    pub(super) remote_payment_percent: u64,
    /// The percentage of order lines that another warehouse supplies.
    pub(super) remote_line_percent: u64,
    /// The percentage of New-Orders that name an item which does not exist.
    pub(super) rollback_percent: u64,
    /// Whether terminals wait for keying and thinking between transactions.
    pub(super) waits: bool,
    /// Whether a New-Order fetches one record after the other.
    pub(super) is_line_by_line: bool,
}

/// The shares in percent of New-Order, Payment, Order-Status, Delivery and Stock-Level.
const SPEC_MIX: &Mix = &Mix::new(&[45, 43, 4, 4, 4]);
const HALVES: &Mix = &Mix::new(&[50, 50, 0, 0, 0]);
const CREST_CODE: &Mix = &Mix::new(&[50, 46, 4, 0, 0]);
/// The shares 45/40/4/4/4 that papers print. The sum of these shares is 97, so the constant has the
/// shares divided by 97, in whole percents.
const AS_PRINTED: &Mix = &Mix::new(&[47, 41, 4, 4, 4]);

const fn spec(name: &'static str, note: &'static str, warehouses: u64) -> Variant {
    Variant {
        profile: Profile { name, note },
        sizes: Sizes { warehouses, ..Sizes::SPEC },
        mix: SPEC_MIX,
        by_name_percent: 60,
        remote_payment_percent: 15,
        remote_line_percent: 1,
        rollback_percent: 1,
        waits: false,
        is_line_by_line: false,
    }
}

pub(super) const VARIANTS: &[Variant] = &[
    spec(
        "spec",
        "TPC-C 5.11: 1 warehouse, 45/43/4/4/4 drawn by weight (clause 5.2.4.1); home warehouse and \
         Stock-Level's district drawn for each transaction, not fixed for a terminal; no keying and \
         think times",
        1,
    ),
    Variant {
        waits: true,
        ..spec(
            "terminals",
            "as spec, with the keying times and the mean think times of clause 5.2.5.7: a terminal keys \
             for 2 to 18 s before its first transaction, so that phases of a few seconds run, and \
             verify, little or nothing (--verify-seconds 60 --seconds 60)",
            1,
        )
    },
    Variant {
        mix: HALVES,
        ..spec("new-order-payment", "as spec, but New-Order and Payment half and half", 1)
    },
    Variant {
        mix: &Mix::new(&[100, 0, 0, 0, 0]),
        ..spec("no-payment", "as spec, but New-Order alone", 1)
    },
    spec("lotus", "LOTUS: 105 warehouses, critical field W_ID; all else as spec", 105),
    Variant {
        sizes: Sizes { warehouses: 40, customers: 300, items: 10_000, room: 500_000 },
        ..spec(
            "crest",
            "CREST: 40 warehouses; as in its public code and FORD's 300 customers and first orders a \
             district and 10,000 items, to which NURand's A is scaled (63 and 511) and W_YTD and \
             D_YTD fitted, so that each last name has one customer; all else as spec",
            40,
        )
    },
    Variant {
        sizes: Sizes { warehouses: 40, customers: 300, items: 10_000, room: 500_000 },
        mix: CREST_CODE,
        by_name_percent: 0,
        is_line_by_line: true,
        ..spec(
            "crest-code",
            "as crest, with the mix of its public code, 50/46/4/0/0, no customer by last name, and, as in \
             FORD's, New-Orders that fetch line by line: item and stock, then the order line",
            40,
        )
    },
    Variant {
        sizes: Sizes { warehouses: 105, customers: 30, items: 1_000, room: 50_000 },
        by_name_percent: 0,
        is_line_by_line: true,
        ..spec(
            "lotus-code",
            "LOTUS's 105 warehouses, transactions as in the public code of Motor and FORD: no customer by last name, \
             and New-Orders that fetch line by line: item and stock, then the order line; of their 300 customers and \
             first orders a district and 10,000 items a tenth, NURand's A scaled; all else as spec",
            105,
        )
    },
    Variant {
        mix: AS_PRINTED,
        ..spec(
            "oocc",
            "OOCC: 8 warehouses; its table's 45/40/4/4/4 adds up to 97, here 47/41/4/4/4 of 100; all \
             else as spec",
            8,
        )
    },
    spec(
        "fisslock",
        "FissLock: transactions as specified; its locks on ranges of records, its 10 µs of work \
         and its number of warehouses, which it does not state, are left to the user (here 8 \
         warehouses)",
        8,
    ),
    Variant {
        sizes: Sizes { warehouses: 1, customers: 30, items: 100, room: 1_000 },
        ..spec(
            "tiny",
            "for tests and small simulations: 30 customers and first orders a district, 100 items, \
             NURand's A scaled, so that each last name has one customer; all else as spec",
            1,
        )
    },
];
