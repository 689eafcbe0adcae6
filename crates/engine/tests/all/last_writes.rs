//! Tests of the checker that compares memory with a history, on memory that differs from the history.
//!
//! Invariant checked: the checker reports a record that was never written, and a record that has vanished. The
//! checker also reports a record with other bytes or another version than its last write. The checker reports these
//! differences even if only a loader wrote the records.

use crate::common::{Shape, World, fill, narrow};
use tarn_engine::admin::last_writes::{LastWrites, stored};
use tarn_fabric::executor::block_on;
use tarn_store::history::{RecordedWrite, WriteKind};
use tarn_store::schema::TableId;

/// Returns the checker's finding on memory that contains records 1 to 3, for a history in which `loaded` was loaded.
fn said(world: &World, loaded: &[RecordedWrite]) -> Option<String> {
    let cx = world.context(2, 0);
    block_on(LastWrites::of(&[], loaded).differing(&cx)).unwrap()
}

#[test]
fn records_that_no_transaction_wrote_are_judged_too() {
    let world = World::new(&Shape::of(&[narrow("narrow", 8)]));
    fill(&mut world.coordinator(0, 0), TableId(0), [1, 2, 3]);
    let loaded = block_on(stored(&world.context(1, 0))).unwrap();
    assert_eq!(loaded.len(), 3);
    assert_eq!(said(&world, &loaded), None);
    let notices = |loaded: &[RecordedWrite], part: &str| {
        let said = said(&world, loaded).unwrap_or_default();
        assert!(said.contains(part), "{part}: {said}");
    };
    notices(&loaded[1..], "which no transaction wrote");
    let fourth = RecordedWrite { key: 4, ..loaded[0] };
    notices(&[&loaded[..], &[fourth]].concat(), "a record is missing");
    let changed = |change: fn(&mut RecordedWrite)| {
        let mut loaded = loaded.clone();
        change(&mut loaded[1]);
        loaded
    };
    for other in [
        changed(|write| write.fingerprint += 1),
        changed(|write| write.version -= 1),
        changed(|write| write.version += 1),
        changed(|write| write.kind = WriteKind::Delete),
    ] {
        notices(&other, "the last write was");
    }
}
