//! Tests of the language of litmus files.
//!
//! Invariant checked: steps take effect in order. A step without a meaning is refused, and the error
//! names the step.

use super::super::ranges::Holder;
use super::*;

fn script(steps: &[&str]) -> Result<Script, String> {
    let steps: Vec<String> = steps.iter().map(|&step| step.to_owned()).collect();
    Script::parse(&steps, &["x".to_owned(), "y".to_owned()])
}

fn run(steps: &[&str], state: &mut [Content]) -> Vec<Saw> {
    script(steps).expect("a script").interpret(None, state).expect("nothing refuses it")
}

#[test]
fn steps_take_effect_in_order_and_see_the_transaction_s_own_writes() {
    let mut state = [Some(1), Some(5)];
    let steps = ["read y", "update x = y + 2", "fetch", "read x", "delete y", "read y"];
    let seen = run(&steps, &mut state);
    let contents = [Some(5), Some(7), None].map(Saw::Content);
    assert_eq!((&seen[..], state), (&contents[..], [Some(7), None]));
}

#[test]
fn what_is_not_there_is_not_updated_and_what_is_there_not_inserted() {
    let mut state = [None, Some(1)];
    run(&["update x = 3", "insert y = 9"], &mut state);
    assert_eq!(state, [None, Some(1)]);
    script(&["insert x = y - 1"]).expect_err("y was not asked for");
    run(&["read y", "insert x = y - 1"], &mut state);
    assert_eq!(state, [Some(0), Some(1)]);
    run(&["update x = 8", "abort"], &mut state);
    assert_eq!(state, [Some(0), Some(1)]);
}

#[test]
fn scans_count_what_they_see_and_a_unique_index_refuses_a_whole_script() {
    let ordered = Ordered { unique: true, fillers: vec![3], splits: Vec::new(), late: Vec::new() };
    let mut state = [Some(5), None];
    let scan = script(&["insert y = 2", "fetch", "scan 1..9 back limit 2", "update x = count + 7"]);
    let scan = scan.expect("a script");
    let seen = scan.interpret(Some(&ordered), &mut state).expect("nothing refuses it");
    let entries = vec![(5, Holder::Record(RecordIndex(0))), (3, Holder::Filler)];
    assert_eq!((seen, state), (vec![Saw::Entries(entries)], [Some(9), Some(2)]));
    let twice = script(&["update y = 9"]).expect("a script");
    assert_eq!(twice.interpret(Some(&ordered), &mut state), None);
    assert_eq!(state, [Some(9), Some(2)]);
}

#[test]
fn bad_steps_are_named_with_what_is_allowed() {
    for (steps, part) in [
        (&["raed x"][..], "read R"),
        (&["read z"], "records x, y"),
        (&["update x"], "update R = E"),
        (&["update x = 1 1"], "a number"),
        (&["fetch"], "at least one"),
        (&["abort", "read x"], "as the last step"),
        (&["delete x", "fetch", "insert x = 1"], "another transaction"),
        (&["scan 9..1"], "does not end before"),
        (&["scan 1..9 limit 0"], "a limit of 1 to"),
        (&["scan 1..9 bakc"], "back"),
        (&["insert x = count"], "after"),
        (&["insert x = 1", "scan 1..9"], "with a fetch between"),
        (&["split x"], "split N"),
    ] {
        let said = script(steps).expect_err("refused");
        assert!(said.contains(part) && said.contains("allowed"), "{said}");
    }
}
