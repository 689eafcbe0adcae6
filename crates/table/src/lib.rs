//! DLHT: a concurrent hash table of cache lines, with prefetched batches, and growth beside all operations.
//!
//! Invariant: the crate depends on no other crate of ours, has no global state, and starts no thread.
//!
//! ```
//! use tarn_table::Table;
//!
//! let table = Table::with_capacity(1000);
//! std::thread::scope(|scope| {
//!     for thread in 0..2 {
//!         let table = &table;
//!         scope.spawn(move || (0..500).for_each(|at| table.insert(2 * at + thread, at).unwrap()));
//!     }
//! });
//! assert_eq!(table.get(&7), Some(3));
//!
//! // Many keys at a time: their cache lines are loaded at the same time.
//! let values: Vec<_> = table.get_stream(0..4).collect();
//! assert_eq!(values, [(0, Some(0)), (1, Some(0)), (2, Some(1)), (3, Some(1))]);
//! ```
//!
//! - `Table`: `get`, `insert`, `insert_or_replace`, `remove`, `update`, `compare_exchange`, `lock`, and more.
//! - `Table::batch`, `execute`, `get_many`, `get_stream`: many operations, whose bins are loaded at the same time.
//! - `KeyLock`: a locked key of a transaction. `Iter`: a weakly consistent walk.
//!
//! The pages `docs/table.md` (layout, guarantees, when another table is better) and `docs/table-from-dashmap.md` are in
//! the repository. The design and its differences from the paper are in `docs/design/0022-hash-table.md`.
//!
//! Map of the files: `header` and `bin` are the bytes; `look`, `raw` and `growth` are the algorithm on words; `word`
//! and `probe` turn keys and values into words, and compare them; `table`, `entry`, `batch`, `lock` and `iter` are the
//! surface.
//!
//! Paper: Katsarakis, Gavrielatos, Ntarmos, "DLHT: A Non-blocking Resizable Hashtable with Fast Deletes and
//! Memory-awareness", HPDC 2024.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests may start real threads"))]

mod bare;
mod batch;
mod bin;
mod entry;
mod error;
mod growth;
mod header;
mod index;
mod iter;
mod lines;
mod lock;
mod look;
#[cfg(not(loom))]
mod memory;
#[cfg(loom)]
pub mod modelled;
#[cfg(feature = "rayon")]
mod parallel;
mod plant;
mod prefetch;
mod probe;
mod raw;
#[cfg(feature = "serde")]
mod serial;
mod sync;
mod table;
mod traits;
mod word;

pub use batch::{BATCH_AHEAD, Batch, GetStream, Request};
pub use error::{Reason, Refused};
pub use iter::Iter;
pub use lock::KeyLock;
pub use table::{DefaultHash, Table};

/// Compiles the code of the pages.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/table.md")]
    struct Layout;
    #[doc = include_str!("../../../docs/table-from-dashmap.md")]
    struct FromDashmap;
}

#[cfg(test)]
mod tests;
