//! Implicit leases: a transaction trusts its reads for a fixed time after it began to read, without a message.
//! Implicit leases are sound because every writer waits for an equal time between its locks and its data.
//!
//! Map of the modules: [`LeaseWord`] is a compute node's knowledge of the lease. [`Drift`] is the believed limit of
//! clock drift. [`LeaseOfRecord`] changes the length of leases while transactions run; the membership service drives
//! it. [`NodeLease`] is a node's copy of the lease word. A protocol calls its port
//! ([`tarn_fabric::port::Port::close_window`]), which has clocks. The functions of this module express the same rule
//! as arithmetic on two readings of a clock.
//!
//! The length of leases is chosen as follows. Threads count [`Delays`]. The module `manager` gathers these counts
//! from [`crate::services::lease_desk::LeaseDesk`] or by calls, and requests the length that [`LeasePolicy`] decides
//! on. The module `monitor` finds clocks that drift too far. Under explicit leases, [`crate::services::readers`]
//! counts readers. A writer then asks other nodes (`explicit`) whether it must wait for a reader.
//!
//! Invariant: *no reader's lease is longer than any writer's wait*, on whichever nodes the reader and the writer run.
//! The invariant holds at every moment, even while the lease length changes. The safety argument relies on this
//! invariant. Suppose that a reader finds a record unlocked after it took its first time. Then any writer locked this
//! record only after the reader's first time, and the memory node acknowledged the lock later still. The writer posts
//! its first data a whole wait after the acknowledgement. Both the reader and the writer have duties:
//! 1. The reader loads the lease word, then takes its first time, then posts its verbs. After the last completion the
//!    reader takes its second time, and then loads the lease word again. The reader is in lease if the two words are
//!    equal and little enough time has passed ([`in_lease`]).
//! 2. The writer takes its time after the acknowledgement of its *last* lock, and then loads the lease word. The
//!    writer posts its first data no earlier than [`may_write_at`].
//! 3. All times of a transaction come from one thread's clock. Times of different threads are never compared.
//!
//! The design follows the implicit leases of OOCC. In OOCC a transaction loads its lease only when it begins; a slow
//! transaction may then rely on a lease for which writers no longer wait (docs/protocols/oocc.md).

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
