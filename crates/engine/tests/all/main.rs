//! The tests of the engine, in one program.
//!
//! Invariant: no file depends on another or on running alone; what several use is in `common`.

mod common;
mod dropped;
mod dropped_weak;
mod explicit_leases;
mod growth;
mod growth_dies;
mod growth_lotus;
mod growth_weak;
mod hangs;
mod heap;
mod last_writes;
mod lease_ends;
mod lease_manager;
mod lost_owner;
mod lotus;
mod lotus_memory;
mod lotus_near;
mod lotus_torn;
mod measured;
mod memory_nodes;
mod model;
mod motor;
mod near_locks;
mod near_reads;
mod ordered;
mod ordered_corners;
mod ordered_faults;
mod ordered_separators;
mod ordered_walks;
mod planted;
mod races;
mod recovery;
mod rows;
mod rtt_budget;
mod rtt_budget_drtm;
mod rtt_budget_dslr;
mod rtt_budget_lotus;
mod rtt_budget_motor;
mod rtt_budget_occ;
mod rtt_budget_oocc;
mod semantics;
mod tickets;
mod unknown;
mod weak_orders;
