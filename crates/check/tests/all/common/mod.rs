//! Functions that create small histories, which the tests share.
use tarn_check::{AnomalyKind, History, Isolation, RecordId, Report, Transaction, check};

/// Names of records for tests: three records of one table, and one record of another table.
pub const X: RecordId = RecordId { table: 0, key: 1 };
pub const Y: RecordId = RecordId { table: 0, key: 2 };
pub const Z: RecordId = RecordId { table: 1, key: 1 };

pub fn history(transactions: Vec<Transaction>) -> History {
    let tables = vec!["savings".to_owned(), "checking".to_owned()];
    History { tables, transactions, ..History::default() }
}

/// Creates a committed transaction. All transactions that this function creates overlap in time.
pub fn txn(id: u64) -> Transaction {
    Transaction::committed(id, id as u32, 0, 1_000)
}

/// Creates a committed transaction with these times of invocation and completion.
pub fn at(id: u64, invoked_ns: u64, completed_ns: u64) -> Transaction {
    Transaction::committed(id, id as u32, invoked_ns, completed_ns)
}

pub fn strict(transactions: Vec<Transaction>) -> Report {
    check(&history(transactions), Isolation::StrictSerializable)
}

/// Returns the names of the kinds of anomalies in a report. For a cycle the name is that of its
/// class.
pub fn classes(report: &Report) -> Vec<String> {
    let name = |anomaly: &tarn_check::Anomaly| match anomaly.cycle_class() {
        Some(class) => class.to_string(),
        None => anomaly.kind().name().to_owned(),
    };
    report.anomalies.iter().map(name).collect()
}

/// Asserts that the checker refuses the history, with exactly these anomalies.
#[track_caller]
pub fn refused(transactions: Vec<Transaction>, expected: &[&str]) -> Report {
    let report = strict(transactions);
    assert!(!report.is_accepted(), "{report}");
    assert_eq!(classes(&report), expected, "{report}");
    report
}

#[track_caller]
pub fn accepted(transactions: Vec<Transaction>) -> Report {
    let report = strict(transactions);
    assert!(report.is_accepted(), "{report}");
    report
}

pub fn total(report: &Report, kind: AnomalyKind) -> u64 {
    report.totals.get(&kind).copied().unwrap_or(0)
}

/// SplitMix64 (Steele, Lea and Flood, *Fast Splittable Pseudorandom Number Generators*, OOPSLA 2014):
/// a generator whose random numbers are the same on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
