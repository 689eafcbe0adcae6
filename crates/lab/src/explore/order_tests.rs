//! Tests of orders for the explorer.
//!
//! Invariant checked: the items are all combinations of litmuses, shapes and faults. No item demands
//! more of a protocol than the protocol promises. A replay command names everything that the replay
//! depends on.

use super::*;

#[test]
fn items_are_litmuses_by_shapes_by_faults() {
    let order = Order::all("ford", "corrected");
    let items = order.items().expect("items");
    assert_eq!(items.len(), Litmus::names().count());
    assert!(items.iter().filter(|item| item.shape.replicas == 2).count() > 10);
    let crashing = Order { crashes: 1, ..order.clone() };
    assert_eq!(crashing.items().expect("items").len(), 3 * items.len());
    let deep = Order { deep: true, ..order.clone() };
    assert!(deep.items().expect("items").len() > items.len());
    let odd = Order { fault: Some(FaultKind::Memory), ..order.clone() };
    assert!(odd.items().expect_err("refused").to_string().contains("--crashes"));
    let unknown = Order { variant: "corrected,-none".into(), ..order };
    assert!(unknown.items().expect_err("refused").to_string().contains("allowed"));
}

#[test]
fn an_order_of_which_nothing_is_left_is_refused() {
    let refused = |order: Order| order.items().expect_err("nothing is left").to_string();
    let order = Order { crashes: 1, ..Order::all("drtm", "corrected") };
    let deadly = Order { fault: Some(FaultKind::Memory), ..order.clone() };
    assert_eq!(refused(deadly), "fault = memory; allowed: a death that drtm promises to survive");
    // All registered protocols offer ranges, so no order of a protocol causes this error. So this test calls the
    // function that makes the error directly.
    let ranges = Order { litmuses: vec!["merge-scan".into()], ..order };
    let told = ranges.nothing_left().to_string();
    assert!(told.starts_with("litmus = merge-scan; allowed: without ranges"), "{told}");
}

#[test]
fn nobody_is_asked_to_survive_a_death_that_it_does_not_promise_to() {
    let shape = Shape::plain(2, 2);
    let budget = |recovers| FaultKind::Memory.budget(2, shape, recovers);
    assert_eq!((budget(true).memory, budget(true).compute), (1, 1));
    assert_eq!((budget(false).memory, budget(false).compute), (1, 0));
}

#[test]
fn a_replay_names_what_it_depends_on() {
    let order = Order { crashes: 1, ..Order::all("ford", "corrected,-unlock-late") };
    let items = order.items().expect("items");
    assert_eq!(
        order.replay(&items[0], "3*0-1"),
        "tarn explore aba --shape 2x2 --variant corrected,-unlock-late --crashes 1 --fault compute \
         --replay 3*0-1"
    );
    let plain = Order::all("ford", "corrected");
    let items = plain.items().expect("items");
    assert_eq!(plain.replay(&items[0], "0"), "tarn explore aba --shape 2x2 --replay 0");
    let halves = Order { layout: Some(Layout::Half), ..plain };
    let told = "tarn explore aba --shape 2x2 --layout half --replay 0";
    assert_eq!(halves.replay(&items[0], "0"), told);
}

#[test]
fn a_layout_is_for_litmuses_that_name_none() {
    let all = Order::all("ford", "corrected");
    let halves = Order { layout: Some(Layout::Half), ..all.clone() };
    let (items, some) = (all.items().expect("items"), halves.items().expect("items"));
    let own = items.iter().filter(|item| !item.litmus.any_layout).count();
    assert_eq!((some.len() + own, own), (items.len(), 3));
    assert!(some.iter().all(|item| item.litmus.layout == Layout::Half));
    let torn = Order { litmuses: vec!["torn-row".into()], ..halves };
    assert_eq!(
        torn.items().expect_err("refused").to_string(),
        "layout = half; allowed: for a litmus whose file names none, unlike those of torn-row"
    );
}
