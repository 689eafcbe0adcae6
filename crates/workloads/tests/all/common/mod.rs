//! A small embedded cluster for tests: memory nodes in this process, and threads that run coroutines.
//!
//! Invariant: on one thread the seed decides inputs, pauses, and the order in which coroutines take
//! their turns.

pub mod recorded;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_engine::admin::inspect::{Audit, audit};
use tarn_engine::admin::load::{Loader, Part};
use tarn_engine::cluster::info::ProtocolInfo;
use tarn_engine::cluster::membership::{EmbeddedMembership, Membership};
use tarn_engine::protocol::{ALL, AnyProtocol};
use tarn_engine::requests::serve;
use tarn_engine::services::{ServiceOptions, Transport};
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::site::{ComputeNode, Context, Database};
use tarn_fabric::address::NodeSlot;
use tarn_fabric::executor::{Executor, block_on};
use tarn_fabric::local::{Backing, LineAtomicity, LocalConfig, LocalFabric};
use tarn_fabric::rng::seeded;
use tarn_fabric::round::Round;
use tarn_store::history::RecordedTxn;
use tarn_store::ids::Failure;
use tarn_store::placement::catalog::Options;
use tarn_store::placement::replica_groups::ReplicaGroups;
use tarn_store::schema::{Cells, ColumnId, TableId};
use tarn_workloads::{Invariant, Settings, Workload};

/// The number of coroutines that each thread of a run has.
pub const COROUTINES: u32 = 8;

/// The largest number of threads of a cluster. Each thread is a compute node.
pub const THREADS_MAX: u16 = 8;

/// The length of readers' leases, under a protocol with leases. Some transactions are shorter than
/// this lease, and others are longer.
const READ_LEASE_NS: u32 = 10_000;

/// The shape of the cluster on which a test runs.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    /// The protocol's name.
    pub protocol: &'a str,
    /// The number of copies of every record. The cluster has three memory nodes.
    pub replicas: usize,
    /// The number of slots that tables have per 100 records. A small number makes the chains of
    /// buckets long.
    pub slots_per_100_records: u32,
    /// The protocol's variant.
    pub variant: &'a str,
    /// How the fabric keeps lines whole, or that torn lines are planted.
    pub atomicity: LineAtomicity,
}

/// A run that tries to provoke errors.
#[derive(Clone, Copy, Debug)]
pub struct Stress {
    /// The number of threads. Each thread is a compute node.
    pub threads: usize,
    /// The number of transactions of each coroutine.
    pub transactions: usize,
    /// The run counts as stuck if every thread makes this many turns and no transaction ends (see
    /// [`Progress`]).
    pub patience_turns: u64,
    /// The seed of inputs and pauses.
    pub seed: u64,
}

/// Decides whether a run still makes progress, by counting turns and not by time. A stopped thread
/// makes no turns. So threads that wait for a stopped thread do not count as stuck, however slow the
/// machine is.
struct Progress {
    patience_turns: u64,
    /// The number of transactions of all threads that have ended.
    ended: AtomicU64,
    /// For each thread whether it has made `patience_turns` turns while no transaction ended. If the
    /// thread has, the value is one more than the number of transactions that had ended at that time.
    /// The value is [`Progress::DONE`] when the thread has ended.
    in_vain_since: Vec<AtomicU64>,
}

impl Progress {
    const DONE: u64 = u64::MAX;

    fn new(threads: usize, patience_turns: u64) -> Progress {
        let in_vain_since = (0..threads).map(|_| AtomicU64::new(0)).collect();
        Progress { patience_turns, ended: AtomicU64::new(0), in_vain_since }
    }

    /// Counts one more turn of a thread.
    fn turned(&self, thread: usize, seen: &mut (u64, u64)) {
        let ended = self.ended.load(Ordering::SeqCst);
        if seen.0 != ended {
            *seen = (ended, 0);
        }
        seen.1 += 1;
        if seen.1 < self.patience_turns {
            return;
        }
        self.in_vain_since[thread].store(ended + 1, Ordering::SeqCst);
        let is_stuck = |since: &AtomicU64| {
            let since = since.load(Ordering::SeqCst);
            since == ended + 1 || since == Progress::DONE
        };
        assert!(
            !self.in_vain_since.iter().all(is_stuck),
            "nobody gets on after {ended} transactions"
        );
    }

    /// Returns a guard that marks a thread as done when the thread ends, with or without a panic.
    fn done_at_end(&self, thread: usize) -> impl Drop + '_ {
        struct Done<'a>(&'a AtomicU64);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(Progress::DONE, Ordering::SeqCst);
            }
        }
        Done(&self.in_vain_since[thread])
    }
}

