//! Runs SmallBank with FORD on a simulated cluster of nine compute nodes and three memory nodes, with 540
//! coordinators in total. Prints the throughput in virtual time, the hardware that limits it, and the speed of the
//! simulation.
//!
//! Invariant: with the same seed, the program prints the same figures, except for the figures of real time and of
//! processor time. The first argument is the number of accounts, and the second argument is the number of virtual
//! milliseconds.

#![allow(clippy::disallowed_methods, reason = "measures what a simulation really takes")]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use tarn_engine::admin::load::{Loader, Part};
use tarn_engine::cluster::membership::EmbeddedMembership;
use tarn_engine::protocol::AnyProtocol;
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::site::metrics::Tally;
use tarn_engine::site::{ComputeNode, Context, Database};
use tarn_fabric::address::NodeSlot;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::block_on;
use tarn_sim::config::{Mode, SimConfig};
use tarn_sim::fabric::SimFabric;
use tarn_sim::profile::Profile;
use tarn_sim::scheduler::Scheduler;
use tarn_sim::usage::{Part as Hardware, Usage};
use tarn_store::placement::catalog::Options;
use tarn_store::placement::replica_groups::ReplicaGroups;
use tarn_workloads::smallbank::SmallBank;
use tarn_workloads::{Settings, Workload};

const COMPUTE_NODES: u16 = 9;
const THREADS: u16 = 15;
const COROUTINES: u32 = 4;
const MEMORY_NODES: usize = 3;

type AnyError = Box<dyn std::error::Error>;

fn main() -> Result<(), AnyError> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |otherwise| arguments.next().map_or(Ok(otherwise), |text| text.parse::<u64>());
    let (accounts, milliseconds) = (number(100_000)?, number(3)?);
    let workload = SmallBank::new(&Settings { records: Some(accounts), ..Settings::default() })?;
    let (fabric, database) = cluster(&workload)?;

    let start = Instant::now();
    load(&fabric, &database, &workload)?;
    let memory = fabric.memory_use();
    println!(
        "{accounts} accounts loaded in {:.1} s: tables of pages {} MB, pages {} MB",
        start.elapsed().as_secs_f64(),
        memory.table_bytes >> 20,
        memory.page_bytes >> 20
    );

    let stop = Cell::new(false);
    let mut contexts = Vec::new();
    let mut scheduler = Scheduler::new(&fabric);
    for slot in 0..COMPUTE_NODES {
        let node = join(&database, slot)?;
        for thread in 0..THREADS {
            let cx = context(&fabric, &node, thread)?;
            for _ in 0..COROUTINES {
                let number = scheduler.live() as u32;
                scheduler.spawn(&cx.port, coordinate(&workload, Rc::clone(&cx), number, &stop));
            }
            contexts.push(cx);
        }
    }
    let tally = |contexts: &[Rc<Context>]| {
        let mut tally = Tally::default();
        contexts.iter().for_each(|cx| tally.add(&cx.metrics.snapshot()));
        tally
    };
    scheduler.run_until(Nanos(500_000));
    let (before, usage_before, start) = (tally(&contexts), fabric.usage(), Instant::now());
    let processor_before = processor_seconds();
    scheduler.run_until(fabric.now() + Nanos(milliseconds * 1_000_000));
    let seconds = (start.elapsed().as_secs_f64(), processor_seconds() - processor_before);
    let (done, used) = (tally(&contexts).since(&before), fabric.usage().since(&usage_before));
    stop.set(true);
    scheduler.run_until(fabric.now() + Nanos(100_000_000));
    drop(scheduler);

    report(&done, &used, seconds);
    let memory = fabric.memory_use();
    let (copies, megabytes) = (memory.copies, memory.copy_bytes >> 20);
    println!("{copies} lines copied: {megabytes} MB; digest {:016x}", fabric.digest());
    Ok(())
}

