//! The tests of the program, in one program.
//!
//! Invariant: no file depends on another or on running alone; a test writes only into a folder of
//! its own.

mod cli;
mod common;
mod explore;
mod independent;
mod inputs;
mod pool;
mod reproduce;
mod scenarios;
mod schedules;
mod sim_cli;
mod swarm;
mod sweep_cli;
mod trace_cli;
