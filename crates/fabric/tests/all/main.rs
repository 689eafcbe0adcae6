//! The tests of the contract and of its local backend, in one program; the models are `loom.rs`.
//!
//! Invariant: no file depends on another or on running alone; allocations are counted thread by thread.

mod common;
mod local;
mod near;
mod rpc_chaos;
mod rpc_session;
mod wakers;
mod windows;

use tarn_fabric::local::probe::CountingAllocator;

/// Counts allocations, for the tests that a warm path makes none.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Returns whether a test that needs two threads at once has to be left out, and prints it.
fn one_core() -> bool {
    let one = std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1);
    if one {
        println!("skipped: needs two threads at once, and there is one core");
    }
    one
}
