//! Leases that nobody asks for: for how long after it began to read a transaction may trust what it read, because
//! every writer waits as long between its locks and its data.
//!
//! Map: [`LeaseWord`] is what a compute node knows of it, [`Drift`] how far clocks are believed, [`LeaseOfRecord`] how its length changes
//! while transactions run, which the membership service sees to; [`NodeLease`] is a node's copy of the word. A protocol asks its port ([`tarn_fabric::port::Port::close_window`]), which has clocks; the functions here are the same rule
//! as arithmetic on two readings. How long it is to be: threads count what [`Delays`] are, `manager` gathers them in [`crate::services::lease_desk::LeaseDesk`] or by
//! calls, and asks for what [`LeasePolicy`] decides; `monitor` finds clocks that run off. Under explicit leases [`crate::services::readers`] are counted, and
//! a writer asks (`explicit`) whether there is anybody to wait for.
//!
//! Invariant: *no reader's lease is longer than any writer's wait*, whichever nodes they are of, in every moment of a
//! change. With it the argument is: a reader that found a record unlocked did so after it took its first
//! time, so the lock came later, its acknowledgement later still, and the first data a whole wait after that. What is asked of
//! both sides, and by whom:
//! 1. The reader takes its word, then its first time, then posts; after the last completion it takes its second time, then its
//!    word again. It is in lease if the words are the same and so little time has passed ([`in_lease`]).
//! 2. The writer takes its time after the acknowledgement of its *last* lock, and then its word; its first data are posted no
//!    earlier than [`may_write_at`].
//! 3. Times are one thread's clock, and are never compared with another's.
//!
//! After the implicit leases of OOCC, where leases are loaded when a transaction begins; one that is slow may then
//! hold a lease that is no longer waited for (docs/protocols/oocc.md).

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
