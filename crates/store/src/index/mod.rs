//! Indexes find the address of a key's record by one-sided verbs.
//!
//! Invariant: an index never sends a round itself. A lookup is a small state machine that *plans* verbs into the
//! caller's round and *absorbs* their results. So a protocol resolves all keys of a transaction in the same round
//! trips, and adds its own verbs to these rounds. A lookup reports the versions of the index memory that it read. The
//! protocol must validate or lock this memory.

pub mod btree;
pub mod growth;
pub mod hash;
mod locate;
pub mod prints;

pub use locate::{
    GrowthState, IndexView, Place, Ungrown, bin_of, group_of, hash_of, low_bits, state_seen,
};
