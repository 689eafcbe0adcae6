//! The transaction Payment: clause 2.5.
//!
//! One fetch of two rounds reads all records, because the generated key of the HISTORY row is known
//! beforehand. The first round finds the records, and the second round locks them. If the input names
//! the customer by last name, a range read must find the customer first, which takes one more round.
//! The range read is a separate fetch. So the warehouse, which all of its Payments lock, is locked no
//! longer than for a customer named by number.
//!
//! Invariant: the transaction adds the amount that the customer pays to the district, to the
//! warehouse and to HISTORY.

use super::Tally;
use super::by_name::{middle, scan_names};
use super::input::Who;
use super::missing::Wanted;
use super::tables::{CUSTOMER, CUSTOMER_DATA_BYTES, C_ADDRESS, DISTRICT, D_ADDRESS, HISTORY, HISTORY_DATA_BYTES, WAREHOUSE, W_ADDRESS, c_balance, c_credit, c_credit_lim, c_data, c_discount, c_first, c_last, c_middle, c_payment_cnt, c_phone, c_since, c_ytd_payment, customer_key, customer_of, d_name, d_ytd, district_key, h_amount, h_c_d_id, h_c_id, h_c_w_id, h_d_id, h_data, h_date, w_name, w_ytd, warehouse_key};
use std::io::Write as _;
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::Failure;
use tarn_store::schema::{Cells, ColumnId};
use tarn_engine::session::transaction::Transaction;
use tarn_engine::transaction::working_set::Handle;

const fn bit(column: ColumnId) -> u64 {
    1 << column.0
}

/// Returns the mask of the five columns of an address.
const fn address(first: u8) -> u64 {
    0b1_1111 << first
}

const WAREHOUSE_CELLS: Cells = Cells(bit(w_name()) | bit(w_ytd()) | address(W_ADDRESS));
const DISTRICT_CELLS: Cells = Cells(bit(d_name()) | bit(d_ytd()) | address(D_ADDRESS));
/// The cells of the customer that a Payment requests. Only customers with bad credit need `C_DATA`,
/// but a transaction cannot request further cells of a locked row later.
const CUSTOMER_CELLS: Cells = Cells(
    bit(c_balance())
        | bit(c_ytd_payment())
        | bit(c_payment_cnt())
        | bit(c_discount())
        | bit(c_credit())
        | bit(c_last())
        | bit(c_middle())
        | bit(c_credit_lim())
        | bit(c_since())
        | bit(c_first())
        | address(C_ADDRESS)
        | bit(c_phone())
        | bit(c_data()),
);

/// A payment: its amount, its place and its customer.
#[derive(Clone, Copy)]
pub(super) struct Paid {
    pub(super) w: u32,
    pub(super) d: u8,
    pub(super) c_w: u32,
    pub(super) c_d: u8,
    pub(super) who: Who,
    pub(super) cents: u32,
    /// The key of the payment's row of HISTORY.
    pub(super) history: u64,
    pub(super) date: u32,
}

#[inline]
pub(super) async fn run(
    coordinator: &mut Coordinator,
    paid: Paid,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let wanted = Wanted::default();
    while let Err(failure) = coordinator.transact(async |tx| pay(tx, &wanted, paid).await).await {
        if !wanted.is_again(coordinator, failure, tally).await? {
            return Ok(());
        }
    }
    tally.payments += 1;
    tally.by_name += u64::from(matches!(paid.who, Who::Name(_)));
    tally.remote_payments += u64::from(paid.c_w != paid.w);
    Ok(())
}

