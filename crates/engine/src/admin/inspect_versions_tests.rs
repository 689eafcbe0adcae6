//! Tests of records in several versions: the loader stores them correctly, and the audit reports each kind of error
//! in memory.
//!
//! Invariant: a database that was just loaded has no errors, and each test changes one word of that database.

use super::*;
use crate::admin::inspect::{Audit, audit, scan};
use crate::admin::inspect_scene::thread_on;
use crate::admin::load::{Loader, Part};
use tarn_fabric::executor::block_on;
use tarn_store::index::hash_of;
use tarn_store::layout::{
    CELL_PREV_TS_AT, CELL_TO_AT, CELL_TXN_AT, CELLS_AT, DIRECTORY_BYTES, LayoutKind,
    PACKED_VERSIONS_AT, RECORD_HEAD_BYTES, Records, VERSION_AT, Version, VersionWord,
};
use tarn_store::placement::catalog::{Catalog, Options};
use tarn_store::schema::{ColumnId, ColumnType, TableId, TableSchema};

const RECORDS: u64 = 60;
const A: ColumnId = ColumnId(0);
/// The records of `SMALL` are packed if the options allow packing. The records of `WIDE` are too large for packing,
/// and the keys of `LONG` are too long for packing.
const SMALL: TableId = TableId(0);
const WIDE: TableId = TableId(1);
const LONG: TableId = TableId(2);

fn schemas() -> Vec<TableSchema> {
    let table = |name| TableSchema::new(name, RECORDS).column("a", ColumnType::U64);
    let wide = table("wide").column("b", ColumnType::Bytes(300)).fingerprinted();
    vec![table("small").fingerprinted(), wide, table("long").key_bytes(40)]
}

fn loaded(cells: u8, records: Records) -> Context {
    let layout = LayoutKind::MultiVersion { cells, records };
    let small = Options { chunk_bytes: 16 << 10, spare_bytes: 1 << 20, ..Options::default() };
    let options = Options { layout, coordinators_max: 4, slots_per_100_records: 80, ..small };
    let catalog = Catalog::plan(&schemas(), &options, 3).expect("a plan");
    let cx = thread_on(catalog);
    block_on(load(&cx));
    cx
}

async fn load(cx: &Context) {
    let mut loader = Loader::new(cx, Part { index: 0, of: 1 });
    for key in 0..RECORDS {
        let set = |row: &mut crate::admin::load::RowMut<'_>| row.set(A, key * 3);
        loader.insert(SMALL, key, set).await.expect("room");
        loader.insert(WIDE, key, set).await.expect("room");
        loader.insert(LONG, &long(key), set).await.expect("room");
    }
    loader.finish().await.expect("room");
}

fn long(key: u64) -> [u8; 40] {
    let mut bytes = [7; 40];
    bytes[32..].copy_from_slice(&key.to_le_bytes());
    bytes
}

fn look(cx: &Context) -> Audit {
    block_on(audit(cx)).expect("a look")
}

/// The slot of the record with this key.
fn slot_of(cx: &Context, table: TableId, key: u64) -> Address {
    let table = cx.table(table);
    let place = cx.node.index_view.place(&cx.database().catalog, table, hash_of(table, key));
    let mut round = Round::new();
    let bytes = table.geometry.bucket_bytes;
    let image = round.read(cx.groups.primary(place.bucket), bytes);
    block_on(cx.port.execute(&mut round)).expect("read");
    let slots = (0..table.geometry.slots).map(|it| DIRECTORY_BYTES + it * table.slot.slot_bytes);
    let mut used = slots.filter(|&at| round.word(image.plus(at + VERSION_AT)) != 0);
    let at = used.find(|&at| round.word(image.plus(at + KEY_AT)) == key);
    place.bucket.plus(at.expect("in the bucket itself"))
}

fn word(cx: &Context, at: Address) -> u64 {
    let mut round = Round::new();
    let seen = round.read(cx.groups.primary(at), 8);
    block_on(cx.port.execute(&mut round)).expect("read");
    round.word(seen)
}

