//! The clusters in which rows run.
//!
//! Invariant: a row makes one try. The measured cost of a row is the work of one coordinator. Under LOTUS two compute
//! nodes grant locks: coordinators `Cold` and `Warm` belong to the first node, and `Other` belongs to the second
//! node.

use super::{By, NARROW, Row, Step};
use crate::common::budget::{Cost, add_one, add_one_to, measure_bytes, phase, read, try_once};
use crate::common::*;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as Waiting, Poll, Waker};
use tarn_engine::requests::timestamp::pool_word;
use tarn_engine::services::ServiceOptions;
use tarn_engine::services::timestamp::Timestamps;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::session::transaction::Transaction;
use tarn_engine::site::{ComputeNode, Context};
use tarn_fabric::address::NodeSlot;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::block_on;
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::placement::catalog::Placement;
use tarn_store::schema::range::{IndexKey, Scan};
use tarn_store::schema::{Cells, IndexId, TableId, TableSchema};

/// The description of a cluster that a test creates.
#[derive(Clone)]
pub(super) struct Scene {
    pub(super) shape: Shape,
    /// The keys with which the test fills each table.
    fills: Vec<Vec<u64>>,
    /// Whether timestamps come from the memory pool, which takes a round. If this is false, timestamps come from a
    /// counter of this process.
    has_pool_timestamps: bool,
}

impl Scene {
    /// Creates the description of a cluster with the tables `NARROW` and `DOUBLE`. All records of a table are in one
    /// group, so that the number of groups does not multiply the number of writes.
    pub(super) fn of(protocol: &'static str, copies: usize) -> Scene {
        let schemas = [narrow("narrow", 4000), double("double", 4000)];
        let mut shape = Shape::of(&schemas).protocol(protocol).nodes(copies, copies);
        shape.options.placement = Placement::Table;
        shape.near = false;
        Scene { shape, fills: vec![(1..10).collect(); 2], has_pool_timestamps: false }
    }

    /// Creates the description of a cluster with two tables, each with an ordered index. The second table is empty.
    pub(super) fn ordered(protocol: &'static str, copies: usize, records: u64) -> Scene {
        let mut scene = Scene::of(protocol, copies);
        scene.shape.schemas =
            ["narrow", "empty"].map(|name| narrow(name, 4000).ordered("by_key")).into();
        scene.fills = vec![(0..records).map(|key| key * 2).collect()];
        scene
    }

    pub(super) fn variant(mut self, variant: &str) -> Scene {
        self.shape = self.shape.variant(variant);
        self
    }

    pub(super) fn leasing_reads(mut self, length_ns: u32) -> Scene {
        self.shape = self.shape.leasing_reads(length_ns);
        self
    }

    /// Adds a table with these records.
    pub(super) fn with(mut self, schema: TableSchema, keys: Range<u64>) -> Scene {
        self.shape.schemas.push(schema);
        self.fills.push(keys.collect());
        self
    }

    pub(super) fn with_pool_timestamps(self) -> Scene {
        Scene { has_pool_timestamps: true, ..self }
    }
}

/// The measured cost of a row.
pub(super) struct Measured {
    pub(super) cost: Cost,
    pub(super) bytes: u64,
    pub(super) phases: Vec<(&'static str, u64)>,
    pub(super) aborts: Option<AbortReason>,
    pub(super) took: Nanos,
}

pub(super) struct Bench {
    pub(super) name: String,
    pub(super) world: World,
    /// The threads that answer requests while a coordinator runs.
    serving: Vec<Rc<Context>>,
    pub(super) cold: Coordinator,
    pub(super) warm: Coordinator,
    other: Coordinator,
    holder: Coordinator,
}

impl Bench {
    pub(super) fn new(scene: &Scene) -> Bench {
        let shape = &scene.shape;
        let world = World::new(shape);
        let coordinator = |slot: u16, cache| {
            let mut cx = world.context(slot, cache);
            if scene.has_pool_timestamps {
                let cx = Rc::get_mut(&mut cx).expect("no coordinator has it yet");
                cx.timestamps = Timestamps::Pool(pool_word());
            }
            coordinator(&cx, u32::from(slot))
        };
        let (protocol, variant) = (shape.protocol, &shape.variant);
        let lease_ns = shape.read_lease_ns;
        let mut bench = Bench {
            name: format!("{protocol} {variant}, {} copies, {lease_ns} ns", shape.replicas),
            cold: coordinator(0, 0),
            warm: coordinator(1, 1024),
            other: coordinator(2, 0),
            holder: coordinator(3, 0),
            serving: Vec::new(),
            world,
        };
        for (table, keys) in scene.fills.iter().enumerate() {
            fill(&mut bench.cold, TableId(table as u16), keys.iter().copied());
        }
        bench
    }

