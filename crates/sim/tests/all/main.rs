//! The tests of the simulator, in one program.
//!
//! Invariant: each test file works without the other files, and its tests may run at the same time as
//! the tests of other files. Shared code is in `common`.

mod common;
mod dropped;
mod explore;
mod explore_found;
mod explore_time;
mod nic;
mod observe;
mod random;
mod revoke;
mod service;
mod switch;
mod timed;
mod windows;
