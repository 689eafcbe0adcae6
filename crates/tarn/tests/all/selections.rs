//! Tests rows with every type of column, and selections by ordered indexes: all agree with a map of the standard
//! library.
//!
//! Invariant: each test creates a new database for each protocol.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use std::collections::BTreeMap;
use std::ops::Bound;
use tarn::{Bytes, Error, Field, Row, Select, Session, Table, Tarn, Text, block_on};
use tarn_engine::cluster::info::ProtocolInfo;
use tarn_engine::protocol::ALL;

#[derive(Field, Clone, Copy, PartialEq, Debug)]
enum Kind {
    One = 1,
    Two,
}

/// A row with a column of every kind, under a key of two signed fields.
#[derive(Row, Clone, PartialEq, Debug)]
#[row(table = "everything", key(a, b), ordered)]
struct Everything {
    b: i32,
    small: (u8, u16, u32, u64),
    bit: bool,
    words: (i8, i16, i128, u128),
    money: i64,
    counts: u32,
    flag: u16,
    floats: [f32; 2],
    ratio: f64,
    name: Text<9>,
    kind: Kind,
    a: i64,
    blob: Option<Bytes<5>>,
    grid: [[u16; 2]; 3],
    level: u8,
    total: u64,
}

/// A row under a long key, with indexes over its parts.
#[derive(Row, Clone, PartialEq, Debug)]
#[row(table = "items", key(shop, name), ordered)]
#[row(index(by_grade(grade, amount)), index(by_name(name, price)), unique(by_code(code)))]
struct Item {
    shop: i16,
    name: Text<10>,
    grade: Option<i8>,
    amount: i64,
    price: f64,
    code: (i32, u8),
}

/// A row that is only a key.
#[derive(Row, Clone, PartialEq, Debug)]
#[row(table = "marks", key(at), ordered)]
struct Mark {
    at: i8,
}

fn open(info: &ProtocolInfo) -> Result<Tarn, Error> {
    let tarn = Tarn::embedded().table::<Everything>(10).table::<Item>(200).table::<Mark>(50);
    tarn.spare_bytes(4 << 20).protocol(info.name, "corrected").open()
}

fn everything(a: i64, b: i32) -> Everything {
    Everything {
        a,
        b,
        small: (1, 2, 3, u64::MAX),
        bit: true,
        words: (-1, i16::MIN, i128::MAX, 1 << 100),
        money: -5,
        counts: 77,
        flag: 0x1234,
        floats: [-0.5, f32::INFINITY],
        ratio: -1e-300,
        name: Text::literal("n\u{e9}"),
        kind: Kind::Two,
        blob: Some(Bytes::new(&[0, 9, 0]).expect("short")),
        grid: [[1, 2], [3, 4], [5, 6]],
        level: 200,
        total: 1 << 63,
    }
}

#[test]
fn rows_of_every_type_come_back_in_the_order_of_their_keys() -> Result<(), Error> {
    for info in ALL {
        let tarn = open(info)?;
        let (table, mut session) = (tarn.table::<Everything>()?, tarn.session()?);
        let keys = [(i64::MIN, 5), (-1, -1), (-1, 0), (0, i32::MIN), (7, 7)];
        let rows = keys.map(|(a, b)| everything(a, b));
        session.run(async |tx| {
            for row in rows.iter().rev() {
                assert!(table.add(tx, row).await?);
            }
            tarn::Ok(())
        })?;
        let all = session.run(async |tx| table.all().rows(tx).await)?;
        assert_eq!(all, rows, "{}", info.name);
        let found = session.run(async |tx| table.find_many(tx, [(7, 7), (7, 8)]).await)?;
        assert_eq!(found, [Some(rows[4].clone()), None], "{}", info.name);
        let read = block_on(session.multi_get(table, &[(0, i32::MIN), (0, 0)]))?;
        assert_eq!(read, [Some(rows[3].clone()), None], "{}", info.name);
        let minus = session.run(async |tx| table.prefix(-1).keys(tx).await)?;
        assert_eq!(minus, [(-1, -1), (-1, 0)], "{}", info.name);
        // The engine's other users see the same number.
        let money = session.run(async |tx| {
            let handle = tx.engine().read(
                table.id(),
                &[0x80, 0, 0, 0, 0, 0, 0, 7, 0x80, 0, 0, 7],
                tarn_store::schema::Cells::ALL,
            );
            tx.fetch().await?;
            let schema = Everything::schema(1);
            let columns =
                ["money", "flag", "total"].map(|name| schema.column_id(name).expect("it is there"));
            let row = tx.engine().get(handle).expect("it is there");
            tarn::Ok((row.i64(columns[0]), row.u64(columns[1]), row.u64(columns[2])))
        })?;
        assert_eq!(money, (-5, 0x1234, 1 << 63), "{}", info.name);
    }
    Ok(())
}

