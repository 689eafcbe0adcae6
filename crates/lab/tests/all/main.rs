//! The tests of the laboratory, in one program.
//!
//! Invariant: no file depends on another or on running alone; what a test writes lies in a folder of its own.

mod explore;
mod explore_crashes;
mod found;
mod locks;
mod lotus;
mod reproduce;
mod schedules;
mod timestamps;
mod trace_drawn;
