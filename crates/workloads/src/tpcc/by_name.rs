//! Finds customers by last name: clause 2.5.2.2, case 2.
//!
//! Invariant: a last name means the customer in the middle of all customers of a district with this
//! name, sorted by first name. The middle is position ⌈n/2⌉. A range read finds these customers. If
//! another transaction adds or removes such a customer, the range read is no longer valid and its
//! transaction aborts.

use super::random::last_name;
use super::tables::{CUSTOMER_BY_NAME, LAST_BYTES, district_prefix};
use tarn_store::schema::Key;
use tarn_engine::session::transaction::{Scan, ScanHandle, Transaction};

/// An upper bound on the number of customers of a district with the same last name. Of 3,000
/// customers, about 50 have the commonest name.
const NAMESAKES_MAX: u32 = 512;

/// Requests a range read of the customers with a last name. `name` is the number of the name.
#[inline]
pub(super) fn scan_names(tx: &mut Transaction<'_>, w: u32, d: u8, name: u32) -> ScanHandle {
    let prefix = district_prefix(w, d).bytes(&last_name(name), LAST_BYTES);
    tx.scan(CUSTOMER_BY_NAME, Scan::prefix(prefix).limit(NAMESAKES_MAX))
}

/// Returns the key of the customer in the middle, or `None` if no customer has the last name.
#[inline]
pub(super) fn middle(tx: &Transaction<'_>, names: ScanHandle) -> Option<u64> {
    let count = tx.scanned(names).count();
    let entry = tx.scanned(names).nth(count.checked_sub(1)? / 2)?;
    match entry.record {
        Key::Word(key) => Some(key),
        Key::Bytes(_) => unreachable!("a customer's key is one word"),
    }
}
