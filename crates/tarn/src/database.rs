//! An embedded database: its tables, its cluster, and the sessions that may run transactions on it.
//!
//! Invariant: no two transactions ever have the same owner tag, and no two sessions use one log area at the same
//! time. A session gets a thread number that no other session has in the incarnation of its compute node. The
//! session's tags continue after the tags of the thread that had the number before
//! ([`tarn_engine::cluster::threads`]). So numbers can be reused without limit. If all numbers are in use, another
//! compute node joins. All compute nodes share the memory that their threads leave for reuse. A session gives its log
//! area back when it ends. While a transaction in doubt needs the area, no other session gets the area.
//!
//! Under a protocol whose locks are in compute nodes, the first node grants all locks. The first node exists as long
//! as the database does, independent of sessions, and its slot gets no second incarnation. Sessions of later nodes
//! call the first node's code in their own threads. So no thread of the first node needs to be awake.

use crate::cluster::{Cluster, ClusterConfig, MemoryMax};
use crate::error::Error;
use crate::mistakes::{difference, in_builders_words};
use crate::rows::Row;
use crate::session::Session;
use crate::table::Table;
use crate::workers::Workers;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tarn_engine::requests::serve;
use tarn_engine::session::coordinator::Retry;
use tarn_engine::site::{ComputeNode, Context};
use tarn_fabric::local::Backing;
use tarn_store::ids::{THREADS_MAX, UsageError};
use tarn_store::schema::TableSchema;

/// The greatest number of compute nodes at the same time.
const COMPUTE_NODES: u16 = 64;

/// The deadline of a call if the program sets none. A call that takes so long waits for something that does not come:
/// a lock that is never released, or a body that never ends.
const DEADLINE: Duration = Duration::from_secs(10);

/// The settings of an embedded database. [`Tarn::embedded`] creates this value.
///
/// ```
/// # #[derive(tarn::Row)]
/// # #[row(table = "players", key(id))]
/// # struct Player { id: u64, points: u64 }
/// use std::time::Duration;
/// use tarn::Tarn;
///
/// let game = Tarn::embedded()
///     .table::<Player>(1_000_000) // a hint
///     .memory_max(1 << 30)
///     .protocol("occ", "corrected")
///     .deadline(Duration::from_secs(1))
///     .open()?;
///
/// // An error names the method, the value, and the allowed values.
/// let refused = Tarn::embedded().table::<Player>(100).replicas(2).open().err();
/// let text = refused.map(|error| error.to_string());
/// assert_eq!(text.as_deref(), Some("replicas = 2; allowed: 1 to memory_nodes (1)"));
/// # Ok::<(), tarn::Error>(())
/// ```
#[derive(Clone)]
pub struct Builder {
    schemas: Vec<TableSchema>,
    config: ClusterConfig,
    retry: Retry,
    deadline: Option<Duration>,
}

impl Builder {
    /// Adds the table of these rows, laid out for `expected_records`. This number is a hint: the table grows beyond it
    /// until the database has used up [`Builder::memory_max`]. A hint that is near the true number saves the time of
    /// growth. Under DrTM, DSLR and lock services, and for rows of more than a cache line under LOTUS, the index stays
    /// as it was laid out. There a table with many times the expected rows is found more slowly.
    #[must_use]
    pub fn table<R: Row>(self, expected_records: u64) -> Builder {
        self.schema(R::schema(expected_records))
    }

    /// Adds a table whose schema is known only when the program runs.
    #[must_use]
    pub fn schema(mut self, schema: TableSchema) -> Builder {
        self.schemas.push(schema);
        self
    }

    /// The tables of the database to be opened.
    pub(crate) fn schemas_mut(&mut self) -> &mut Vec<TableSchema> {
        &mut self.schemas
    }

    /// Sets the number of memory nodes over which records are distributed. The default is 1 memory node.
    #[must_use]
    pub fn memory_nodes(mut self, count: usize) -> Builder {
        self.config.memory_nodes = count;
        self
    }

    /// Sets the number of copies of every record, each on a different memory node. The default is 1 copy.
    #[must_use]
    pub fn replicas(mut self, count: usize) -> Builder {
        self.config.replicas = count;
        self
    }

