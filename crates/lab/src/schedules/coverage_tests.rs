//! Tests of coverage.
//!
//! Invariant checked: the report names each cell whose count is 0. A cell that the protocol cannot reach is listed
//! separately, with the reason.

use super::*;

fn coverage(deaths: &Deaths, events: &[(&'static str, u64)]) -> Coverage {
    let mut tally = Tally::default();
    tally.aborts.fill(1);
    tally.recovery.fill(1);
    let cannot = |cell: &str| (cell == "memory node/two").then_some("it is one");
    let cells = (&["one", "two"][..], &[AbortReason::User][..]);
    Coverage::of(deaths, &tally, cells, events.iter().copied().collect(), &cannot)
}

#[test]
fn what_a_protocol_does_not_promise_is_not_asked_of_it() {
    let of = |protocol: &str| {
        let subject = Subject::of(protocol, "corrected");
        ["memory node/lock", "recovery/promoted", "recovery/undone", "event/dropped", "event/split"]
            .map(|cell| lacks_promises(&subject, cell).is_some())
    };
    assert_eq!(of("oocc"), [false; 5]);
    assert_eq!(of("drtm"), [true, true, false, false, true]);
    assert_eq!(of("dslr"), [true; 5]);
}

#[test]
fn an_empty_cell_is_named_and_what_cannot_be_is_not_asked_for() {
    let mut deaths = Deaths::default();
    for kind in [Kind::Crash, Kind::Zombie, Kind::MemoryNode] {
        deaths.count(kind, vec![Some(0), None]);
    }
    deaths.count(Kind::Crash, vec![Some(1)]);
    let some = coverage(&deaths, &[("split", 3), ("dropped", 0)]);
    assert_eq!(some.empty, ["zombie/two", "event/dropped"]);
    assert_eq!(some.cannot.keys().collect::<Vec<_>>(), ["memory node/two"]);
    deaths.count(Kind::Zombie, vec![Some(1)]);
    let all = coverage(&deaths, &[("split", 3), ("dropped", 1)]);
    assert!(all.empty.is_empty(), "{:?}", all.empty);
    let (reached, cells) = all.reached();
    assert_eq!(reached + 1, cells);
}