/// Prints the figures of the measured time.
fn report(done: &Tally, used: &Usage, (seconds, processor): (f64, f64)) {
    let (virtual_us, committed) = (used.at.0 as f64 / 1e3, done.committed as f64);
    println!(
        "{:.3} M transactions/s of virtual time, {:.1} % aborted",
        committed / virtual_us,
        100.0 * done.aborted() as f64 / (done.aborted() as f64 + committed)
    );
    let parts = [Hardware::Pipeline, Hardware::LinkOut, Hardware::Transmit, Hardware::Processor];
    for part in parts {
        if let Some((share, of)) = used.busiest(part) {
            println!("{:12} {:5.1} % ({of})", part.name(), share * 100.0);
        }
    }
    println!(
        "{} events in {seconds:.2} s: {:.1} M/s; {:.1} events and {:.1} turns a transaction",
        used.events(),
        used.events() as f64 / seconds / 1e6,
        used.events() as f64 / committed,
        used.turns as f64 / committed
    );
    println!("{:.0} ns of the processor an event", processor * 1e9 / used.events() as f64);
}

/// Returns the processor time that this process has used, in seconds. The result is NaN if the system does not report
/// this time.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|ns| ns.parse::<f64>().ok()).map_or(f64::NAN, |ns| ns / 1e9)
}

fn cluster(workload: &SmallBank) -> Result<(SimFabric, Arc<Database>), AnyError> {
    let options = Options {
        coordinators_max: u32::from(COMPUTE_NODES * THREADS) * COROUTINES,
        ..Options::default()
    };
    let protocol = AnyProtocol::by_name("ford", "corrected")?;
    let catalog = protocol.catalog(&workload.schemas(), &options, MEMORY_NODES)?;
    let fabric = SimFabric::new(&SimConfig {
        memory_nodes: MEMORY_NODES,
        replicas: 3,
        compute_nodes: COMPUTE_NODES.into(),
        group_bytes: catalog.group_bytes(),
        profile: Profile::load("cx3-56g")?,
        mode: Mode::Timed,
        seed: 1,
    })?;
    let groups = ReplicaGroups::new(fabric.groups());
    let membership = Arc::new(EmbeddedMembership::new(COMPUTE_NODES.into()));
    Ok((fabric, Arc::new(Database::new(catalog, groups, protocol, membership))))
}

fn join(database: &Arc<Database>, slot: u16) -> Result<Arc<ComputeNode>, AnyError> {
    let id = database.membership.join(NodeSlot(slot))?;
    Ok(Arc::new(ComputeNode::new(Arc::clone(database), id)))
}

fn context(
    fabric: &SimFabric,
    node: &Arc<ComputeNode>,
    thread: u16,
) -> Result<Rc<Context>, AnyError> {
    let port = fabric.port(node.id, thread, 1);
    Ok(Rc::new(Context::new(Arc::clone(node), port, thread, 0)?))
}

/// Loads the tables. Before the first scheduler exists, no virtual time passes, so each round is complete
/// immediately.
fn load(
    fabric: &SimFabric,
    database: &Arc<Database>,
    workload: &SmallBank,
) -> Result<(), AnyError> {
    let cx = context(fabric, &join(database, 0)?, 0)?;
    let mut loader = Loader::new(&cx, Part { index: 0, of: 1 });
    let loaded = block_on(async {
        workload.load(&mut loader).await?;
        loader.finish().await
    });
    loaded.map(drop).map_err(|failure| failure.to_string().into())
}

async fn coordinate(workload: &SmallBank, cx: Rc<Context>, number: u32, stop: &Cell<bool>) {
    let mut coordinator = Coordinator::new(cx, number, Retry::default());
    let mut rng = coordinator.context().port.rng();
    let mut tally = Default::default();
    while !stop.get() {
        let input = workload.draw(&mut rng);
        workload
            .run(&mut coordinator, &input, &mut tally)
            .await
            .expect("the cluster has no faults");
    }
}
