//! Compares random transactions of one coordinator with a map.
//!
//! Invariant checked: transactions read and leave the same records as a `BTreeMap`, in every layout. Buckets are so
//! small that chains and splits are common. The audit at the end finds no error.

use crate::common::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tarn_engine::admin::inspect;
use tarn_engine::protocol::ALL;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::session::transaction::Transaction;
use tarn_engine::transaction::working_set::Handle;
use tarn_fabric::executor::block_on;
use tarn_store::ids::{Failure, Mode};
use tarn_store::schema::{Cells, ColumnId, ColumnType, TableId, TableSchema};

const KEYED: TableId = TableId(3);

#[derive(Clone, Copy, Debug)]
struct Wish {
    table: u16,
    key: u64,
    mode: Mode,
    value: u64,
}

#[derive(Clone, Debug)]
struct Plan {
    wishes: Vec<Wish>,
    gives_up: bool,
}

fn wish() -> impl Strategy<Value = Wish> {
    let mode = prop_oneof![
        2 => Just(Mode::Read), 2 => Just(Mode::Update), 4 => Just(Mode::Insert), 1 => Just(Mode::Delete)
    ];
    (0..4u16, 0..60u64, mode, any::<u64>()).prop_map(|(table, key, mode, value)| Wish {
        table,
        key,
        mode,
        value,
    })
}

fn plan() -> impl Strategy<Value = Plan> {
    (prop::collection::vec(wish(), 1..12), 0..10u8)
        .prop_map(|(wishes, abort)| Plan { wishes, gives_up: abort == 0 })
}

type Model = BTreeMap<(u16, u64), u64>;

fn wide_key(key: u64) -> [u8; 32] {
    let mut bytes = [7; 32];
    bytes[24..].copy_from_slice(&key.to_le_bytes());
    bytes
}

fn ask(tx: &mut Transaction<'_>, wish: Wish) -> Handle {
    let (table, wide) = (TableId(wish.table), wide_key(wish.key));
    let key = match table {
        KEYED => tarn_store::schema::Key::Bytes(&wide),
        _ => tarn_store::schema::Key::Word(wish.key),
    };
    match wish.mode {
        Mode::Read => tx.read(table, key, Cells::ALL),
        Mode::Update => tx.update(table, key, Cells::ALL),
        Mode::Insert => tx.insert(table, key),
        Mode::Delete => tx.delete(table, key),
    }
}

async fn perform(
    tx: &mut Transaction<'_>,
    model: &mut Model,
    plan: &Plan,
    one_by_one: bool,
) -> Result<(), Failure> {
    let mut asked: Vec<(Wish, Handle)> = Vec::new();
    for &wish in &plan.wishes {
        let name = (wish.table, wish.key);
        if one_by_one || asked.iter().any(|(other, _)| (other.table, other.key) == name) {
            tx.fetch().await?;
            settle(tx, model, &mut asked);
        }
        let row = ask(tx, wish);
        asked.push((wish, row));
    }
    tx.fetch().await?;
    settle(tx, model, &mut asked);
    if plan.gives_up { tx.abort() } else { Ok(()) }
}

fn settle(tx: &mut Transaction<'_>, model: &mut Model, asked: &mut Vec<(Wish, Handle)>) {
    for (wish, row) in asked.drain(..) {
        let name = (wish.table, wish.key);
        let there = model.get(&name).copied();
        match wish.mode {
            Mode::Read => {}
            Mode::Delete => {
                model.remove(&name);
            }
            Mode::Insert if there.is_some() => {}
            Mode::Update if there.is_none() => {}
            Mode::Update | Mode::Insert => {
                tx.set(row, A, wish.value);
                tx.set(row, ColumnId(1), wish.value.to_le_bytes().as_slice());
                model.insert(name, wish.value);
            }
        }
        let seen = tx.get(row).map(|row| (row.u64(A), row.bytes(ColumnId(1))[..8].to_vec()));
        let expected = model.get(&name).map(|value| (*value, value.to_le_bytes().to_vec()));
        assert_eq!(seen, expected, "{wish:?}");
    }
}

fn shape(protocol: &'static str, replicas: usize) -> Shape {
    let table = |name: &str, width| {
        TableSchema::new(name, 1).column("a", ColumnType::U64).column("b", ColumnType::Bytes(width))
    };
    let schemas = [
        table("line", 16),
        table("double", 90),
        table("apart", 200),
        table("keyed", 20).key_bytes(32),
    ];
    Shape::of(&schemas).protocol(protocol).nodes(replicas, replicas)
}

fn compare(by: &mut Coordinator, world: &World, model: &Model) {
    for table in 0..4u16 {
        let mut stored = 0;
        block_on(inspect::scan(by.context(), TableId(table), |_| stored += 1)).unwrap();
        let expected = model.keys().filter(|(of, _)| *of == table).count();
        assert_eq!(stored, expected, "records of table {table}");
    }
    for key in 0..60 {
        for table in 0..4u16 {
            let wish = Wish { table, key, mode: Mode::Read, value: 0 };
            let seen = block_on(by.transact(async |tx| {
                let row = ask(tx, wish);
                tx.fetch().await?;
                Ok(tx.get(row).map(|row| row.u64(A)))
            }));
            assert_eq!(seen, Ok(model.get(&(table, key)).copied()), "{wish:?}");
        }
    }
    assert_eq!(world.assert_clean().records, model.len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn transactions_agree_with_a_map(
        plans in prop::collection::vec(plan(), 1..60),
        replicas in 1..3usize,
        cache in prop_oneof![Just(0usize), Just(32)],
        grows in any::<bool>(),
        one_by_one in any::<bool>(),
        protocol in prop::sample::select(ALL.iter().map(|info| info.name).collect::<Vec<_>>()),
    ) {
        let world = World::new(&shape(protocol, replicas));
        let mut by = world.coordinator(0, cache);
        by.context().growth.enable(grows);
        let mut model = Model::new();
        for plan in &plans {
            let mut after = Model::new();
            let result = block_on(by.transact(async |tx| {
                after = model.clone();
                perform(tx, &mut after, plan, one_by_one).await
            }));
            if plan.gives_up {
                prop_assert_eq!(result, Err(Failure::user_abort()));
            } else {
                prop_assert_eq!(result, Ok(()));
                model = after;
            }
        }
        compare(&mut by, &world, &model);
    }
}