    /// Sets the protocol and its variant, which decide how transactions run. The default is the protocol `ford` in
    /// the variant `corrected`. [`Builder::open`] refuses other names, and its error lists the names that exist.
    ///
    /// The protocols are `ford`, `occ`, `motor`, `lotus`, `oocc`, `drtm`, `dslr`, `2pl`, and `2pl` over a lock service
    /// in this process: `2pl/srvlock`, `2pl/parlock`, `2pl/netlock`, `2pl/fisslock`, `2pl/fisslock-local`. The name
    /// `lotus/fisslock` is an experiment. The page `docs/which-protocol.md` helps to choose.
    ///
    /// Applications use the variant `corrected`. The variants `literal` (as a paper describes its system) and
    /// `measured` (as the system's public code works) are for experiments: they may lack rules that keep data right.
    #[must_use]
    pub fn protocol(mut self, name: &str, variant: &str) -> Builder {
        self.config.protocol = name.to_owned();
        self.config.variant = variant.to_owned();
        self
    }

    /// Sets the seed of every random generator. The default seed is 1.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Builder {
        self.config.seed = seed;
        self
    }

    /// Sets the kind of memory that the database requests from the operating system.
    #[must_use]
    pub fn memory(mut self, backing: Backing) -> Builder {
        self.config.backing = backing;
        self
    }

    /// Sets the most memory that the database may use, in bytes, over all memory nodes and copies. The default is half
    /// of the machine's memory, or the memory that the expected records need, if that is more. The database reserves
    /// address space, and takes a page of memory when it is first used. When the memory is used up, a transaction that
    /// needs more fails with [`Error::OutOfMemory`].
    ///
    /// ```
    /// use tarn::{Error, Row, Tarn};
    ///
    /// #[derive(Row)]
    /// #[row(table = "photos", key(id))]
    /// struct Photo {
    ///     id: u64,
    ///     pixels: [u8; 16_000],
    /// }
    ///
    /// let tarn = Tarn::embedded().table::<Photo>(10).sessions_max(4).memory_max(100 << 20).open()?;
    /// let (photos, mut session) = (tarn.table::<Photo>()?, tarn.session()?);
    /// let full = (0..).find_map(|id| {
    ///     let photo = Photo { id, pixels: [0; 16_000] };
    ///     session.run(async |tx| photos.put(tx, &photo).await).err().map(|error| (id, error))
    /// });
    /// let Some((stored, Error::OutOfMemory(usage))) = full else { panic!("{full:?}") };
    /// assert!(stored > 1_000);
    /// assert_eq!(usage.field, "memory_max");
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn memory_max(mut self, bytes: u64) -> Builder {
        self.config.memory_max = MemoryMax::Bytes(bytes);
        self
    }

    /// Sets the heap size of each memory node beyond the needs of the expected records, in bytes. The database has this
    /// memory even if [`Builder::memory_max`] leaves none to grow. The default heap size is 64 MiB.
    #[must_use]
    pub fn spare_bytes(mut self, bytes: u64) -> Builder {
        self.config.options.spare_bytes = bytes;
        self
    }

    /// Sets the greatest number of sessions at the same time. The default is 256 sessions.
    #[must_use]
    pub fn sessions_max(mut self, count: u32) -> Builder {
        self.config.options.coordinators_max = count;
        self
    }

    /// Sets the greatest number of records that one transaction may request. The same limit holds for the
    /// transaction's scans and look-ups together, including those that find nothing. The default limit is 1,048,576
    /// records. A transaction that requests more fails with an error that names `records_max`.
    #[must_use]
    pub fn records_max(mut self, count: u32) -> Builder {
        self.config.options.records_max = count;
        self
    }

    /// Sets the size of each session's log area, in bytes, a multiple of 64. The default size of a log area is 64
    /// KiB. If the log of a transaction is longer, the transaction also takes chunks of the heap, which its session's
    /// number keeps.
    #[must_use]
    pub fn log_bytes(mut self, bytes: u64) -> Builder {
        self.config.options.log_bytes = bytes;
        self
    }

    /// Sets the greatest log size of one transaction, in bytes. The default limit of a log is 256 MiB. A transaction
    /// with a larger log fails with an error that names `log_bytes_max`.
    #[must_use]
    pub fn log_bytes_max(mut self, bytes: u64) -> Builder {
        self.config.options.log_bytes_max = bytes;
        self
    }

    /// Sets the number of record addresses that each session's thread caches, so that an update can lock in its first
    /// round. The default is 0 addresses.
    #[must_use]
    pub fn address_cache(mut self, entries: usize) -> Builder {
        self.config.address_cache_entries = entries;
        self
    }

    /// Sets the number of version tables of its own records that the process caches, under a protocol whose locks are
    /// in compute nodes. The default is 0 tables, because in one process the cache costs more time than it saves.
    #[must_use]
    pub fn version_cache(mut self, entries: usize) -> Builder {
        self.config.version_cache_entries = entries;
        self
    }

    /// Sets how long each call of a session may take. The default is 10 seconds. `None` means that a call may take
    /// for ever. [`Session::deadline`] changes the deadline of one session.
    #[must_use]
    pub fn deadline(mut self, deadline: impl Into<Option<Duration>>) -> Builder {
        self.deadline = deadline.into();
        self
    }

    /// Sets how a transaction is tried again after an abort. A deadline of `retry` ends only the tries: it counts
    /// from the first try, and does not end a body.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Builder {
        self.retry = retry;
        self
    }

    /// Creates the cluster and lays out the tables.
    ///
    /// # Errors
    /// The error names the value that cannot be used, and the allowed values.
    pub fn open(mut self) -> Result<Tarn, Error> {
        self.config.compute_nodes = usize::from(COMPUTE_NODES);
        let cluster = Cluster::new(&self.schemas, &self.config).map_err(in_builders_words)?;
        let first = cluster.join(0)?;
        serve::share_out(cluster.database(), &[first.id]);
        let seats = Seats { nodes: vec![Arc::clone(&first)], free: Vec::new(), next_number: 0 };
        let (retry, deadline, seats) = (self.retry, self.deadline, Mutex::new(seats));
        let saving = Mutex::default();
        let shared = Shared { cluster, retry, deadline, seats, saving, first };
        Ok(Tarn { shared: Arc::new(shared) })
    }
}