impl<'a> Shape<'a> {
    /// Creates a shape in which tables have the catalog's default number of slots.
    pub fn new(protocol: &'a str, replicas: usize) -> Shape<'a> {
        let slots_per_100_records = Options::default().slots_per_100_records;
        let (variant, atomicity) = ("corrected", LocalConfig::default().atomicity);
        Shape { protocol, replicas, slots_per_100_records, variant, atomicity }
    }
}

/// A cluster, and the present thread's context on the cluster.
pub struct Cluster {
    /// The present thread's context on the cluster.
    pub cx: Rc<Context>,
    fabric: Arc<LocalFabric>,
    nodes: Vec<Arc<ComputeNode>>,
}

impl Cluster {
    /// Creates an empty cluster for the workload's tables.
    pub fn new<W: Workload>(workload: &W, shape: Shape<'_>, seed: u64) -> Cluster {
        let memory_nodes = 3;
        let options = Options {
            coordinators_max: u32::from(THREADS_MAX) * COROUTINES + 1,
            // Protocols that keep old versions keep each old version for half a second, so they need
            // spare memory.
            spare_bytes: 64 << 20,
            slots_per_100_records: shape.slots_per_100_records,
            chunk_bytes: 64 << 10,
            ..workload.sized(&Options::default())
        };
        let protocol = AnyProtocol::by_name(shape.protocol, shape.variant).expect("a variant");
        let catalog =
            protocol.catalog(&workload.schemas(), &options, memory_nodes).expect("a plan");
        let config = LocalConfig {
            memory_nodes,
            replicas: shape.replicas,
            group_bytes: catalog.group_bytes(),
            backing: Backing::Private,
            atomicity: shape.atomicity,
            ..LocalConfig::default()
        };
        let fabric = LocalFabric::new(&config).expect("a cluster");
        let groups = ReplicaGroups::new(fabric.groups().to_vec());
        let membership = EmbeddedMembership::new(usize::from(THREADS_MAX));
        let membership = membership.leasing_reads(READ_LEASE_NS).expect("not too long");
        let membership = Arc::new(membership);
        let ids = (0..THREADS_MAX).map(|slot| membership.join(NodeSlot(slot)).expect("a life"));
        let ids: Vec<_> = ids.collect();
        let database = Arc::new(Database::new(catalog, groups, protocol, membership));
        // Threads that run at the same time call each other, as the nodes of one process do.
        let services = ServiceOptions { transport: Transport::Near, ..ServiceOptions::direct(1) };
        let node = |&id| ComputeNode::serving(Arc::clone(&database), id, &services);
        let nodes: Vec<_> =
            ids.iter().map(|id| Arc::new(node(id).expect("a small lock table"))).collect();
        serve::share_out(&database, &ids);
        let cx = context(&fabric, &nodes[0], seed);
        Cluster { cx, fabric, nodes }
    }

    /// Creates a cluster that contains the workload's records.
    pub fn loaded<W: Workload>(workload: &W, shape: Shape<'_>, seed: u64) -> Cluster {
        let cluster = Cluster::new(workload, shape, seed);
        let loaded = block_on(async {
            let mut loader = Loader::new(&cluster.cx, Part { index: 0, of: 1 });
            workload.load(&mut loader).await?;
            loader.finish().await
        });
        assert_eq!(loaded, Ok(workload.records()), "records loaded");
        cluster
    }

    /// Runs eight coroutines with `transactions` transactions each. Returns the tally of all these
    /// coroutines.
    pub fn run<W: Workload>(&self, workload: &W, transactions: usize, seed: u64) -> W::Tally {
        run_coroutines(&self.cx, workload, transactions, seed, (false, None)).0
    }

    /// Like [`Cluster::run`], but on `threads` threads at the same time.
    pub fn run_threads<W: Workload<Tally: Send> + Sync>(
        &self,
        workload: &W,
        threads: usize,
        transactions: usize,
        seed: u64,
    ) -> W::Tally {
        let done = self.run_all(workload, threads, transactions, seed, false);
        done.into_iter().fold(W::Tally::default(), |mut sum, (tally, _)| {
            W::merge(&mut sum, tally);
            sum
        })
    }

    /// Like [`Cluster::run_threads`], but also returns the reads and writes of the transactions.
    pub fn record_threads<W: Workload<Tally: Send> + Sync>(
        &self,
        workload: &W,
        threads: usize,
        transactions: usize,
        seed: u64,
    ) -> Vec<RecordedTxn> {
        let done = self.run_all(workload, threads, transactions, seed, true);
        done.into_iter().flat_map(|(_, history)| history).collect()
    }

