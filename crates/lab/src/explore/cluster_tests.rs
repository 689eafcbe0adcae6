//! Tests of a litmus's small database.
//!
//! Invariant checked: neighbouring records are in different groups. Records that the litmus's field `together` names
//! share a bin. A litmus with too many records is refused.

use super::*;

#[test]
fn more_records_than_buckets_are_refused() {
    let records = "records = { a = 0, b = 0, c = 0, d = 0, e = 0 }";
    let text = format!(
        "title = 't'\nwrong = 'w'\nshapes = ['1x1']\n{records}\n[[coordinator]]\nnode = 0\n\
         transactions = [['read a']]\n"
    );
    let litmus = Rc::new(Litmus::parse("five", &text).expect("a litmus"));
    let refused = Cluster::new(&litmus, Shape::plain(1, 1), ("ford", "corrected"));
    let said = refused.err().expect("refused").to_string();
    assert!(said.contains("litmus = five with 5 records; allowed: on 1x1 fewer"), "{said}");
    assert!(Cluster::new(&litmus, Shape::plain(2, 2), ("ford", "corrected")).is_ok());
}

#[test]
fn neighbours_lie_in_different_groups_and_those_put_together_in_one_bin() {
    for name in Litmus::names() {
        let litmus = Rc::new(Litmus::load(name).expect("a litmus"));
        let shape = Shape::plain(2, 2);
        let cluster = Cluster::new(&litmus, shape, ("ford", "corrected")).expect("a cluster");
        let places = Places::new(&cluster.catalog, &litmus);
        let at: Vec<Place> = cluster.keys.iter().map(|key| places.of(*key)).collect();
        let share = |one: usize, other: usize| {
            litmus.together.iter().any(|set| set.contains(&one) && set.contains(&other))
        };
        for one in 0..at.len() {
            for other in one + 1..at.len() {
                let [here, there] = [one, other].map(|record| at[record]);
                if share(one, other) {
                    let bins = [here, there].map(|place| (place.bucket, place.bin));
                    assert_eq!(bins[0], bins[1], "{name}");
                } else if other == one + 1 {
                    assert_ne!(here.group, there.group, "{name}");
                }
            }
        }
        assert!(cluster.catalog.group_bytes() <= 64 << 10, "{name}: small memory");
    }
}
