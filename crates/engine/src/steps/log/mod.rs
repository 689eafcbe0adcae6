//! Sends a transaction's log entry to the replicas of its log areas.
//!
//! Invariant: at each node the log entry arrives before the data. [`tarn_store::log`] describes the layout of entries
//! and reads them.

pub(crate) mod chain;
pub(crate) mod encode;
pub(crate) mod send;
