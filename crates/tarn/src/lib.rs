//! Tarn: serializable transactions on a pool of remote memory.
//!
//! Map:
//! - [`Tarn`] is a database. A thread runs transactions on it by a [`Session`]. An [`Error`] is the reason why a
//!   transaction did not commit.
//! - [`Workers`] runs transactions for the tasks of an async server.
//! - [`Tarn::save`] writes all rows into a file while transactions run, and [`Tarn::load`] opens this file.
//! - [`row!`] declares a table's rows. A [`Table`] reads and writes these rows in a [`Transaction`].
//! - [`cluster`]: the embedded cluster on which a database runs: memory nodes and compute nodes in this process.
//!
//! Invariant: this crate uses only public interfaces of the engine and the fabric. So a program can do everything
//! that this crate does.
//!
//! ```
//! use tarn::{Tarn, row};
//!
//! row! {
//!     /// A bank account.
//!     pub struct Account in "accounts" by u64 {
//!         /// The balance.
//!         pub cents: i64,
//!     }
//! }
//!
//! let bank = Tarn::embedded().table::<Account>(1_000).memory_nodes(3).replicas(3).open()?;
//! let accounts = bank.table::<Account>()?;
//! let mut session = bank.session()?;
//!
//! session.run(async |tx| {
//!     for number in [1, 2] {
//!         accounts.put(tx, number, &Account { cents: 100 }).await?;
//!     }
//!     Ok(())
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

pub mod cluster;
mod database;
mod error;
/// The laboratory (`tarn-lab`) uses the memory estimate of this module before it lays out a simulated cluster.
#[doc(hidden)]
pub mod memory;
mod mistakes;
mod rows;
mod session;
mod snapshot;
mod workers;

pub use database::{Builder, Tarn};
pub use error::Error;
pub use rows::{Field, PrimaryKey, Record, RecordHandle, Table};
pub use session::Session;
pub use snapshot::{Saved, SnapshotError};
pub use tarn_engine::session::coordinator::Retry;
pub use tarn_engine::session::transaction::{Block, Transaction};
pub use tarn_fabric::clock::Nanos;
pub use tarn_fabric::executor::{Executor, block_on};
pub use tarn_fabric::local::Backing;
pub use tarn_store::ids::{AbortReason, Failure, Resolution, TxnId, UsageError};
pub use tarn_store::schema::{ColumnId, ColumnType, TableSchema};
pub use workers::Workers;

/// The client of the lock service: distributed locks with fencing tokens, without a database (feature `lock`).
#[cfg(feature = "lock")]
pub mod lock {
    pub use tarn_locks::guard::Guard;
    pub use tarn_locks::service::{Grant, LockService, Patience, Refusal};
    pub use tarn_locks::value::{LockId, Machine, Mode, Policy, Token, View};
    pub use tarn_net::config::{Config, ConfigError};
    pub use tarn_net::lock::{Acquire, ClientStatus, ConnectError, LockClient, LockGuard, Options};
}

/// Items that only the code written by [`row!`] uses.
#[doc(hidden)]
pub mod __private {
    pub use tarn_engine::transaction::working_set::Handle;
    pub use tarn_store::schema::row::Row;
}

/// The example of the project's README. The documentation tests run this example too.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