#[inline]
async fn pay(tx: &mut Transaction<'_>, wanted: &Wanted, paid: Paid) -> Result<(), Failure> {
    let Paid { c_w, c_d, .. } = paid;
    let key = match paid.who {
        Who::Id(c) => customer_key(c_w, c_d, c),
        Who::Name(name) => {
            let names = scan_names(tx, c_w, c_d, name);
            tx.fetch().await?;
            let Some(key) = middle(tx, names) else { return tx.abort() };
            key
        }
    };
    let customer = tx.update(CUSTOMER, key, CUSTOMER_CELLS);
    let warehouse = tx.update(WAREHOUSE, warehouse_key(paid.w), WAREHOUSE_CELLS);
    let district = tx.update(DISTRICT, district_key(paid.w, paid.d), DISTRICT_CELLS);
    let history = tx.insert(HISTORY, paid.history);
    tx.fetch().await?;
    let data = receive(tx, wanted, warehouse, district, paid)?;
    charge(tx, wanted, customer, key, paid)?;
    tx.set(history, h_c_id(), u64::from(customer_of(key)));
    tx.set(history, h_c_d_id(), u64::from(c_d));
    tx.set(history, h_c_w_id(), u64::from(c_w));
    tx.set(history, h_d_id(), u64::from(paid.d));
    tx.set(history, h_date(), u64::from(paid.date));
    tx.set(history, h_amount(), u64::from(paid.cents));
    tx.set(history, h_data(), &data);
    Ok(())
}

/// Adds the amount to the warehouse and to the district. Returns the names of warehouse and district,
/// which the HISTORY row contains.
#[inline]
fn receive(
    tx: &mut Transaction<'_>,
    wanted: &Wanted,
    warehouse: Handle,
    district: Handle,
    paid: Paid,
) -> Result<[u8; HISTORY_DATA_BYTES], Failure> {
    let w = wanted.row(tx, (WAREHOUSE, warehouse_key(paid.w)), warehouse)?;
    let d = wanted.row(tx, (DISTRICT, district_key(paid.w, paid.d)), district)?;
    let mut data = [b' '; HISTORY_DATA_BYTES];
    let (first, second) = (w.text(w_name()), d.text(d_name()));
    data[..first.len()].copy_from_slice(first);
    let second_at = first.len() + 4;
    data[second_at..second_at + second.len()].copy_from_slice(second);
    data[second_at + second.len()..].fill(0);
    let (w_paid, d_paid) = (w.i64(w_ytd()), d.i64(d_ytd()));
    tx.set(warehouse, w_ytd(), w_paid + i64::from(paid.cents));
    tx.set(district, d_ytd(), d_paid + i64::from(paid.cents));
    Ok(data)
}

/// Reduces the customer's balance. If the customer has bad credit, the function also writes the
/// payment into `C_DATA`.
#[inline]
fn charge(
    tx: &mut Transaction<'_>,
    wanted: &Wanted,
    customer: Handle,
    key: u64,
    paid: Paid,
) -> Result<(), Failure> {
    let row = wanted.row(tx, (CUSTOMER, key), customer)?;
    let cents = i64::from(paid.cents);
    let (balance, ytd) = (row.i64(c_balance()) - cents, row.i64(c_ytd_payment()) + cents);
    let count = row.u64(c_payment_cnt()) + 1;
    let noted = (row.bytes(c_credit()) == b"BC")
        .then(|| note(row.bytes(c_data()), customer_of(key), paid));
    tx.set(customer, c_balance(), balance);
    tx.set(customer, c_ytd_payment(), ytd);
    tx.set(customer, c_payment_cnt(), count);
    if let Some(noted) = noted {
        tx.set(customer, c_data(), &noted);
    }
    Ok(())
}

/// Returns the text of the payment followed by the old text. The end of the old text is cut off.
fn note(data: &[u8], c: u32, paid: Paid) -> [u8; CUSTOMER_DATA_BYTES] {
    let mut noted = [0; CUSTOMER_DATA_BYTES];
    let Paid { w, d, c_w, c_d, cents, .. } = paid;
    let (whole, part) = (cents / 100, cents % 100);
    let mut rest = &mut noted[..];
    // The text of six numbers is shorter than 500 bytes.
    let _ = write!(rest, "{c} {c_d} {c_w} {d} {w} {whole}.{part:02} ");
    let len = rest.len();
    rest.copy_from_slice(&data[..len]);
    noted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payment_note_stands_before_the_old_data() {
        let who = Who::Id(7);
        let paid =
            Paid { w: 2, d: 3, c_w: 4, c_d: 5, who, cents: 123_405, history: 0, date: 1 };
        let noted = note(&[b'x'; CUSTOMER_DATA_BYTES], 7, paid);
        assert!(noted.starts_with(b"7 5 4 3 2 1234.05 xxx"));
        assert_eq!(noted.iter().filter(|&&byte| byte == b'x').count(), 500 - 18);
    }
}
