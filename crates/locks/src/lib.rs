//! Locks that are decided in one place and kept in many: FissLock as pure state machines.
//!
//! Invariant: each function here maps a state and an event to a state and effects. Nothing waits, sends, or asks for the time, so that a
//! simulator, processes on a network, an engine and an exhaustive search drive the same functions.
//!
//! - `value`, `packet`: names, numbers, packets. `rules`: the rules whose absence breaks the published protocol.
//! - `decider`: one entry a lock. `agent`: holders and waiters. `place`: one lock as one machine sees it. `links`: lanes and notices.
//! - `host`: a machine, with all its locks. `recovery`: a new view after deaths. `client`: a host that remembers its requests.
//! - `queue`: lock services that keep queues at servers. `station`: a machine's part in any of the services.
//! - `switch`: the decider as registers of a switch, and its P4 source.
//! - `service`: what callers of every lock service see.
//! - `trace`: lock requests of benchmarks, drawn, recorded and replayed.
//! - `wire`: packets as bytes.
//! - `guard`: fencing tokens at a resource. `model`: the exhaustive search.

pub mod agent;
pub mod client;
pub mod decider;
pub mod guard;
pub mod host;
pub mod links;
pub mod model;
pub mod packet;
pub mod place;
pub mod queue;
pub mod recovery;
pub mod rules;
pub mod service;
pub mod station;
pub mod switch;
pub mod trace;
pub mod value;
pub mod wire;
