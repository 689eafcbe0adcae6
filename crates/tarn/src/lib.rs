//! Tarn: serializable transactions on a pool of remote memory.
//!
//! Map:
//! - [`Tarn`] is a database, [`Session`] one thread's way to run transactions on it, [`Error`] the
//!   reason why one did not commit.
//! - [`row!`] declares a table's rows, [`Table`] reads and writes them in a [`Transaction`].
//! - [`cluster`]: the embedded cluster underneath, memory nodes and compute nodes in this process.
//!
//! Invariant: everything here works through the engine's and the fabric's public interfaces; a
//! program can do everything that this crate does.
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
/// The laboratory (`tarn-lab`) uses the same estimate before it lays out a simulated cluster.
#[doc(hidden)]
pub mod memory;
mod mistakes;
mod rows;
mod session;

pub use database::{Builder, Tarn};
pub use error::Error;
pub use rows::{Field, PrimaryKey, Record, RecordHandle, Table};
pub use session::Session;
pub use tarn_engine::session::coordinator::Retry;
pub use tarn_engine::session::transaction::{Block, Transaction};
pub use tarn_fabric::clock::Nanos;
pub use tarn_fabric::executor::{Executor, block_on};
pub use tarn_fabric::local::Backing;
pub use tarn_store::ids::{AbortReason, Failure, Resolution, TxnId, UsageError};
pub use tarn_store::schema::{ColumnId, ColumnType, TableSchema};

/// Used only by the code that [`row!`] writes.
#[doc(hidden)]
pub mod __private {
    pub use tarn_engine::transaction::working_set::Handle;
    pub use tarn_store::schema::row::Row;
}

/// The example of the project's README, which is tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
