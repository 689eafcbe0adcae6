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
pub use tarn_engine::session::coordinator::Retry;
pub use tarn_fabric::clock::Nanos;
pub use tarn_fabric::executor::{Executor, block_on};
pub use tarn_fabric::local::Backing;
pub use tarn_store::ids::{AbortReason, Failure, Resolution, TxnId, UsageError};
pub use tarn_store::schema::{ColumnId, ColumnType, TableSchema};
pub use transaction::Transaction;
pub use workers::Workers;

/// `Ok` with the error type of this crate. The body of a transaction that has no errors of its own ends with
/// `tarn::Ok(())` where the compiler does not know the error type otherwise.
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
