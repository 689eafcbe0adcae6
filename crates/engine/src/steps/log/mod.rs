//! How a transaction's log entry comes to the copies of its areas.
//!
//! Invariant: at each node the entry precedes the data. How entries lie and are read: [`tarn_store::log`].

pub(crate) mod chain;
pub(crate) mod encode;
pub(crate) mod send;