#[test]
fn a_row_that_is_only_a_key_comes_and_goes() -> Result<(), Error> {
    for info in ALL {
        let tarn = open(info)?;
        let (marks, mut session) = (tarn.table::<Mark>()?, tarn.session()?);
        let order = session.run(async |tx| {
            assert_eq!(marks.put_many(tx, &[3, -3, 0, 3].map(|at| Mark { at })).await?, 0);
            assert_eq!(marks.remove_many(tx, [0, 1]).await?, 1);
            marks.all().rev().keys(tx).await
        })?;
        assert_eq!(order, [3, -3], "{}", info.name);
    }
    Ok(())
}

/// A change of one item, or a selection.
#[derive(Clone, Debug)]
enum Step {
    Put(Item),
    Remove(i16, Text<10>),
}

fn names() -> impl Strategy<Value = Text<10>> {
    "[ab]{0,2}".prop_map(|text| Text::new(&text).expect("short"))
}

fn items() -> impl Strategy<Value = Item> {
    let grade = prop::option::of(-2..2i8);
    let keys = (-1..2i16, names(), grade, -2..3i64, prop::num::f64::NORMAL);
    keys.prop_map(|(shop, name, grade, amount, price)| {
        // The code is unique because the key is.
        let code =
            name.bytes().fold(i32::from(shop), |code, byte| code * 3 + i32::from(byte & 3) - 4);
        Item { shop, name, grade, amount, price, code: (code, name.len() as u8) }
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let remove = (-1..2i16, names()).prop_map(|(shop, name)| Step::Remove(shop, name));
    prop::collection::vec(prop_oneof![4 => items().prop_map(Step::Put), 1 => remove], 1..40)
}

type Model = BTreeMap<(i16, Text<10>), Item>;

/// Reads a selection in every way, and compares it with the expected rows.
fn compare(
    session: &mut Session,
    selection: Select<Item>,
    mut expected: Vec<Item>,
    limit: usize,
) -> Result<(), Error> {
    for select in [selection, selection.rev()] {
        let keys: Vec<_> = expected.iter().map(Row::key).collect();
        session.run(async |tx| {
            assert_eq!(select.rows(tx).await?, expected);
            assert_eq!(select.keys(tx).await?, keys);
            assert_eq!(select.count(tx).await?, keys.len());
            assert_eq!(select.is_empty(tx).await?, keys.is_empty());
            assert_eq!(select.first(tx).await?.as_ref(), expected.first());
            let some = select.limit(limit as u32).rows(tx).await?;
            assert_eq!(some, expected[..limit.min(expected.len())]);
            let locked = select.update(tx).await?;
            assert_eq!(locked.iter().map(|(record, _)| record.key()).collect::<Vec<_>>(), keys);
            tarn::Ok(())
        })?;
        expected.reverse();
    }
    Ok(())
}

/// The items of the model that pass the filter, in the order of `place` and then of their keys.
fn those<K: PartialOrd>(
    model: &Model,
    place: impl Fn(&Item) -> K,
    is_in: impl Fn(&Item) -> bool,
) -> Vec<Item> {
    let mut items: Vec<Item> = model.values().filter(|item| is_in(item)).cloned().collect();
    // The sort is stable, and the model is in the order of the keys.
    items.sort_by(|one, other| place(one).partial_cmp(&place(other)).expect("no NaN"));
    items
}

fn check_all(
    session: &mut Session,
    table: Table<Item>,
    model: &Model,
    limit: usize,
) -> Result<(), Error> {
    let key = |item: &Item| item.key();
    compare(session, table.all(), those(model, key, |_| true), limit)?;
    compare(session, table.prefix(0), those(model, key, |item| item.shop == 0), limit)?;
    let (from, to) = ((-1, Text::literal("a")), (1, Text::literal("ab")));
    compare(
        session,
        table.range(from..to),
        those(model, key, |it| it.key() >= from && it.key() < to),
        limit,
    )?;
    compare(
        session,
        table.range(from..=to),
        those(model, key, |it| it.key() >= from && it.key() <= to),
        limit,
    )?;
    let after = (Bound::Excluded(from), Bound::Unbounded);
    compare(session, table.range(after), those(model, key, |it| it.key() > from), limit)?;
    compare(session, table.range(..0), those(model, key, |it| it.shop < 0), limit)?;
    let (from, to) = (1, 0);
    compare(session, table.range(from..to), Vec::new(), limit)?;
    let (by_grade, grade) = (table.by_grade(), |item: &Item| (item.grade, item.amount));
    compare(session, by_grade.all(), those(model, grade, |_| true), limit)?;
    compare(
        session,
        by_grade.prefix(None::<i8>),
        those(model, grade, |it| it.grade.is_none()),
        limit,
    )?;
    let top = those(model, grade, |it| it.grade == Some(-1) && it.amount > -2 && it.amount <= 1);
    let range = (Bound::Excluded((Some(-1), -2)), Bound::Included((Some(-1), 1)));
    compare(session, by_grade.range(range), top, limit)?;
    let (by_name, name) = (table.by_name(), |item: &Item| (item.name, item.price));
    compare(session, by_name.all(), those(model, name, |_| true), limit)?;
    let a = Text::literal("a");
    let cheap = those(model, name, |it| it.name == a && it.price < 0.5);
    compare(session, by_name.range((a, f64::NEG_INFINITY)..(a, 0.5)), cheap, limit)?;
    let (by_code, code) = (table.by_code(), |item: &Item| item.code);
    compare(session, by_code.all(), those(model, code, |_| true), limit)?;
    for item in model.values() {
        compare(session, by_code.prefix(item.code), vec![item.clone()], limit)?;
    }
    Ok(())
}

/// Makes the changes in one transaction, which sees each of them. Then compares all selections.
fn follow(info: &ProtocolInfo, steps: &[Step], limit: usize) -> Result<(), Error> {
    let tarn = open(info)?;
    let (table, mut session) = (tarn.table::<Item>()?, tarn.session()?);
    let mut model = Model::new();
    for half in steps.chunks(steps.len().div_ceil(2)) {
        let mut after = model.clone();
        session.run(async |tx| {
            after.clone_from(&model);
            for step in half {
                match step {
                    Step::Put(item) => {
                        let before = after.insert(item.key(), item.clone());
                        assert_eq!(table.put(tx, item).await?, before.is_some());
                    }
                    Step::Remove(shop, name) => {
                        let before = after.remove(&(*shop, *name));
                        assert_eq!(table.remove(tx, (*shop, *name)).await?, before.is_some());
                    }
                }
            }
            assert_eq!(table.all().rows(tx).await?, after.values().cloned().collect::<Vec<_>>());
            tarn::Ok(())
        })?;
        model = after;
        check_all(&mut session, table, &model, limit)?;
    }
    Ok(())
}

#[test]
fn selections_agree_with_a_map() {
    for (number, info) in ALL.iter().enumerate() {
        let config = Config {
            cases: 12,
            failure_persistence: None,
            rng_seed: RngSeed::Fixed(number as u64),
            ..Config::default()
        };
        let mut runner = TestRunner::new(config);
        let ended = runner.run(&(steps(), 0..4usize), |(steps, limit)| {
            follow(info, &steps, limit).map_err(|error| TestCaseError::fail(error.to_string()))
        });
        ended.unwrap_or_else(|error| panic!("{}: {error}", info.name));
    }
}

#[test]
fn a_second_row_in_a_unique_index_is_refused() -> Result<(), Error> {
    for info in ALL {
        let tarn = open(info)?;
        let (table, mut session) = (tarn.table::<Item>()?, tarn.session()?);
        let item = |shop| Item {
            shop,
            name: Text::default(),
            grade: None,
            amount: 0,
            price: 0.0,
            code: (1, 1),
        };
        session.run(async |tx| table.put(tx, &item(1)).await)?;
        let refused =
            session.run(async |tx| table.put(tx, &item(2)).await).expect_err("the same code");
        assert!(
            refused.to_string().contains("the unique index by_code"),
            "{}: {refused}",
            info.name
        );
        assert_eq!(
            refused.violated_index().map(|(_, index)| index),
            Some("by_code"),
            "{}",
            info.name
        );
    }
    Ok(())
}

#[test]
fn other_indexes_than_the_database_has_are_named() -> Result<(), Error> {
    #[derive(Row)]
    #[row(table = "marks", key(at))]
    struct Unordered {
        at: i8,
    }
    let tarn = open(&ALL[0])?;
    let error = tarn.table::<Unordered>().err().expect("without the index").to_string();
    assert!(error.starts_with("table marks: index 1 = none; allowed: by_key over ["), "{error}");
    assert_eq!(Unordered { at: 1 }.at, 1);
    Ok(())
}
