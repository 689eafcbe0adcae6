//! Customers by last name: clause 2.5.2.2, case 2.
//!
//! Invariant: of all customers of a district with a name, sorted by first name, the one in the middle is
//! meant: position ⌈n/2⌉. Who they are is a range read, protected like any other: a customer who came
//! or went would abort the transaction.

use super::random::last_name;
use super::tables::{CUSTOMER_BY_NAME, LAST_BYTES, district_prefix};
use tarn_store::schema::Key;
use tarn_engine::session::transaction::{Scan, ScanHandle, Transaction};

/// More customers of one name than any district has: of 3,000, some 50 share the commonest.
const NAMESAKES_MAX: u32 = 512;

/// Plans to find the customers of a name, by its number.
#[inline]
pub(super) fn scan_names(tx: &mut Transaction<'_>, w: u32, d: u8, name: u32) -> ScanHandle {
    let prefix = district_prefix(w, d).bytes(&last_name(name), LAST_BYTES);
    tx.scan(CUSTOMER_BY_NAME, Scan::prefix(prefix).limit(NAMESAKES_MAX))
}

/// The key of the one in the middle; `None` if nobody has the name.
#[inline]
pub(super) fn middle(tx: &Transaction<'_>, names: ScanHandle) -> Option<u64> {
    let count = tx.scanned(names).count();
    let entry = tx.scanned(names).nth(count.checked_sub(1)? / 2)?;
    match entry.record {
        Key::Word(key) => Some(key),
        Key::Bytes(_) => unreachable!("customers have a word for their key"),
    }
}
