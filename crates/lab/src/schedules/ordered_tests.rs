//! Tests of the mixture's ordered indexes.
//!
//! Invariant checked: the check counts wrong entries of a scan, and rows that contradict the entries of a scan.

use super::*;
use tarn_fabric::rng::seeded;

fn range(limit: Option<u32>) -> Range {
    let (index, table) = (IndexId(0), TableId(0));
    let (seeks, then) = (false, Then::Wishes);
    Range { index, table, from: 3, to: 7, limit, backward: false, seeks, then }
}

#[test]
fn entries_out_of_place_are_counted() {
    assert_eq!(range(None).out_of_place(&vec![(3, 9), (5, 1), (5, 2)]), 0);
    assert_eq!(range(None).out_of_place(&vec![(5, 2), (5, 1)]), 1);
    assert_eq!(range(None).out_of_place(&vec![(3, 1), (8, 1)]), 1);
    assert_eq!(range(Some(1)).out_of_place(&vec![(3, 1), (4, 1)]), 1);
    let back = Range { backward: true, ..range(None) };
    assert_eq!(back.out_of_place(&vec![(5, 2), (5, 1)]), 0);
}

#[test]
fn a_row_contradicts_a_scan_that_shows_it_otherwise_or_lacks_it() {
    let (shown, of) = (vec![(4, 1)], |key| (TableId(0), key));
    assert!(!range(None).contradicts(&shown, of(1), Some(4)));
    assert!(range(None).contradicts(&shown, of(1), Some(5)));
    assert!(range(None).contradicts(&shown, of(1), None));
    assert!(range(None).contradicts(&shown, of(2), Some(5)));
    assert!(!range(Some(3)).contradicts(&shown, of(2), Some(5)), "it may lie behind the limit");
    assert!(!range(None).contradicts(&shown, of(2), Some(8)));
    assert!(!range(None).contradicts(&shown, (TableId(1), 1), Some(5)));
}

#[test]
fn values_crowd_and_the_crowd_moves() {
    let ordered = Ordered::draw(&mut seeded(1, 2), &[Layout::Narrow], 50);
    let early = (0..90).filter(|&chance| {
        let value = ordered.value(chance, (TableId(0), 7), 0);
        assert!(value < ordered.values);
        value < ordered.values / ZONES + 1
    });
    assert!(early.count() > 60);
    let value = |count| ordered.value(5, (TableId(0), 9), count);
    assert_eq!(value(0), value(ZONE_TRANSACTIONS - 1));
}
