//! Tests of plans: their areas, the contents of the heap, their stamps, and refused options.
//!
//! Invariant: these tests use no memory node, because a plan is only arithmetic.

use super::*;
use crate::schema::ColumnType;

fn schema(name: &str, records: u64) -> TableSchema {
    TableSchema::new(name, records).column("value", ColumnType::Bytes(200))
}

#[test]
fn areas_do_not_overlap_and_the_heap_holds_the_bodies() {
    let schemas = [schema("a", 10_000), schema("b", 77)];
    let catalog = Catalog::plan(&schemas, &Options::default(), 3).expect("a plan");
    let mut areas = vec![(0, SUPERBLOCK_BYTES), (catalog.chunk_table_at, catalog.chunks * 8)];
    let logs = u64::from(catalog.options.coordinators_max) * catalog.options.log_bytes;
    areas.push((catalog.logs_at, logs));
    for table in &catalog.tables {
        let geometry = &table.geometry;
        areas.push((geometry.header_at, Geometry::HEADER_BYTES as u64));
        let segment = geometry.buckets * geometry.bucket_bytes as u64;
        areas.push((geometry.first_segment_at, segment));
    }
    areas.push((catalog.heap_at, catalog.chunks * catalog.options.chunk_bytes));
    areas.sort_unstable();
    for pair in areas.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?} overlap");
    }
    assert!(catalog.chunks * catalog.options.chunk_bytes > 10_077 / 3 * 256);
}

#[test]
fn the_heap_holds_every_version_and_the_waiting_ones() {
    let heap = |layout, versions_spare_percent| {
        let options = Options { layout, versions_spare_percent, ..Options::default() };
        let catalog = Catalog::plan(&[schema("a", 10_000)], &options, 1).expect("a plan");
        catalog.chunks * options.chunk_bytes
    };
    let cells = |cells| LayoutKind::MultiVersion { cells, records: crate::layout::Records::Auto };
    // Records of 24 + 200 bytes take four lines.
    let slack = 3 * Options::default().chunk_bytes;
    let near = |more: u64, bytes| (bytes..bytes + slack + 500 * 256).contains(&more);
    assert!(near(heap(cells(3), 0) - heap(cells(2), 0), 10_000 * 256 - slack));
    assert!(near(heap(cells(2), 50) - heap(cells(2), 0), 5_000 * 256 - slack));
    assert_eq!(heap(LayoutKind::SingleVersion, 50), heap(LayoutKind::SingleVersion, 0));
}

#[test]
fn impossible_layouts_name_the_field() {
    let plan = |cells, coordinators_max| {
        let layout = LayoutKind::MultiVersion { cells, records: crate::layout::Records::Auto };
        let options = Options { layout, coordinators_max, log_bytes: 1024, ..Options::default() };
        Catalog::plan(&[schema("a", 1)], &options, 1)
    };
    let error = |cells, coordinators| plan(cells, coordinators).expect_err("no").to_string();
    assert!(error(0, 1).contains("layout.cells = 0") && error(9, 1).contains("1 to 8"));
    assert!(plan(8, 32_768).is_ok());
    assert!(error(1, 32_769).contains("coordinators_max = 32769"));
}

#[test]
fn another_schema_has_another_stamp() {
    let plan = |records| {
        Catalog::plan(&[schema("a", records)], &Options::default(), 1).expect("a plan").stamp()
    };
    assert_eq!(plan(5), plan(5));
    assert_ne!(plan(5), plan(6));
}

#[test]
fn bad_plans_name_the_field() {
    let error = |schemas: &[TableSchema], options: &Options| {
        Catalog::plan(schemas, options, 1).expect_err("refused").to_string()
    };
    let options = Options::default();
    assert!(error(&[], &options).contains("tables = 0"));
    assert!(error(&[schema("a", 1), schema("a", 1)], &options).contains("table name = a"));
    let small = Options { log_bytes: 100, ..options };
    assert!(error(&[schema("a", 1)], &small).contains("log_bytes = 100"));
}