    /// Creates two compute nodes that grant locks to each other, and inserts records 0 to 39.
    pub(super) fn pair(variant: &str) -> Bench {
        let shape = Shape::of(&[narrow("narrow", 4000)]).protocol("lotus").variant(variant);
        let mut shape = shape.nodes(3, 3);
        shape.near = false;
        let world = World::new(&shape);
        let membership = &world.database.membership;
        let ids: Vec<_> = (0..2).map(|slot| membership.join(NodeSlot(slot)).unwrap()).collect();
        membership.open_shards(&ids);
        let options = ServiceOptions { lock_table_bytes: 1 << 16, ..ServiceOptions::new(1, 2) };
        let thread = |&id| {
            let node = ComputeNode::serving(Arc::clone(&world.database), id, &options).unwrap();
            let port = world.fabric.port(id, 0, 7);
            let mut cx = Context::new(Arc::new(node), port, 0, 1024).unwrap();
            cx.timestamps = Timestamps::Pool(pool_word());
            Rc::new(cx)
        };
        let serving: Vec<_> = ids.iter().map(thread).collect();
        let by = |number: u32| coordinator(&serving[number as usize % 2], number);
        let mut bench = Bench {
            name: format!("lotus {variant}"),
            cold: by(0),
            warm: by(2),
            other: by(1),
            holder: by(3),
            serving: serving.clone(),
            world,
        };
        // Both nodes insert records. After that each node has claimed its memory for records.
        for key in 0..40 {
            let Bench { cold, other, .. } = &mut bench;
            let by = if key % 2 == 0 { cold } else { other };
            let insert = async |tx: &mut Transaction<'_>| {
                let row = tx.insert(NARROW, key);
                tx.fetch().await?;
                tx.set(row, A, key);
                Ok(())
            };
            drive(&serving, by.transact(insert)).unwrap();
        }
        bench.calm();
        bench
    }

    /// Returns the keys whose locks this serving node grants.
    pub(super) fn keys_of(&self, node: usize) -> Vec<u64> {
        let (database, id) = (&self.world.database, self.serving[node].node.id);
        let shard = |key: u64| database.catalog.table(NARROW).shard_of(key);
        let owner = |key| database.membership.shard(shard(key)).map(|entry| entry.owner);
        (0..40).filter(|&key| owner(key) == Some(id)).collect()
    }

    /// Runs the threads until all messages and rounds in flight have arrived.
    fn calm(&self) {
        (0..100).for_each(|_| self.serving.iter().for_each(|cx| cx.serve()));
    }

    pub(super) fn run(&mut self, row: &Row<'_>) -> Measured {
        let Bench { serving, cold, warm, other, holder, .. } = self;
        let (by, beside) = match row.by {
            By::Cold => (cold, other),
            By::Warm => (warm, other),
            By::Other => (other, warm),
        };
        let cx = Rc::clone(by.context());
        block_on(cx.port.sleep(row.pause));
        let phases = || row.phases.iter().map(|&(name, _)| phase(&cx, name)).collect::<Vec<_>>();
        let aborts = || cx.metrics.snapshot().aborts;
        let (phases_before, aborts_before, began) = (phases(), aborts(), cx.port.now());
        let mut ended = Ok(());
        let mut work = || {
            measure_bytes(by, |by| {
                let body = async |tx: &mut Transaction<'_>| play(tx, &row.steps, beside).await;
                ended = drive(serving, try_once(by, row.declared, body));
            })
        };
        let (cost, bytes) = match row.held {
            None => work(),
            Some(key) => block_on(holder.transact(async |tx| {
                tx.update(NARROW, key, Cells::ALL);
                tx.fetch().await?;
                Ok(work())
            }))
            .expect("the others give way"),
        };
        let took = cx.port.now() - began;
        let names = row.phases.iter().map(|&(name, _)| name);
        let counts = phases().into_iter().zip(phases_before).map(|(after, before)| after - before);
        let phases = names.zip(counts).collect();
        let more =
            |reason: &AbortReason| aborts()[*reason as usize] - aborts_before[*reason as usize];
        // A second try aborts itself with the caller's own reason, which is the last in the list of reasons.
        let aborts = AbortReason::ALL.into_iter().find(|reason| more(reason) > 0);
        assert_eq!(ended.is_err(), aborts.is_some(), "{row:?}: {ended:?}");
        assert!(aborts.is_none_or(|reason| more(&reason) == 1), "{row:?}: {aborts:?}");
        self.calm();
        Measured { cost, bytes, phases, aborts, took }
    }
}

