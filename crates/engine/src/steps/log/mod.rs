//! Sends a transaction's log entry to the replicas of its log areas.
//!
//! Invariant: at each node the log entry arrives before the transaction's data. [`tarn_store::log`] describes the
//! layout of log entries, and reads these entries.

pub(crate) mod chain;
pub(crate) mod encode;
pub(crate) mod send;