/// An embedded database. Clones of this value share one database. Any thread may use it, and may send it to other
/// threads.
///
/// ```
/// # #[derive(tarn::Row)]
/// # #[row(table = "players", key(id))]
/// # struct Player { id: u64, points: u64 }
/// use tarn::Tarn;
///
/// let game = Tarn::embedded().table::<Player>(100).open()?;
/// let players = game.table::<Player>()?;
/// std::thread::scope(|scope| {
///     for id in 0..4 {
///         let game = &game;
///         scope.spawn(move || {
///             let mut session = game.session()?; // each thread has its own
///             session.run(async |tx| players.put(tx, &Player { id, points: 0 }).await)
///         });
///     }
/// });
/// let found = game.session()?.run(async |tx| players.find_many(tx, 0..4).await)?;
/// assert!(found.iter().all(Option::is_some));
/// # Ok::<(), tarn::Error>(())
/// ```
#[derive(Clone)]
pub struct Tarn {
    shared: Arc<Shared>,
}

struct Shared {
    cluster: Cluster,
    retry: Retry,
    deadline: Option<Duration>,
    seats: Mutex<Seats>,
    /// The right to save the database.
    saving: Mutex<()>,
    /// The node that grants locks, under a protocol whose locks are in compute nodes. The other compute nodes share
    /// the memory of this node.
    first: Arc<ComputeNode>,
}

/// The thread numbers and log areas that are still free.
struct Seats {
    /// The compute nodes that have joined. Each of these nodes has thread numbers.
    nodes: Vec<Arc<ComputeNode>>,
    /// The log areas that sessions have given back.
    free: Vec<u32>,
    /// The number of the first log area that no session has ever used.
    next_number: u32,
}

impl Tarn {
    /// Creates the settings of a database in this process.
    pub fn embedded() -> Builder {
        let memory_max = MemoryMax::HalfOfMachine;
        let (schemas, config) =
            (Vec::new(), ClusterConfig { memory_max, ..ClusterConfig::default() });
        Builder { schemas, config, retry: Retry::default(), deadline: Some(DEADLINE) }
    }

    /// Returns the table of these rows.
    ///
    /// # Errors
    /// If the database has no table of these rows, or a table with other columns or indexes.
    pub fn table<R: Row>(&self) -> Result<Table<R>, Error> {
        let catalog = &self.shared.cluster.database().catalog;
        let refuse = |allowed: String| {
            Error::from(UsageError { field: "table".into(), value: R::TABLE.into(), allowed })
        };
        let names = catalog.tables().iter().map(|table| table.schema.name.as_str());
        let id = catalog
            .table_id(R::TABLE)
            .ok_or_else(|| refuse(names.collect::<Vec<_>>().join(", ")))?;
        let schema = &catalog.table(id).schema;
        let declared = R::schema(schema.expected_records);
        match difference(schema, &declared) {
            None => {
                let first = schema.indexes.first();
                let first = first.and_then(|index| catalog.index_id(R::TABLE, &index.name));
                let first = first.map_or(0, |index| index.0);
                Ok(Table::new(id, first, self.shared.cluster.database().number()))
            }
            Some(error) => Err(error.into()),
        }
    }

