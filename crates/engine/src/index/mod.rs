//! What transactions do to hash indexes: blocks for new records, records that move, bytes that change.
//!
//! Invariant: bytes of an index change only under the lock of their directory record, or of the index header. How indexes lie and are
//! searched: [`tarn_store::index`].

pub(crate) mod changes;
pub(crate) mod recheck;
pub mod relocate;
pub(crate) mod room;
