//! The tests of the laboratory, in one program.
//!
//! Invariant: no test file depends on another file or on running alone. Each test writes its files
//! to a folder of its own.

mod explore;
mod explore_crashes;
mod found;
mod locks;
mod lotus;
mod reproduce;
mod schedules;
mod timestamps;
mod trace_drawn;