    /// Creates a session for the calling thread.
    ///
    /// # Errors
    /// If the database already has the greatest allowed number of sessions.
    pub fn session(&self) -> Result<Session, Error> {
        let (node, thread, number) = {
            let mut seats = self.shared.seats();
            let (node, thread) = self.shared.take_thread(&mut seats)?;
            let number = self.shared.take_number(&mut seats);
            let number = number.inspect_err(|_| node.threads.give_back(thread))?;
            (node, thread, number)
        };
        let cx = Rc::new(self.shared.cluster.context(&node, thread)?);
        Ok(Session::new(self.clone(), cx, number))
    }

    /// Starts `threads` threads that run transactions for tasks of any executor, and for threads without a session.
    ///
    /// # Errors
    /// If `threads` is 0, or the database already has the greatest allowed number of sessions, or the operating system
    /// starts no more threads.
    pub fn workers(&self, threads: usize) -> Result<Workers, Error> {
        Workers::start(self, threads)
    }

    /// Creates another session for the thread of `cx`.
    pub(crate) fn sibling(&self, cx: &Rc<Context>) -> Result<Session, Error> {
        let number = self.shared.take_number(&mut self.shared.seats())?;
        Ok(Session::new(self.clone(), Rc::clone(cx), number))
    }

    /// Creates a context for the calling thread, which runs no transactions.
    pub(crate) fn own_context(&self) -> Result<Context, Error> {
        let (node, thread) = self.shared.take_thread(&mut self.shared.seats())?;
        Ok(self.shared.cluster.context(&node, thread)?)
    }

    /// Waits until no other thread saves this database. The others wait while the guard exists.
    pub(crate) fn one_save(&self) -> MutexGuard<'_, ()> {
        self.shared.saving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn give_back(&self, number: u32) {
        self.shared.seats().free.push(number);
    }

    pub(crate) fn retry(&self) -> Retry {
        self.shared.retry
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.shared.deadline
    }

    /// Returns the cluster on which this database runs.
    pub fn cluster(&self) -> &Cluster {
        &self.shared.cluster
    }
}

impl Shared {
    /// Locks the free thread numbers and log areas. If a thread panicked between two steps, some of them stay unused.
    /// A panic does no other damage.
    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a free thread number of the first compute node that has a free number. If no node has a free number,
    /// another node joins.
    fn take_thread(&self, seats: &mut Seats) -> Result<(Arc<ComputeNode>, u16), Error> {
        let membership = &self.cluster.database().membership;
        let live = || seats.nodes.iter().filter(|node| membership.is_member(node.id));
        let free = live().find_map(|node| Some((Arc::clone(node), node.threads.reserve()?)));
        if let Some(found) = free {
            return Ok(found);
        }
        let is_free = |slot: &u16| live().all(|node| node.id.slot.0 != *slot);
        // The first slot is not used again, because its node grants locks.
        let Some(slot) = (1..COMPUTE_NODES).find(is_free) else {
            let most = usize::from(COMPUTE_NODES) * THREADS_MAX;
            let (field, value) = ("threads with sessions at once".into(), (most + 1).to_string());
            return Err(UsageError { field, value, allowed: format!("at most {most}") }.into());
        };
        let joined = self.cluster.join_beside(slot, &self.first)?;
        seats.nodes.retain(|node| membership.is_member(node.id));
        seats.nodes.push(Arc::clone(&joined));
        let thread = joined.threads.reserve();
        let thread = thread.expect("a node that has just joined has free threads");
        Ok((joined, thread))
    }

    fn take_number(&self, seats: &mut Seats) -> Result<u32, Error> {
        let numbers = &self.cluster.database().log_area_owners;
        if let Some(at) = seats.free.iter().rposition(|number| !numbers.is_held(*number)) {
            return Ok(seats.free.swap_remove(at));
        }
        let most = self.cluster.config().options.coordinators_max;
        if seats.next_number == most {
            let (field, value) = ("sessions at once".into(), (u64::from(most) + 1).to_string());
            let kept = match seats.free.len() {
                0 => String::new(),
                count => format!(
                    "; transactions in doubt hold {count} of them until a remaining session or \
                     `Session::resolve` settles them"
                ),
            };
            let allowed = format!("at most {most}; see `sessions_max`{kept}");
            return Err(UsageError { field, value, allowed }.into());
        }
        seats.next_number += 1;
        Ok(seats.next_number - 1)
    }
}