/// Sets a word at all replicas or only at the backups.
fn set(cx: &Context, at: Address, value: u64, primary_too: bool) {
    let mut round = Round::new();
    let copy = round.reserve(8);
    round.set_word(copy, value);
    let groups = cx.groups.whole();
    for target in groups.all(at).skip(usize::from(!primary_too)) {
        round.write(target, copy, 8);
    }
    block_on(cx.port.execute(&mut round)).expect("written");
}

/// Changes a word at all replicas and returns the audit's result. The function then restores the word.
fn changed(cx: &Context, at: Address, value: u64) -> Audit {
    let before = word(cx, at);
    set(cx, at, value, true);
    let found = look(cx);
    set(cx, at, before, true);
    assert!(look(cx).is_clean());
    found
}

#[test]
fn loaded_records_are_clean_and_read_as_written() {
    for (cells, records) in
        [(1, Records::Auto), (2, Records::Auto), (2, Records::Apart), (8, Records::Auto)]
    {
        let cx = loaded(cells, records);
        let found = look(&cx);
        assert!(found.is_clean() && found.records == 3 * RECORDS, "{found}");
        for table in [SMALL, WIDE, LONG] {
            let mut sum = 0;
            let each = scan(&cx, table, |stored| {
                assert_eq!(stored.version, Version::LOADED);
                sum += stored.row.u64(A);
                let long_key = stored.full_key.last_chunk::<8>();
                let key = long_key.map_or(stored.key, |it| u64::from_le_bytes(*it));
                assert_eq!(stored.row.u64(A), key * 3);
            });
            block_on(each).expect("a scan");
            assert_eq!(sum, 3 * RECORDS * (RECORDS - 1) / 2);
        }
    }
}

#[test]
fn small_rows_are_packed_unless_options_keep_them_apart() {
    let is_packed = |cells, records| {
        let layout = LayoutKind::MultiVersion { cells, records };
        schemas().iter().map(|it| !layout.slot(it).is_out_of_line()).collect::<Vec<bool>>()
    };
    assert_eq!(is_packed(2, Records::Auto), [true, false, false]);
    assert_eq!(is_packed(2, Records::Apart), [false, false, false]);
    assert_eq!(is_packed(3, Records::Auto), [false, false, false]);
}

#[test]
fn an_invisible_version_at_rest_is_wrong() {
    let cx = loaded(2, Records::Auto);
    let coming = VersionWord::invisible(Timestamp(5)).word();
    let packed = slot_of(&cx, SMALL, 5).plus(PACKED_VERSIONS_AT);
    assert_eq!(changed(&cx, packed.plus(8), coming).cells_wrong, 1);
    // After this change the record has no committed version at all.
    let found = changed(&cx, packed, coming);
    assert_eq!((found.cells_wrong, found.records, found.tombstones), (2, 3 * RECORDS - 1, 1));
    let cell = slot_of(&cx, WIDE, 5).plus(CELLS_AT + 32);
    assert_eq!(changed(&cx, cell, coming).cells_wrong, 1);
}

#[test]
fn two_versions_of_one_time_and_a_visible_discarded_version_are_wrong() {
    let cx = loaded(2, Records::Auto);
    let packed = slot_of(&cx, SMALL, 5).plus(PACKED_VERSIONS_AT);
    assert_eq!(changed(&cx, packed.plus(8), 1).cells_wrong, 1);
    let cells = slot_of(&cx, WIDE, 5).plus(CELLS_AT);
    // The test sets the second cell to "deleted". Later the test gives the second cell the same time as the first
    // cell.
    set(&cx, cells.plus(32 + CELL_TO_AT), CellAddress::deleted().word(), true);
    assert!(look(&cx).is_clean());
    assert_eq!(changed(&cx, cells.plus(32), 1).cells_wrong, 1);
    let later = changed(&cx, cells.plus(32), 2);
    assert_eq!((later.cells_wrong, later.tombstones, later.records), (0, 1, 3 * RECORDS - 1));
    assert_eq!(changed(&cx, cells.plus(CELL_PREV_TS_AT), 1).cells_wrong, 1);
    assert_eq!(changed(&cx, cells.plus(32 + CELL_PREV_TS_AT), 9).cells_wrong, 1);
}

