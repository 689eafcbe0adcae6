//! Memory that threads have taken: free blocks, discarded records, remembered addresses.
//!
//! Invariant: these are lists alone. The engine claims chunks and writes zeros.

pub mod address_cache;
pub mod heap;
pub mod left_memory;
pub mod record_gc;
