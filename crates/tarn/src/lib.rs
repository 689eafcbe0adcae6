//! Tarn: serializable transactions on a pool of remote memory.
//!
//! Map:
//! - [`Tarn`] is a database. A thread runs transactions on it by a [`Session`]. An [`Error`] is the reason why a
//!   transaction did not commit.
//! - `#[derive(Row)]` makes a struct the [`Row`] of a [`Table`], with columns that are [`Field`]s. A table reads and
//!   writes its rows in a [`Transaction`], by their keys or by an [`Index`].
//! - [`Workers`] runs transactions for the tasks of an async server.
//! - [`Tarn::save`] writes all rows into a file while transactions run, and [`Tarn::load`] opens this file.
//! - [`cluster`]: the embedded cluster on which a database runs: memory nodes and compute nodes in this process.
//!
//! Invariant: this crate uses only public interfaces of the engine and the fabric. So a program can do everything
//! that this crate does.
//!
//! ```
//! use tarn::{Row, Tarn};
//!
//! /// A bank account.
//! #[derive(Row)]
//! #[row(table = "accounts", key(number))]
//! pub struct Account {
//!     /// The number of the account.
//!     pub number: u64,
//!     /// The balance.
//!     pub cents: i64,
//! }
//!
//! let bank = Tarn::embedded().table::<Account>(1_000).memory_nodes(3).replicas(3).open()?;
//! let accounts = bank.table::<Account>()?;
//! let mut session = bank.session()?;
//!
//! session.run(async |tx| {
//!     for number in [1, 2] {
//!         accounts.put(tx, &Account { number, cents: 100 }).await?;
//!     }
//!     tarn::Ok(())
//! })?;
//!
//! // A transfer: both accounts are locked and read in one round trip.
//! let left = session.run(async |tx| {
//!     let (from, to) = (accounts.update(tx, 1), accounts.update(tx, 2));
//!     tx.fetch().await?;
//!     let (Some(mut payer), Some(mut payee)) = (accounts.get(tx, from), accounts.get(tx, to))
//!     else {
//!         return tx.abort();
//!     };
//!     if payer.cents < 30 {
//!         return tx.abort(); // rolls everything back
//!     }
//!     payer.cents -= 30;
//!     payee.cents += 30;
//!     accounts.set(tx, from, &payer);
//!     accounts.set(tx, to, &payee);
//!     Ok(payer.cents)
//! })?;
//! assert_eq!(left, 70);
//! # Ok::<(), tarn::Error>(())
//! ```

#![forbid(unsafe_code)]

// The derive macros write paths that begin with the crate's name.
extern crate self as tarn;

pub mod cluster;
mod database;
mod deadline;
mod error;
mod field;
mod index;
/// The laboratory (`tarn-lab`) uses the memory estimate of this module before it lays out a simulated cluster.
#[doc(hidden)]
pub mod memory;
mod mistakes;
mod rows;
mod session;
mod snapshot;
mod table;
mod transaction;
mod workers;