#[test]
fn a_cell_without_a_record_of_its_own_is_wrong() {
    let cx = loaded(2, Records::Auto);
    for (table, key) in [(WIDE, 5), (WIDE, 40)] {
        let cell = slot_of(&cx, table, key).plus(CELLS_AT);
        let to = CellAddress::from_word(word(&cx, cell.plus(CELL_TO_AT)));
        let other = slot_of(&cx, table, key + 1).plus(CELLS_AT + CELL_TO_AT);
        // The wrong addresses are, in order: the address of another record, zero, an address out of bounds, an
        // address that an undecided coordinator has marked, and an unaligned address.
        for wrong in [word(&cx, other), 0, (1 << 36) - 64, to.undecided_by(3).word(), to.word() + 8]
        {
            assert_eq!(changed(&cx, cell.plus(CELL_TO_AT), wrong).cells_wrong, 1, "{wrong:x}");
        }
        assert_eq!(changed(&cx, cell.plus(CELL_TXN_AT), 77).cells_wrong, 1);
        assert_eq!(changed(&cx, slot_of(&cx, table, key).plus(SHAPE_AT), 2 << 32).cells_wrong, 1);
        let record = to.address();
        for at in (0..RECORD_HEAD_BYTES + 308).step_by(44) {
            let at = record.plus(at / 8 * 8);
            assert_eq!(changed(&cx, at, !word(&cx, at)).cells_wrong, 1, "{at:?}");
        }
    }
}

#[test]
fn the_audit_finds_differences_of_a_backup_in_slots_and_records() {
    let cx = loaded(2, Records::Auto);
    let packed = slot_of(&cx, SMALL, 5);
    let cells = slot_of(&cx, WIDE, 5);
    let record = CellAddress::from_word(word(&cx, cells.plus(CELLS_AT + CELL_TO_AT))).address();
    let second = cells.plus(CELLS_AT + 32 + CELL_TO_AT);
    for at in [packed.plus(PACKED_VERSIONS_AT), packed.plus(56), second, record, record.plus(328)] {
        let before = word(&cx, at);
        set(&cx, at, !before, false);
        let found = look(&cx);
        assert_eq!((found.replicas_differ, found.cells_wrong), (1, 0), "{found}");
        set(&cx, at, before, false);
    }
    // The memory of a record may contain older bytes behind the payload.
    set(&cx, record.plus(336), 5, false);
    assert!(look(&cx).is_clean());
}

#[test]
fn the_audit_checks_locks_places_and_free_slots_as_in_any_layout() {
    let cx = loaded(2, Records::Auto);
    for table in [SMALL, WIDE] {
        let slot = slot_of(&cx, table, 5);
        assert_eq!(changed(&cx, slot, 9).locks_left, 1);
        // Inserts into records of several versions store no fingerprints. So a free slot contains no fingerprint that
        // could be wrong.
        let found = changed(&cx, slot.plus(VERSION_AT), Version::LOADED.absent_after().word());
        assert_eq!((found.misplaced, found.records), (0, 3 * RECORDS - 1), "{found}");
        assert!(changed(&cx, slot.plus(KEY_AT), 1_000_000).misplaced > 0);
    }
}

#[test]
fn a_discarded_record_is_used_again_after_its_time_or_when_memory_is_full() {
    let cx = loaded(2, Records::Auto);
    let group = tarn_fabric::address::GroupId(1);
    let first = block_on(cx.allocate_record(group, (WIDE, 64))).expect("room");
    cx.discard_record(first, WIDE);
    let mut taken = vec![first];
    loop {
        match block_on(cx.allocate_record(group, (WIDE, 64))) {
            Ok(block) if block == first => break,
            Ok(block) => taken.push(block),
            Err(failure) => panic!("{failure:?} before the discarded one"),
        }
    }
    assert!(taken.len() > (1 << 20) / 64);
    assert_eq!(block_on(cx.allocate_record(group, (WIDE, 64))), Err(Failure::OutOfMemory));
    cx.discard_record(taken[7], WIDE);
    assert_eq!(block_on(cx.allocate_record(group, (WIDE, 64))), Ok(taken[7]));
}
