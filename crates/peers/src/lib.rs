//! Rivals of the lock service on this machine: Redis, RedLock and etcd, and a bank that runs on any of them.
//!
//! Invariant: a rival that is not installed is skipped with one line. The rivals and FissLock run in turn within one run, so that the
//! machine's load is the same for all.
//!
//! - `resp`, `connection`, `store`: a client of Redis. `etcd`: a client of etcd's gateway. `server`: servers of one measurement.
//! - `locker`: locks as a thread with many clients drives them. `redlock`, `fiss`: the lockers.
//! - `pairs`: lock and unlock. `banking`: transfers under locks. `options`, `report`: both, as a table.

pub mod banking;
pub mod clock;
pub mod connection;
pub mod dice;
pub mod etcd;
#[cfg(test)]
mod fake;
pub mod fiss;
pub mod locker;
pub mod options;
pub mod pairs;
pub mod redlock;
pub mod report;
pub mod resp;
pub mod server;
pub mod store;

pub use options::{Options, OptionsError};
pub use report::{Report, RunError, run};
