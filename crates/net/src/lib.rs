//! The lock service on a real network: the decider's process, the agent in each client, their authority, leases and recovery.
//!
//! Invariant: the decisions are those of the crate `locks`; this crate carries packets, keeps time, and says which machines live.
//!
//! - [`config`]: one file for all processes. [`authority`]: the folder that says which view is in force.
//! - [`udp`], [`outbox`], [`counters`]: datagrams. [`control`]: the channel for joins, leases and views.
//! - [`decider`]: the process that decides.
//! - [`lock`]: the client, with an agent inside.
//! - [`program`]: the commands of `tarn lock`. [`mod@bench`]: their cost.

pub mod authority;
pub mod bench;
pub mod config;
pub mod control;
pub mod counters;
pub mod decider;
pub mod faults;
pub mod lock;
pub mod os;
pub mod outbox;
pub mod program;
mod spin;
pub mod udp;
