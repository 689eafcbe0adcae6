//! Memory that threads own: free blocks, discarded records, cached addresses.
//!
//! Invariant: these modules only keep lists. The engine claims chunks and writes zeros.

pub mod address_cache;
pub mod heap;
pub mod left_memory;
pub mod record_gc;
