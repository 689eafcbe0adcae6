//! Snapshots: all rows of a database at one moment, in a file ([`Tarn::save`], [`Tarn::load`]).
//!
//! Invariant: a file under the path that a caller names is a whole snapshot. A save writes another file beside it, and
//! renames this file when all its bytes are on the disk. A load refuses a file of which any byte was changed, added or
//! removed. See docs/design/0023-snapshots.md.

mod contents;
mod error;
mod format;
mod load;
mod save;
mod target;

pub use error::SnapshotError;
pub use save::Saved;
