//! Measures how fast the explorer is with FORD as its model. In this model, two coordinators move money between two
//! accounts.
//!
//! Invariant: the sum of the balances is the same in every final state without a fault.
//!
//! `cargo run --release -p tarn-lab --example explore_speed`

#![allow(clippy::disallowed_methods, reason = "measures real time")]

use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use tarn_engine::admin::load::{Loader, Part};
use tarn_engine::cluster::membership::EmbeddedMembership;
use tarn_engine::protocol::AnyProtocol;
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::site::{ComputeNode, Context, Database};
use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};
use tarn_fabric::executor::block_on;
use tarn_sim::explore::{
    Actor, Bounds, End, ExploreConfig, ExploreFabric, FaultBudget, Model, Reduction, explore,
};
use tarn_store::placement::catalog::{Catalog, Options};
use tarn_store::placement::replica_groups::ReplicaGroups;
use tarn_store::schema::{Cells, ColumnId, ColumnType, TableId, TableSchema};

const MEMORY_NODES: usize = 2;
const COORDINATORS: u32 = 2;
const ACCOUNTS: TableId = TableId(0);
const BALANCE: ColumnId = ColumnId(0);
const KEYS: [u64; 2] = [1, 2];
const FIRST_BALANCE: u64 = 100;
/// The number of executions that this program times.
const EXECUTIONS: u64 = 40_000;

struct Transfers {
    catalog: Catalog,
}

fn node(slot: u16) -> NodeId {
    NodeId { slot: NodeSlot(slot), incarnation: Incarnation(1) }
}

fn protocol() -> AnyProtocol {
    AnyProtocol::by_name("ford", "corrected").expect("a protocol")
}

impl Transfers {
    fn new() -> Transfers {
        let schema = TableSchema::new("accounts", 8).column("balance", ColumnType::U64);
        let options = Options {
            coordinators_max: COORDINATORS + 1,
            log_bytes: 1 << 10,
            chunk_bytes: 4 << 10,
            spare_bytes: 4 << 10,
            ..Options::default()
        };
        let catalog = protocol().catalog(&[schema], &options, MEMORY_NODES).expect("a plan");
        Transfers { catalog }
    }

    fn database(&self, fabric: &ExploreFabric) -> Arc<Database> {
        Arc::new(Database::new(
            self.catalog.clone(),
            ReplicaGroups::new(fabric.groups()),
            protocol(),
            Arc::new(EmbeddedMembership::new(COORDINATORS as usize + 1)),
        ))
    }

    fn context(&self, fabric: &ExploreFabric, database: &Arc<Database>, slot: u16) -> Rc<Context> {
        let compute = Arc::new(ComputeNode::new(Arc::clone(database), node(slot)));
        let port = fabric.port(node(slot), 0, 1);
        let cx = Context::new(compute, port, 0, 0).expect("a thread");
        cx.growth.enable(false);
        Rc::new(cx)
    }
}

impl Model for Transfers {
    fn load(&self, fabric: &ExploreFabric) {
        let cx = self.context(fabric, &self.database(fabric), COORDINATORS as u16);
        block_on(async {
            let mut loader = Loader::new(&cx, Part { index: 0, of: 1 });
            for key in KEYS {
                loader.insert(ACCOUNTS, key, |row| row.set(BALANCE, FIRST_BALANCE)).await?;
            }
            loader.finish().await
        })
        .expect("nothing has broken yet");
    }

    fn build(&self, fabric: &ExploreFabric) -> Vec<Actor> {
        let database = self.database(fabric);
        let actor = |number: u32| {
            let cx = self.context(fabric, &database, number as u16);
            let retry = Retry { patient_tries: 1, ..Retry::default() };
            let mut by = Coordinator::new(cx, number, retry);
            let fabric = fabric.clone();
            let coroutine = async move {
                fabric.begin().await;
                let mut tries = 0;
                // If a transaction conflicts with the other coordinator in its second try too, its caller gets the
                // abort.
                let _ = by
                    .transact(async |tx| {
                        tries += 1;
                        if tries > 2 {
                            return tx.abort();
                        }
                        let rows = KEYS.map(|key| tx.update(ACCOUNTS, key, Cells::ALL));
                        tx.fetch().await?;
                        let balances = rows.map(|row| tx.get(row).map_or(0, |it| it.u64(BALANCE)));
                        tx.set(rows[0], BALANCE, balances[0] - 1);
                        tx.set(rows[1], BALANCE, balances[1] + 1);
                        Ok(())
                    })
                    .await;
                fabric.end();
            };
            Actor::new(format!("coordinator {number}"), node(number as u16), 0, coroutine)
        };
        (0..COORDINATORS).map(actor).collect()
    }

    fn judge(&self, end: &End<'_>) -> Result<(), String> {
        // A dead coordinator may have left a lock, and this model has no recovery that removes the lock.
        if !end.summary.faults.is_empty() {
            return Ok(());
        }
        let cx = self.context(end.cluster(), &self.database(end.cluster()), COORDINATORS as u16);
        let mut by = Coordinator::new(cx, COORDINATORS, Retry::default());
        let sum = block_on(by.transact(async |tx| {
            let rows = KEYS.map(|key| tx.read(ACCOUNTS, key, Cells::ALL));
            tx.fetch().await?;
            Ok(rows.iter().map(|row| tx.get(*row).map_or(0, |it| it.u64(BALANCE))).sum::<u64>())
        }));
        let expected = FIRST_BALANCE * KEYS.len() as u64;
        if sum == Ok(expected) { Ok(()) } else { Err(format!("{sum:?} instead of {expected}")) }
    }
}

fn main() {
    let model = Transfers::new();
    println!("two transfers under FORD, {MEMORY_NODES} memory nodes, every group on both of them");
    for (name, faults) in [
        ("nothing breaks", FaultBudget::NONE),
        ("a compute node dies", FaultBudget { compute: 1, ..FaultBudget::NONE }),
        ("a memory node dies", FaultBudget { memory: 1, ..FaultBudget::NONE }),
    ] {
        let config = ExploreConfig {
            replicas: MEMORY_NODES,
            faults,
            bounds: Bounds { executions: EXECUTIONS, ..Bounds::NONE },
            reduction: Reduction::Full,
            ..ExploreConfig::new(
                MEMORY_NODES,
                COORDINATORS as usize + 1,
                model.catalog.group_bytes(),
            )
        };
        let start = Instant::now();
        let explored =
            explore(&model, &config, &mut |_| ControlFlow::Continue(())).expect("it fits");
        let seconds = start.elapsed().as_secs_f64();
        let it = &explored.progress;
        let steps = it.steps_new + it.steps_again;
        println!(
            "{name}: {:?}; {} executions, {} states, {} final; {} steps ({} new), depth {}; {seconds:.1} s, \
             {:.0} steps/s, {:.0} executions/s; {} violations, {} restarts, {} shared lines",
            explored.outcome,
            it.executions,
            it.states,
            it.judged,
            steps,
            it.steps_new,
            it.depth_max,
            steps as f64 / seconds,
            it.executions as f64 / seconds,
            explored.violations.len(),
            it.restarts,
            it.shared_lines,
        );
        for violation in &explored.violations {
            println!("  {}: {}", violation.text, violation.schedule);
        }
    }
}
