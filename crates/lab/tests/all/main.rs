//! Contains all integration tests of the laboratory, which form one program.
//!
//! Invariant: no test file depends on another test file, and tests may run at the same time. Each test writes its
//! files to a folder of its own.

mod explore;
mod explore_crashes;
mod found;
mod locks;
mod lotus;
mod reproduce;
mod schedules;
mod timestamps;
mod trace_drawn;
