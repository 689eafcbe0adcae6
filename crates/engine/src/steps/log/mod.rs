//! Sends a transaction's log entry to the copies of its log areas.
//!
//! Invariant: at each node the entry precedes the data. The layout and the reading of entries: [`tarn_store::log`].

pub(crate) mod chain;
pub(crate) mod encode;
pub(crate) mod send;
