//! The tests of the program and of the library that embeds it, in one program.
//!
//! Invariant: no file depends on another or on running alone; what a test writes lies in a folder of its own.

mod cli;
mod common;
mod configurations;
mod ends;
mod executors;
mod explore;
mod explore_crashes;
mod for_ever;
mod found;
mod independent;
mod inputs;
mod locks;
mod lotus;
mod pool;
mod reproduce;
mod scenarios;
mod schedules;
mod sessions;
mod sim_cli;
mod space;
mod swarm;
mod sweep_cli;
mod timestamps;
mod trace_cli;
mod trace_drawn;
