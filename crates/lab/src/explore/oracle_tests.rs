//! Tests of the oracle.
//!
//! Invariant checked: the oracle allows exactly the results that each isolation level allows.

use super::*;

const STRICT: Isolation = Isolation::StrictSerializable;
const SNAPSHOTS: Isolation = Isolation::SnapshotIsolation;

fn skew() -> Litmus {
    Litmus::load("write-skew").expect("a litmus")
}

fn committed(began: u64, told: u64, reads: &[Content]) -> Seen {
    let ended = Ended::Committed(reads.iter().copied().map(Saw::Content).collect());
    Seen { began: Some(began), told: Some(told), ended }
}

#[test]
fn write_skew_has_two_results_and_not_the_third() {
    assert_eq!(results(&skew(), STRICT), [[Some(1), Some(2)], [Some(2), Some(1)]]);
    let both = [committed(0, 9, &[Some(0)]), committed(1, 8, &[Some(0)])];
    assert!(!explains((&skew(), STRICT), &both, Some(&[Some(1), Some(1)])));
    let serial = [committed(0, 9, &[Some(0)]), committed(1, 8, &[Some(1)])];
    assert!(explains((&skew(), STRICT), &serial, Some(&[Some(1), Some(2)])));
    assert!(!explains((&skew(), STRICT), &serial, Some(&[Some(2), Some(1)])));
    assert!(explains((&skew(), STRICT), &serial, None));
}

#[test]
fn real_time_and_doubt_count() {
    // The second transaction read the value that the first transaction wrote. But the caller of the second
    // transaction had its reply before the first transaction began. So no order of the transactions allows this read.
    let late = [committed(5, 9, &[Some(0)]), committed(1, 3, &[Some(1)])];
    assert!(!explains((&skew(), STRICT), &late, None));
    // A transaction in doubt may have taken effect or not. A transaction that never began took no
    // effect.
    let doubt = Seen { began: Some(0), ..Seen::default() };
    for left in [[Some(0), Some(1)], [Some(2), Some(1)]] {
        let seen = [doubt.clone(), committed(1, 3, &[Some(0)])];
        assert!(explains((&skew(), STRICT), &seen, Some(&left)), "{left:?}");
    }
    let seen = [Seen::default(), committed(1, 3, &[Some(0)])];
    assert!(!explains((&skew(), STRICT), &seen, Some(&[Some(2), Some(1)])));
    let without = Seen { ended: Ended::Without, ..doubt };
    let seen = [without, committed(1, 3, &[Some(0)])];
    assert!(!explains((&skew(), STRICT), &seen, Some(&[Some(2), Some(1)])));
}

#[test]
fn who_was_refused_needs_somebody_who_said_the_same() {
    let litmus = Litmus::load("unique-insert").expect("a litmus");
    assert_eq!(results(&litmus, STRICT), [[None, Some(5)], [Some(5), None]]);
    let refused = Seen { began: Some(0), told: Some(9), ended: Ended::Refused };
    let one = [committed(0, 9, &[]), refused.clone()];
    assert!(explains((&litmus, STRICT), &one, Some(&[Some(5), None])));
    assert!(!explains((&litmus, STRICT), &[refused.clone(), refused], None));
    assert!(!explains((&litmus, STRICT), &[committed(0, 9, &[]), committed(1, 8, &[])], None));
}

#[test]
fn snapshots_give_write_skew_and_respect_real_time() {
    let litmus = &skew();
    let [both, one, other] = [[Some(1), Some(1)], [Some(1), Some(2)], [Some(2), Some(1)]];
    assert_eq!(results(litmus, SNAPSHOTS), [both, one, other]);
    let skewed = [committed(0, 9, &[Some(0)]), committed(1, 8, &[Some(0)])];
    assert!(explains((litmus, SNAPSHOTS), &skewed, Some(&both)));
    assert!(!explains((litmus, SNAPSHOTS), &skewed, Some(&one)));
    assert!(!explains((litmus, STRICT), &skewed, Some(&both)));
    // The second transaction began when the first transaction had ended. So the snapshot of the second
    // transaction has the value that the first transaction wrote.
    let apart = [committed(0, 3, &[Some(0)]), committed(5, 8, &[Some(0)])];
    assert!(!explains((litmus, SNAPSHOTS), &apart, None));
    let apart = [committed(0, 3, &[Some(0)]), committed(5, 8, &[Some(1)])];
    assert!(explains((litmus, SNAPSHOTS), &apart, Some(&one)));
}

#[test]
fn snapshots_give_nothing_else() {
    // Snapshots may add results to a litmus only if the litmus allows skew of reads and writes.
    let more = |name: &str| {
        let litmus = Litmus::load(name).expect("a litmus");
        results(&litmus, SNAPSHOTS).len() > results(&litmus, STRICT).len()
    };
    let skewed: Vec<&str> = Litmus::names().filter(|name| more(name)).collect();
    assert_eq!(skewed, ["absent-skew", "phantom", "range-gap", "range-skew", "write-skew"]);
    let update = Litmus::load("lost-update").expect("a litmus");
    let lost = [committed(0, 9, &[]), committed(1, 8, &[])];
    assert!(!explains((&update, SNAPSHOTS), &lost, Some(&[Some(1)])));
    let fractured = Litmus::load("fractured-read").expect("a litmus");
    let half = [committed(0, 9, &[]), committed(1, 8, &[Some(1), Some(0)])];
    assert!(!explains((&fractured, SNAPSHOTS), &half, None));
}

#[test]
fn a_reader_beside_snapshots_may_see_an_order_that_the_writers_do_not_have() {
    let litmus = Litmus::load("read-only-anomaly").expect("a litmus");
    // The transaction that withdraws money has not read the deposit. The transaction that only reads has read the
    // deposit, but not the withdrawal.
    let seen =
        [committed(1, 2, &[]), committed(0, 9, &[Some(0)]), committed(3, 4, &[Some(0), Some(20)])];
    let left = [Some(1), Some(20)];
    assert!(explains((&litmus, SNAPSHOTS), &seen, Some(&left)));
    assert!(!explains((&litmus, STRICT), &seen, Some(&left)));
}
