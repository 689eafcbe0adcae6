//! The tests of the `tarn` program, all in one test program.
//!
//! Invariant: no test file depends on another file, or requires that it runs alone. A test writes only into a folder
//! of its own.

mod cli;
mod common;
mod explore;
mod independent;
mod inputs;
mod lock_trace;
mod pool;
mod reproduce;
mod scenarios;
mod schedules;
mod sim_cli;
mod swarm;
mod sweep_cli;
mod trace_cli;