/// Runs a future, together with the threads that answer requests.
fn drive<O>(serving: &[Rc<Context>], future: impl Future<Output = O>) -> O {
    let mut future = pin!(future);
    let mut waiting = Waiting::from_waker(Waker::noop());
    for polls in 0.. {
        serving.iter().for_each(|cx| cx.serve());
        if let Poll::Ready(value) = future.as_mut().poll(&mut waiting) {
            return value;
        }
        assert!(serving.is_empty() || polls < 100_000, "it never ends");
    }
    unreachable!("polls are not that many")
}

/// Runs the steps of a transaction.
async fn play(
    tx: &mut Transaction<'_>,
    steps: &[Step<'_>],
    beside: &mut Coordinator,
) -> Result<(), Failure> {
    let mut asked = Vec::new();
    for step in steps {
        match *step {
            Step::Read(table, keys) => read(tx, table, keys).await?,
            Step::Part(table, cells) => {
                let row = tx.read(table, 1u64, cells);
                tx.fetch().await?;
                assert!(tx.existed(row));
            }
            Step::Ask(keys) => {
                asked.extend(keys.iter().map(|&key| tx.read(NARROW, key, Cells::ALL)));
            }
            Step::Absent(keys) => {
                let rows: Vec<_> =
                    keys.iter().map(|&key| tx.read(NARROW, key, Cells::ALL)).collect();
                tx.fetch().await?;
                assert!(rows.into_iter().all(|row| tx.get(row).is_none()));
            }
            Step::Sees(key, value) => {
                assert_eq!(tx.get_row(NARROW, key).await?.expect("there").u64(A), value);
            }
            Step::Add(table, keys) => add_one(tx, table, keys).await?,
            Step::AddPart(table, keys) => add_one_to(tx, table, keys, Cells::one(A)).await?,
            Step::Lock(keys) => {
                for &key in keys {
                    tx.update(NARROW, key, Cells::ALL);
                }
            }
            Step::Insert(table, key, is_new) => {
                let row = tx.insert_zeros(table, key);
                tx.fetch().await?;
                assert_eq!(tx.existed(row), !is_new);
            }
            Step::Delete(table, key, existed) => {
                let row = tx.delete(table, key);
                tx.fetch().await?;
                assert_eq!(tx.existed(row), existed);
            }
            Step::Scan(from, to) => scan(tx, from, to).await?,
            Step::Fetch => tx.fetch().await?,
            Step::FetchValidated => tx.fetch_validated().await?,
            Step::OtherAdds(table, keys) => {
                beside.transact(async |tx| add_one(tx, table, keys).await).await?;
            }
            Step::Abort => return tx.abort(),
        }
    }
    assert!(asked.into_iter().all(|row| tx.get(row).is_some()));
    Ok(())
}

async fn scan(tx: &mut Transaction<'_>, from: u64, to: u64) -> Result<(), Failure> {
    let range = Scan::range(IndexKey::new().u64(from), IndexKey::new().u64(to));
    // The only index that rows scan belongs to the first table of the scene.
    let seen = tx.scan(IndexId(0), range.limit(100));
    tx.fetch().await?;
    assert_eq!(tx.scanned(seen).count() as u64, (to - from) / 2 + 1);
    Ok(())
}
