//! Implicit leases: a transaction trusts its reads for a fixed time after it began to read, without a message. That is
//! sound because every writer waits as long between its locks and its data.
//!
//! Map: [`LeaseWord`] is a compute node's knowledge of the lease. [`Drift`] says how far clocks are believed.
//! [`LeaseOfRecord`] changes the length while transactions run; the membership service drives it. [`NodeLease`] is a
//! node's copy of the word. A protocol asks its port ([`tarn_fabric::port::Port::close_window`]), which has clocks; the
//! functions here are the same rule as arithmetic on two readings of a clock.
//!
//! The length is chosen as follows. Threads count [`Delays`]. `manager` gathers them in
//! [`crate::services::lease_desk::LeaseDesk`] or by calls, and asks for the length that [`LeasePolicy`] decides on.
//! `monitor` finds clocks that run off. Under explicit leases, [`crate::services::readers`] are counted, and a writer
//! asks (`explicit`) whether there is a reader to wait for.
//!
//! Invariant: *no reader's lease is longer than any writer's wait*, on whichever nodes the two are, at every moment of
//! a change. The argument rests on it. A reader that found a record unlocked did so after it took its first time. So
//! the lock came later, its acknowledgement later still, and the first data a whole wait after that. Both sides have
//! duties:
//! 1. The reader takes its word, then its first time, then posts. After the last completion it takes its second time,
//!    then its word again. It is in lease if the words are the same and little enough time has passed ([`in_lease`]).
//! 2. The writer takes its time after the acknowledgement of its *last* lock, and then its word. It posts its first
//!    data no earlier than [`may_write_at`].
//! 3. Times come from one thread's clock. They are never compared with another thread's.
//!
//! After the implicit leases of OOCC. There a transaction loads its lease when it begins; a slow transaction may then
//! hold a lease that writers no longer wait for (docs/protocols/oocc.md).

mod delays;
mod node;
mod of_record;
mod policy;
#[cfg(test)]
mod tests;
mod word;

pub use delays::{Delays, SAMPLE, Spent, Stage, ThreadDelays};
pub use node::NodeLease;
pub use of_record::{LeaseOfRecord, NotNow};
pub use policy::LeasePolicy;
pub use tarn_fabric::window::Drift;
pub use word::{LEASE_NS_MAX, LeaseWord, in_lease, may_write_at};