pub use database::{Builder, Tarn};
pub use error::Error;
pub use field::{Bytes, Field, Ordered, Text};
pub use index::{Index, Prefix, Select, Selected};
pub use rows::{OrderedRow, Row};
pub use session::Session;
pub use snapshot::{Saved, SnapshotError};
pub use table::{RecordHandle, Table};
pub use tarn_derive::{Field, Row};
/// ```
/// use tarn::{Nanos, Retry};
///
/// let retry = Retry { deadline: Some(Nanos(1_000_000)), ..Retry::default() };
/// # let _ = tarn::Tarn::embedded().retry(retry);
/// ```
pub use tarn_engine::session::coordinator::Retry;
/// ```
/// assert!(tarn::Nanos(1_000) < tarn::Nanos(2_000));
/// ```
pub use tarn_fabric::clock::Nanos;
/// ```
/// let done = std::cell::Cell::new(0);
/// let mut executor = tarn::Executor::new();
/// for _ in 0..3 {
///     executor.spawn(async { done.set(done.get() + 1) });
/// }
/// executor.run(); // until all have ended
/// assert_eq!(done.get(), 3);
/// ```
pub use tarn_fabric::executor::Executor;
/// ```
/// # #[derive(tarn::Row)]
/// # #[row(table = "players", key(id))]
/// # struct Player { id: u64, points: u64 }
/// # let game = tarn::Tarn::embedded().table::<Player>(100).open()?;
/// # let players = game.table::<Player>()?;
/// # let mut session = game.session()?;
/// let found = tarn::block_on(session.transact(async |tx| players.find(tx, 1).await))?;
/// # assert!(found.is_none());
/// # Ok::<(), tarn::Error>(())
/// ```
pub use tarn_fabric::executor::block_on;
/// ```
/// # #[derive(tarn::Row)]
/// # #[row(table = "players", key(id))]
/// # struct Player { id: u64, points: u64 }
/// use tarn::{Backing, Tarn};
///
/// let game = Tarn::embedded().table::<Player>(100).memory(Backing::Private).open()?;
/// assert!(game.cluster().fabric().is_private());
/// # Ok::<(), tarn::Error>(())
/// ```
pub use tarn_fabric::local::Backing;
/// ```
/// # #[derive(tarn::Row)]
/// # #[row(table = "users", key(id), unique(by_name(name)))]
/// # struct User { id: u64, name: [u8; 8] }
/// use tarn::{AbortReason, Failure, Tarn};
///
/// let tarn = Tarn::embedded().table::<User>(100).open()?;
/// let users = tarn.table::<User>()?;
/// let both = [1, 2].map(|id| User { id, name: *b"ada     " });
/// let ended = tarn.session()?.run(async |tx| users.put_many(tx, &both).await);
/// let failure = ended.err().and_then(|error| error.failure());
/// assert_eq!(failure, Some(Failure::Abort(AbortReason::UniqueViolation)));
/// # Ok::<(), tarn::Error>(())
/// ```
pub use tarn_store::ids::AbortReason;
/// [`Error::failure`] returns this value.
///
/// ```
/// fn is_full(error: &tarn::Error) -> bool {
///     error.failure() == Some(tarn::Failure::OutOfMemory)
/// }
/// # assert!(!is_full(&tarn::Tarn::embedded().open().err().expect("no tables")));
/// ```
pub use tarn_store::ids::Failure;
/// [`Session::resolve`] returns this value.
///
/// ```
/// use tarn::{Error, Resolution, Session};
///
/// async fn has_committed(session: &mut Session, error: &Error) -> Result<bool, Error> {
///     let Some(txn) = error.unknown() else { return Ok(false) };
///     Ok(session.resolve(txn).await? == Resolution::Committed)
/// }
/// ```
pub use tarn_store::ids::Resolution;
/// [`Error::unknown`] returns the number of a transaction whose outcome is unknown. [`Session::resolve`] takes it.
///
/// ```
/// fn note(error: &tarn::Error, to_resolve: &mut Vec<tarn::TxnId>) {
///     to_resolve.extend(error.unknown());
/// }
/// # note(&tarn::Tarn::embedded().open().err().expect("no tables"), &mut Vec::new());
/// ```
pub use tarn_store::ids::TxnId;
/// ```
/// let Err(tarn::Error::Usage(usage)) = tarn::Tarn::embedded().open() else { panic!() };
/// assert_eq!((usage.field.as_str(), usage.value.as_str()), ("tables", "0"));
/// assert_eq!(usage.to_string(), "tables = 0; allowed: 1 to 65535");
/// ```
pub use tarn_store::ids::UsageError;
/// ```
/// let schema = tarn::TableSchema::new("t", 10).column("points", tarn::ColumnType::U64);
/// assert_eq!(schema.columns[0].name, "points"); // the column `ColumnId(0)`
/// ```
pub use tarn_store::schema::ColumnId;
/// ```
/// let name = tarn::ColumnType::Bytes(20);
/// let schema = tarn::TableSchema::new("t", 10).column("name", name);
/// assert_eq!(schema.columns[0].column_type, name);
/// ```
pub use tarn_store::schema::ColumnType;
/// `#[derive(Row)]` makes the schema of a table. A program that learns its tables when it runs makes it by hand:
///
/// ```
/// use tarn::{ColumnType, TableSchema, Tarn};
///
/// let schema = TableSchema::new("points", 1_000).column("points", ColumnType::U64);
/// let tarn = Tarn::embedded().schema(schema).open()?;
/// # Ok::<(), tarn::Error>(())
/// ```
pub use tarn_store::schema::TableSchema;
pub use transaction::Transaction;
pub use workers::Workers;

/// `Ok` with the error type of this crate. The body of a transaction that has no errors of its own ends with
/// `tarn::Ok(())` where the compiler does not know the error type otherwise.
///
/// ```
/// # #[derive(tarn::Row)]
/// # #[row(table = "players", key(id))]
/// # struct Player { id: u64, points: u64 }
/// # let game = tarn::Tarn::embedded().table::<Player>(100).open()?;
/// # let players = game.table::<Player>()?;
/// # let mut session = game.session()?;
/// session.run(async |tx| {
///     players.put(tx, &Player { id: 7, points: 3 }).await?;
///     tarn::Ok(()) // `Ok(())` alone would leave the error type open
/// })?;
/// # Ok::<(), tarn::Error>(())
/// ```
///
/// # Errors
/// The function returns no error.
#[allow(non_snake_case, reason = "it stands for the variant")]
pub fn Ok<T>(value: T) -> Result<T, Error> {
    Result::Ok(value)
}

/// The client of the lock service: distributed locks with fencing tokens, without a database (feature `lock`).
#[cfg(feature = "lock")]
pub mod lock {
    pub use tarn_locks::guard::Guard;
    pub use tarn_locks::service::{Grant, LockService, Patience, Refusal};
    pub use tarn_locks::value::{LockId, Machine, Mode, Policy, Token, View};
    pub use tarn_net::config::{Config, ConfigError};
    pub use tarn_net::lock::{Acquire, ClientStatus, ConnectError, LockClient, LockGuard, Options};
}

/// Items that only the code of the derive macros uses.
#[doc(hidden)]
pub mod __private {
    pub use crate::index::index;
    pub use crate::rows::{
        Column, Give, IndexDefinition, Part, Take, check_index, check_key, ordered,
    };
}

/// The example of the project's README. The documentation tests run this example too.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