    /// Runs threads and records their transactions. Each thread first calls `on_thread` with its
    /// number, to prepare itself.
    ///
    /// # Errors
    /// The panic of the first thread that panicked. A thread panics if a transaction fails or an
    /// invariant is broken.
    pub fn stress<W: Workload<Tally: Send> + Sync>(
        &self,
        workload: &W,
        stress: Stress,
        on_thread: &(dyn Fn(usize) + Sync),
    ) -> std::thread::Result<(W::Tally, Vec<RecordedTxn>)> {
        let Stress { threads, transactions, patience_turns, seed } = stress;
        let progress = Progress::new(threads, patience_turns);
        let ended: Vec<_> = std::thread::scope(|scope| {
            let run = |(number, node): (usize, &Arc<ComputeNode>)| {
                let (fabric, node) = (Arc::clone(&self.fabric), Arc::clone(node));
                let progress = &progress;
                scope.spawn(move || {
                    let _done = progress.done_at_end(number);
                    let seed = seed + ((number as u64) << 32);
                    let cx = context(&fabric, &node, seed);
                    on_thread(number);
                    let watched = Some((progress, number));
                    run_coroutines(&cx, workload, transactions, seed, (true, watched))
                })
            };
            let running: Vec<_> = self.nodes[..threads].iter().enumerate().map(run).collect();
            running.into_iter().map(|thread| thread.join()).collect()
        });
        let mut sum = (W::Tally::default(), Vec::new());
        for each in ended {
            let (tally, history) = each?;
            W::merge(&mut sum.0, tally);
            sum.1.extend(history);
        }
        Ok(sum)
    }

    fn run_all<W: Workload<Tally: Send> + Sync>(
        &self,
        workload: &W,
        threads: usize,
        transactions: usize,
        seed: u64,
        record: bool,
    ) -> Vec<(W::Tally, Vec<RecordedTxn>)> {
        std::thread::scope(|scope| {
            let run = |node: &Arc<ComputeNode>| {
                let (fabric, node) = (Arc::clone(&self.fabric), Arc::clone(node));
                let seed = seed + u64::from(node.id.slot.0);
                let run = move || {
                    let cx = context(&fabric, &node, seed);
                    run_coroutines(&cx, workload, transactions, seed, (record, None))
                };
                scope.spawn(run)
            };
            let running: Vec<_> = self.nodes[..threads].iter().map(run).collect();
            running.into_iter().map(|thread| thread.join().expect("a thread's end")).collect()
        })
    }

    /// Returns the workload's verdicts on the contents of memory after a run.
    pub fn check<W: Workload>(&self, workload: &W, tally: &W::Tally) -> Vec<Invariant> {
        block_on(workload.check(&self.cx, tally)).expect("a check")
    }

    /// Returns the engine's audit of the contents of memory after a run.
    pub fn audit(&self) -> Audit {
        block_on(audit(&self.cx)).expect("an audit")
    }

    /// Overwrites a column of a record at every replica, without using the engine.
    pub fn tamper(&self, table: TableId, key: u64, column: ColumnId, bytes: &[u8]) {
        self.overwrite(table, key, column, bytes, usize::MAX);
    }

    /// Like [`Cluster::tamper`], but only at the primary.
    pub fn tamper_primary_only(&self, table: TableId, key: u64, column: ColumnId, bytes: &[u8]) {
        self.overwrite(table, key, column, bytes, 1);
    }

    fn overwrite(&self, table: TableId, key: u64, column: ColumnId, bytes: &[u8], copies: usize) {
        assert!(self.exists(table, key), "a record to tamper with");
        let (slot, body) = self.cx.cache.borrow().get(table, key).expect("a known address");
        let table = self.cx.table(table);
        let place = if table.slot.is_out_of_line() { body } else { slot };
        let offset = table.schema.columns[usize::from(column.0)].offset_bytes;
        let mut round = Round::new();
        let value = round.reserve(bytes.len());
        round.bytes_mut(value, bytes.len()).copy_from_slice(bytes);
        for target in self.cx.groups.whole().all(place).take(copies) {
            round.write(target.plus(table.slot.payload_at + offset), value, bytes.len());
        }
        block_on(self.cx.port.execute(&mut round)).expect("a write");
    }

    /// Returns whether the table has a record with this key.
    pub fn exists(&self, table: TableId, key: u64) -> bool {
        let mut coordinator = self.outsider();
        let found: Result<bool, Failure> =
            block_on(coordinator.transact(async |tx| Ok(tx.get_row(table, key).await?.is_some())));
        found.expect("a read")
    }

