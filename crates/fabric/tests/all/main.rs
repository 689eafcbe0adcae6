//! The tests of the fabric contract and of the local backend, in one program. The models of the backend are in
//! `loom.rs`.
//!
//! Invariant: the tests of one file depend on no other file, and may run beside other tests. Allocations are counted
//! for each thread.

mod common;
mod local;
mod near;
mod rpc_chaos;
mod rpc_session;
mod wakers;
mod windows;

use tarn_fabric::local::probe::CountingAllocator;

/// Counts allocations, so that tests can check that a path makes no allocations after its first run.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Returns whether a test that needs two threads at the same time must be skipped, and prints a notice if so.
fn one_core() -> bool {
    let one = std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1);
    if one {
        println!("skipped: needs two threads at once, and there is one core");
    }
    one
}
