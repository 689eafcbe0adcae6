//! Memory that threads have taken: free blocks, discarded records, addresses they remember.
//!
//! Invariant: lists alone. Chunks are claimed, and zeros written, by the engine.

pub mod address_cache;
pub mod heap;
pub mod left_memory;
pub mod record_gc;
