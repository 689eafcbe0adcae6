//! Tests of records with a version in every line: the loader stores them correctly, and the audit reports torn
//! records.
//!
//! Invariant: a database that was just loaded has no errors, and each test changes one word of that database.

use super::*;
use crate::admin::inspect_scene::thread_on;
use crate::admin::load::{Loader, Part};
use tarn_fabric::address::LINE_BYTES;
use tarn_fabric::executor::block_on;
use tarn_store::layout::{LINED_WRITER_AT, LayoutKind};
use tarn_store::placement::catalog::{Catalog, Options};
use tarn_store::schema::{ColumnId, ColumnType, TableSchema};

const RECORDS: u64 = 60;
const A: ColumnId = ColumnId(0);
const TEXT: ColumnId = ColumnId(1);
/// The records of `SMALL` take one line. The records of `WIDE` take six lines. The records of `KEYED` take two
/// lines with a full key.
const SMALL: TableId = TableId(0);
const WIDE: TableId = TableId(1);
const KEYED: TableId = TableId(2);

fn table(name: &str, text: u16) -> TableSchema {
    let schema = TableSchema::new(name, RECORDS).column("a", ColumnType::U64);
    schema.column("text", ColumnType::Bytes(text))
}

fn plan(keyed: u8) -> Result<Catalog, tarn_store::ids::UsageError> {
    let schemas = [table("small", 20), table("wide", 300), table("keyed", 30).key_bytes(keyed)];
    let small = Options { chunk_bytes: 16 << 10, spare_bytes: 1 << 20, ..Options::default() };
    let options =
        Options { layout: LayoutKind::Lined { halves: true }, coordinators_max: 4, ..small };
    Catalog::plan(&schemas, &options, 3)
}

fn text(key: u64) -> [u8; 300] {
    std::array::from_fn(|at| (key * 31 + at as u64 * 7) as u8)
}

fn full_key(key: u64) -> [u8; 20] {
    let mut bytes = [7; 20];
    bytes[12..].copy_from_slice(&key.to_le_bytes());
    bytes
}

fn loaded() -> Context {
    let catalog = plan(20).expect("a plan");
    let cx = thread_on(catalog);
    block_on(load(&cx));
    cx
}

async fn load(cx: &Context) {
    let mut loader = Loader::new(cx, Part { index: 0, of: 1 });
    for key in 0..RECORDS {
        for (table, width) in [(SMALL, 20), (WIDE, 300)] {
            let fill = |row: &mut crate::admin::load::RowMut<'_>| {
                row.set(A, key * 3);
                row.set(TEXT, &text(key)[..width]);
            };
            loader.insert(table, key, fill).await.expect("room");
        }
        // The loader sets only one column of the record. The other columns must be zeros, even if an earlier record
        // set them in the same buffer.
        let fill = |row: &mut crate::admin::load::RowMut<'_>| row.set(A, key * 3);
        loader.insert(KEYED, &full_key(key), fill).await.expect("room");
    }
    loader.finish().await.expect("room");
}

fn look(cx: &Context) -> Audit {
    block_on(audit(cx)).expect("a look")
}

/// The address of a record that lies in a bucket, not in an overflow block.
fn any_record(cx: &Context, table: TableId) -> Address {
    let table = cx.table(table);
    let mut round = Round::new();
    let first = block_on(buckets(cx, table, GroupId(0))).expect("a look").next();
    let bucket = first.expect("a bucket");
    let at = block_on(read_block(cx, &mut round, table, bucket, 0)).expect("a look");
    let used = |image: &BufferOffset| !table.slot.is_free(slot_at(&round, table, *image));
    let image = slots(table, at).find(used).expect("a record");
    bucket.plus((image.0 - at.0) as usize)
}

/// Changes a word at every copy or only at the backups, and returns the audit's result. The function then restores
/// the word.
fn changed(cx: &Context, at: Address, primary_too: bool) -> Audit {
    let mut round = Round::new();
    let seen = round.read(cx.groups.primary(at), 8);
    block_on(cx.port.execute(&mut round)).expect("read");
    let before = round.word(seen);
    let mut set = |value| {
        round.clear();
        let copy = round.reserve(8);
        round.set_word(copy, value);
        for target in cx.groups.whole().all(at).skip(usize::from(!primary_too)) {
            round.write(target, copy, 8);
        }
        block_on(cx.port.execute(&mut round)).expect("written");
    };
    set(before + 1);
    let found = look(cx);
    set(before);
    assert!(look(cx).is_clean());
    found
}

#[test]
fn loaded_records_are_clean_and_read_as_written() {
    let cx = loaded();
    let lines = [SMALL, WIDE, KEYED].map(|it| cx.table(it).slot.slot_bytes / LINE_BYTES);
    assert_eq!(lines, [1, 6, 2]);
    let found = look(&cx);
    assert!(found.is_clean() && found.records == 3 * RECORDS, "{found}");
    for (table, width) in [(SMALL, 20), (WIDE, 300), (KEYED, 0)] {
        let mut sum = 0;
        let each = scan(&cx, table, |stored| {
            assert_eq!((stored.version, stored.changes), (Version::LOADED, Some(0)));
            let long_key = stored.full_key.last_chunk::<8>();
            let key = long_key.map_or(stored.key, |it| u64::from_le_bytes(*it));
            assert_eq!(stored.row.u64(A), key * 3);
            assert_eq!(stored.row.bytes(TEXT)[..width], text(key)[..width]);
            assert!(stored.row.bytes(TEXT)[width..].iter().all(|&byte| byte == 0));
            assert!(stored.full_key.is_empty() || stored.full_key == full_key(key));
            sum += stored.row.u64(A);
        });
        block_on(each).expect("a scan");
        assert_eq!(sum, 3 * RECORDS * (RECORDS - 1) / 2);
    }
}

#[test]
fn the_audit_reports_a_torn_record_and_a_copy_that_differs() {
    let cx = loaded();
    let wide = any_record(&cx, WIDE);
    for line in 1..6 {
        let found = changed(&cx, wide.plus(line * LINE_BYTES), true);
        assert_eq!((found.cells_wrong, found.replicas_differ), (1, 0), "line {line}: {found}");
    }
    assert_eq!(changed(&cx, wide.plus(VERSION_AT), true).cells_wrong, 1);
    assert_eq!(changed(&cx, wide.plus(LINED_WRITER_AT), false).replicas_differ, 1);
    assert_eq!(changed(&cx, wide.plus(5 * LINE_BYTES + 8), false).replicas_differ, 1);
    assert_eq!(changed(&cx, wide, true).locks_left, 1);
    // A record of one line has only one version, so it cannot be torn.
    assert!(changed(&cx, any_record(&cx, SMALL).plus(VERSION_AT), true).is_clean());
}

#[test]
fn a_key_that_does_not_fit_the_first_line_is_refused() {
    assert!(plan(32).is_ok());
    let refused = plan(33).expect_err("too long");
    assert_eq!((&refused.field[..], &refused.value[..]), ("table keyed: key width", "33"));
}
