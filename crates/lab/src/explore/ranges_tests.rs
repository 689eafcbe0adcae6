//! Tests of a litmus's ordered index.
//!
//! Invariant checked: a scan shows the values of records and fillers, and a unique index refuses a
//! second record with the same value.

use super::*;

fn ordered(unique: bool) -> Ordered {
    Ordered { unique, fillers: vec![3, 5], splits: Vec::new(), late: Vec::new() }
}

#[test]
fn a_scan_shows_records_and_fillers_by_value_and_name() {
    let [x, y] = [0, 1].map(|at| Holder::Record(RecordIndex(at)));
    let range = Range { from: 2, to: 5, limit: None, backward: false };
    let contents = [Some(4), Some(3), None, Some(6)];
    let all = ordered(false).entries(range, &contents);
    assert_eq!(all, [(3, y), (3, Holder::Filler), (4, x), (5, Holder::Filler)]);
    let two = Range { limit: Some(2), backward: true, ..range };
    assert_eq!(ordered(false).entries(two, &contents), [(5, Holder::Filler), (4, x)]);
}

#[test]
fn a_unique_index_refuses_what_another_says() {
    assert!(ordered(true).refuses(&[Some(4), Some(4)]));
    assert!(ordered(true).refuses(&[Some(5), None]));
    assert!(!ordered(true).refuses(&[Some(4), None, None]));
    assert!(!ordered(false).refuses(&[Some(4), Some(4), Some(5)]));
}

#[test]
fn fillers_that_overlap_or_are_too_many_are_refused() {
    let file = |fillers: &[(u64, u64)]| FileOrdered {
        unique: false,
        fillers: fillers.into(),
        splits: Vec::new(),
        late: vec![(3, 3)],
    };
    let ordered = file(&[(1, 2), (4, 4)]).ordered().expect("fillers");
    assert_eq!((&ordered.fillers[..], &ordered.late[..]), (&[1, 2, 3, 4][..], &[3][..]));
    for fillers in [&[(2, 1)][..], &[(1, 3), (3, 4)], &[(0, u64::MAX)], &[(1, 150), (200, 300)]] {
        let said = file(fillers).ordered().expect_err("refused");
        assert!(said.contains("allowed: "), "{said}");
    }
}
