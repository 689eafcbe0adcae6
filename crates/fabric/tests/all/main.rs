//! The tests of the contract and of its local backend, in one program; the models are `loom.rs`.
//!
//! Invariant: no file depends on another or on running alone; allocations are counted thread by thread.

mod common;
mod local;
mod near;
mod rpc_chaos;
mod rpc_session;

use tarn_fabric::local::probe::CountingAllocator;

/// For the tests that a warm path allocates nothing.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