    /// Creates a coordinator whose number no run uses.
    fn outsider(&self) -> Coordinator {
        let number = u32::from(THREADS_MAX) * COROUTINES;
        Coordinator::new(Rc::clone(&self.cx), number, Retry::default())
    }

    /// Removes a record in a transaction of its own, which no tally counts.
    pub fn remove(&self, table: TableId, key: u64) {
        let mut coordinator = self.outsider();
        let removed: Result<bool, Failure> = block_on(coordinator.transact(async |tx| {
            let record = tx.delete(table, key);
            tx.fetch().await?;
            Ok(tx.existed(record))
        }));
        assert_eq!(removed, Ok(true), "a record to remove");
    }

    /// Changes a column in a transaction of its own, which no tally counts.
    pub fn set(&self, table: TableId, key: u64, column: ColumnId, value: &[u8]) {
        let mut coordinator = self.outsider();
        let done: Result<(), Failure> = block_on(coordinator.transact(async |tx| {
            let record = tx.update(table, key, Cells::ALL);
            tx.fetch().await?;
            tx.set(record, column, value);
            Ok(())
        }));
        assert_eq!(done, Ok(()));
    }
}

/// Creates a thread's context on a cluster. Call this function on the same thread.
fn context(fabric: &Arc<LocalFabric>, node: &Arc<ComputeNode>, seed: u64) -> Rc<Context> {
    let port = fabric.port(node.id, 0, seed);
    Rc::new(Context::new(Arc::clone(node), port, 0, 1 << 12).expect("a context"))
}

fn run_coroutines<W: Workload>(
    cx: &Rc<Context>,
    workload: &W,
    transactions: usize,
    seed: u64,
    (record, watched): (bool, Option<(&Progress, usize)>),
) -> (W::Tally, Vec<RecordedTxn>) {
    let sum = RefCell::new((W::Tally::default(), Vec::new()));
    let mut executor = Executor::new();
    let first = u32::from(cx.node.id.slot.0) * COROUTINES;
    for number in first..first + COROUTINES {
        let (cx, sum) = (Rc::clone(cx), &sum);
        executor.spawn(async move {
            let mut coordinator = Coordinator::new(cx, number, Retry::default());
            if record {
                coordinator.record_history();
            }
            let mut rng = seeded(seed, u64::from(number));
            let mut tally = W::Tally::default();
            for _ in 0..transactions {
                let input = workload.draw(&mut rng);
                let outcome = workload.run(&mut coordinator, &input, &mut tally).await;
                assert_eq!(outcome, Ok(()), "transaction {}", W::kind(&input));
                if let Some((progress, _)) = watched {
                    progress.ended.fetch_add(1, Ordering::SeqCst);
                }
            }
            let mut sum = sum.borrow_mut();
            W::merge(&mut sum.0, tally);
            sum.1.extend(coordinator.take_history());
        });
    }
    let mut seen = (0, 0);
    executor.run_with(|| {
        if let Some((progress, thread)) = watched {
            progress.turned(thread, &mut seen);
        }
    });
    drop(executor);
    sum.into_inner()
}

/// Creates a workload with this profile and few records.
pub fn small<W: Workload>(profile: &str, records: u64) -> W {
    let settings =
        Settings { profile: Some(profile.to_owned()), records: Some(records), zipf: None };
    W::new(&settings).expect("a profile")
}

/// Returns the profiles that tests run with few records, and the number of records of each. A single
/// warehouse of TPC-C has half a million records. So tests use only the TPC-C profile that is made
/// for tests.
pub fn scaled_down<W: Workload>(records: u64) -> Vec<(&'static str, u64)> {
    match W::NAME {
        "tpcc" => vec![("tiny", 2)],
        _ => W::PROFILES.iter().map(|profile| (profile.name, records)).collect(),
    }
}

/// Returns each protocol with a number of replicas: 1 and 3 in turn. `turn` says which number comes first, so a test
/// that calls this function with two turns runs every protocol with both numbers.
pub fn protocols_in_turn(turn: usize) -> impl Iterator<Item = (&'static ProtocolInfo, usize)> {
    ALL.iter().zip(turn..).map(|(protocol, turn)| (protocol, [1, 3][turn % 2]))
}

/// Returns whether all invariants hold.
pub fn all_ok(invariants: &[Invariant]) -> bool {
    assert!(!invariants.is_empty());
    invariants.iter().all(|invariant| invariant.ok)
}
