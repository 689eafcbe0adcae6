//! The tests of the simulator, in one program.
//!
//! Invariant: no file depends on another or on running alone; shared code is in `common`.

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
mod timed;
mod windows;
