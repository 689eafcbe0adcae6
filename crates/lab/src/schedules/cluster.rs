//! Builds the small cluster on which the schedule of one seed runs.
//!
//! Invariant: the cluster of a seed is laid out and loaded like every other cluster, by the engine's
//! own catalog and loader. The logs, chunks and heaps of the cluster are small, so that a seed costs
//! little time.

use super::Subject;
use super::drawn::{Drawn, is_asked_for};
use crate::harness::{rest, simulated};
use std::cell::{Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use tarn_engine::admin::last_writes;
use tarn_engine::cluster::membership::{EmbeddedMembership, LeaseTerms};
use tarn_engine::protocol::AnyProtocol;
use tarn_engine::requests::timestamp::pool_word;
use tarn_engine::services::timestamp::Timestamps;
use tarn_engine::services::{Inheritance, Planted, ServiceOptions};
use tarn_engine::site::{ComputeNode, Context, Database};
use tarn_fabric::address::NodeSlot;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::block_on;
use tarn_fabric::rpc::RpcConfig;
use tarn_sim::config::{Mode, SimConfig};
use tarn_sim::fabric::SimFabric;
use tarn_sim::profile::Profile;
use tarn_store::history::RecordedWrite;
use tarn_store::ids::{Failure, UsageError};
use tarn_store::placement::catalog::Options;
use tarn_workloads::Workload;

/// The drift that nodes assume for clocks with the planted bug, and the largest factor by which these clocks exceed
/// this drift. Some clocks with the planted bug almost stand still.
const RUN_OFF_PPM: u32 = 1_000;
const RUN_OFF_TIMES: u32 = 900;
const HARDWARE: &str = "cx5-100g";

/// The size of a node's lock table. The table is small, because a node's slot has many incarnations and only a few
/// transactions at the same time.
const LOCK_TABLE_BYTES: u64 = 1 << 14;
/// The rule by which requests are sent again. The interval is short, because the virtual time of a run is short and
/// the network loses many messages.
const RPC: RpcConfig = RpcConfig {
    retransmit_after: Nanos(30_000),
    backoff_doublings: 3,
    deadline: Nanos(5_000_000),
    ..RpcConfig::DEFAULT
};
/// The longest time after which a node's slot that restarts must have its next incarnation. The run restarts such a
/// slot at its next check of the cluster.
const NEXT_LIFE_WITHIN: Nanos = Nanos(100_000);

/// The small simulated cluster of one seed.
pub struct Cluster {
    /// The simulated hardware.
    pub fabric: SimFabric,
    /// The database.
    pub database: Arc<Database>,
    /// The membership service itself, not a node's view of the service.
    pub service: Arc<EmbeddedMembership>,
    seed: u64,
    threads: u16,
    compute_nodes: usize,
    has_faults: bool,
    address_cache: usize,
    next_life: bool,
    counts_load: bool,
    planted_move: Option<Planted>,
    loaded: RefCell<Vec<RecordedWrite>>,
}

/// The times of the engine's own work on the processor on which its instructions were counted (docs/design/0010).
const COUNTED_NS: [(&str, f64); 5] = [
    ("cpu.transaction_ns", 46.0),
    ("cpu.record_ns", 65.0),
    ("cpu.written_record_ns", 107.0),
    ("cpu.together_ns", 100.0),
    ("cpu.together_record_ns", 36.0),
];

/// Returns the hardware of random schedules. The times of the engine's work are not those of the testbed, so that a
/// better figure for a testbed does not give every seed another schedule.
fn hardware() -> Profile {
    let profile = Profile::load(HARDWARE).expect("a profile of this program");
    COUNTED_NS.iter().fold(profile, |profile, &(key, ns)| profile.with(key, ns).expect("in range"))
}

impl Cluster {
    /// Creates the cluster that `seed` has drawn, with the workload's tables in it.
    ///
    /// # Errors
    /// The error names the unknown protocol or variant.
    pub fn new<W: Workload>(
        workload: &W,
        subject: &Subject,
        drawn: &Drawn,
        seed: u64,
    ) -> Result<Cluster, UsageError> {
        let options = Options {
            placement: drawn.placement,
            coordinators_max: drawn.coordinators() as u32,
            // Logs are short, except for workloads that need longer logs.
            log_bytes: if is_asked_for(&drawn.workload) { workload.log_bytes() } else { 8 << 10 },
            chunk_bytes: 4 << 10,
            spare_bytes: 1 << 20,
            bucket: drawn.bucket,
            slots_per_100_records: drawn.slots_per_100_records,
            ..Options::default()
        };
        let protocol = AnyProtocol::by_name(&subject.protocol, &subject.variant)?;
        let catalog = protocol.catalog(&workload.schemas(), &options, drawn.memory_nodes)?;
        let mut chaos = drawn.chaos;
        chaos.planted_torn_lines = subject.torn_lines;
        if subject.clocks_run_off {
            chaos.clock_drift_max_ppm = RUN_OFF_PPM;
            chaos.planted_drift_times = RUN_OFF_TIMES;
        }
        let shape = SimConfig {
            memory_nodes: drawn.memory_nodes,
            replicas: drawn.replicas,
            // The cluster has one compute node more than the seed draws. This additional node is never lost.
            compute_nodes: drawn.compute_nodes + 1,
            group_bytes: catalog.group_bytes(),
            profile: hardware(),
            mode: Mode::Random(chaos),
            seed,
        };
        let terms = drawn.lease.unwrap_or(LeaseTerms::ENDLESS);
        let service = EmbeddedMembership::with_leases(drawn.compute_nodes + 1, terms);
        let read_lease_ns = drawn.read_leases.map_or(0, |leases| leases.length_ns);
        let policy = match drawn.read_leases {
            Some(leases) => leases.policy(drawn.has_faults())?,
            None => None,
        };
        let service = Arc::new(service.leasing_reads(read_lease_ns)?.adjusting_reads(policy));
        let planned = (protocol, catalog);
        let (fabric, database) =
            simulated::database((&shape, drawn.spares), planned, Arc::clone(&service) as _)?;
        let (threads, compute_nodes) = (drawn.threads as u16, drawn.compute_nodes);
        let (address_cache, loaded) = (drawn.address_cache, RefCell::default());
        Ok(Cluster {
            fabric,
            database,
            service,
            seed,
            threads,
            compute_nodes,
            has_faults: drawn.has_faults(),
            address_cache,
            next_life: drawn.next_life,
            counts_load: drawn.moving.is_some(),
            planted_move: subject.planted_move,
            loaded,
        })
    }

    /// Returns the seed of every random generator.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Lets a compute node join in a new incarnation.
    ///
    /// # Errors
    /// Fails if all incarnation numbers of the slot are used up.
    pub fn join(&self, slot: u16) -> Result<Arc<ComputeNode>, UsageError> {
        let id = self.database.membership.join(NodeSlot(slot))?;
        let inheritance = match self.next_life {
            true => Inheritance::NextLife { within: NEXT_LIFE_WITHIN },
            false => Inheritance::Survivors,
        };
        let services = ServiceOptions {
            lock_table_bytes: LOCK_TABLE_BYTES,
            inheritance,
            rpc: RPC,
            counts_load: self.counts_load,
            planted_move: self.planted_move,
            // The compute node that is never lost also requests locks when it copies records to a spare memory node.
            ..ServiceOptions::new(self.threads, self.compute_nodes + usize::from(self.has_faults))
        };
        Ok(Arc::new(ComputeNode::serving(Arc::clone(&self.database), id, &services)?))
    }

    /// Creates a context for a thread of a compute node.
    ///
    /// # Errors
    /// Fails if the thread number is too large for owner tags.
    pub fn context(&self, node: &Arc<ComputeNode>, thread: u16) -> Result<Rc<Context>, UsageError> {
        let port = self.fabric.port(node.id, thread, self.seed);
        let mut cx = Context::new(Arc::clone(node), port, thread, self.address_cache)?;
        if self.database.protocol.needs().timestamps {
            // If this process had a timestamp counter, a thread would read it when the thread's poll begins. But the
            // thread's own virtual time may be ahead of this moment, so a snapshot could miss transactions that had
            // ended before it. To avoid this error, timestamps come from a word in the pool, because a round that
            // reads this word takes virtual time.
            cx.timestamps = Timestamps::Pool(pool_word());
        }
        Ok(Rc::new(cx))
    }

    /// Loads the tables while no coordinator runs.
    ///
    /// # Errors
    /// Fails if the pool's memory is too small or cannot be written. The error is a text for human readers.
    pub fn load<W: Workload>(&self, workload: &W) -> Result<(), String> {
        let loaded = || -> Result<Result<Vec<RecordedWrite>, Failure>, UsageError> {
            let node = self.join(0)?;
            let cx = self.context(&node, 0)?;
            let loaded = rest::load(workload, &cx, rest::ALL, &|_| {})
                .and_then(|_| block_on(last_writes::stored(&cx)));
            if self.database.protocol.needs().read_leases {
                // A member that does nothing would delay every later change of the read leases, so the loading node
                // leaves the membership.
                self.database.membership.retire(node.id);
            }
            Ok(loaded)
        };
        let loaded = loaded().map_err(|error| error.to_string())?;
        let loaded = loaded.map_err(|failure| format!("loading: {failure}"))?;
        self.loaded.replace(loaded);
        Ok(())
    }

    /// Returns the loaded records: the first write of each record.
    pub fn loaded(&self) -> Ref<'_, [RecordedWrite]> {
        Ref::map(self.loaded.borrow(), Vec::as_slice)
    }
}
