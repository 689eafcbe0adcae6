//! Tests of the exploration of several items.
//!
//! Invariant checked: a panic becomes a violation of its item, and the exploration of the other items
//! continues.

use super::*;
use std::time::Duration;

#[test]
fn a_panic_is_a_finding_that_names_its_item() {
    let order = Order::all("ford", "corrected");
    let items = order.items().expect("items");
    let row = or_panicked(&order, &items[0], || panic!("planted")).expect("a row");
    let [found] = &row.violations[..] else { panic!("one finding: {row:?}") };
    assert!(found.text.starts_with("panic: ") && found.text.contains("planted"), "{found:?}");
    let command = format!("tarn explore {} --shape {}", row.litmus, row.shape);
    assert_eq!(found.replay, command);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "any two times do")]
fn what_is_left_is_shared_among_those_that_wait() {
    let now = Instant::now();
    let seconds = |seconds| Duration::from_secs(seconds);
    let budget = Budget { end: Some(now + seconds(60)), jobs: 2 };
    assert_eq!(budget.until(now, 12), Some(now + seconds(10)));
    assert_eq!(budget.until(now + seconds(40), 4), Some(now + seconds(50)));
    assert_eq!(budget.until(now + seconds(40), 1), Some(now + seconds(60)));
    assert_eq!(budget.until(now + seconds(70), 1), Some(now + seconds(70)));
    assert_eq!(Budget { end: None, jobs: 2 }.until(now, 3), None);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "any two times do")]
fn what_nobody_used_goes_to_those_that_gave_up() {
    let order = Order::all("ford", "corrected");
    let items = order.items().expect("items");
    let row = |bounded_by, seconds, violated: bool| {
        let mut row = Row::panicked(&items[0], String::new(), String::new());
        (row.bounded_by, row.seconds) = (bounded_by, seconds);
        row.violations.truncate(usize::from(violated));
        Some(row)
    };
    let rows = [
        row(Some(GAVE_UP), 6.0, false),
        row(None, 2.0, false),
        row(Some(GAVE_UP), 5.0, false),
        row(Some(GAVE_UP), 5.0, true),
        row(Some("states"), 5.0, false),
        row(Some(GAVE_UP), 40.0, false),
    ];
    let now = Instant::now();
    let again = |seconds, jobs| {
        Budget { end: Some(now + Duration::from_secs(seconds)), jobs }.again(now, &rows)
    };
    assert_eq!(again(150, 1), [0, 2, 5], "50 s each");
    assert_eq!(again(119, 1), [0, 2], "40 s would bring the longest no further");
    assert_eq!(again(6, 2), [2], "6 s are what the other one has had");
    assert_eq!(again(5, 2), [0; 0]);
    assert_eq!(Budget { end: None, jobs: 1 }.again(now, &rows), [0; 0]);
}
