//! A simulated cluster, which keeps the fabric contract in deterministic virtual time.
//!
//! Map:
//! - [`fabric`]: the cluster, as its user sees it. [`config`]: the shape and behaviour of the cluster.
//! - [`scheduler`]: runs coroutines. The scheduler polls a coroutine when the event that the coroutine
//!   waits for has happened.
//! - [`service`]: nodes that answer calls by handlers, on cores of their own.
//! - [`switch`]: switches that run a program on packets, half-way between the nodes.
//! - [`profile`]: the costs of hardware. Each constant of a profile names its source.
//! - [`memory`]: simulated memory, which is allocated on first use. Replicas share a line of memory
//!   until one replica writes the line.
//! - [`explore`]: the same cluster without time. The module executes a program in every order of
//!   events.
//! - `dice`: the delays of random mode. `clocks`: the clocks of nodes.
//! - [`queue`]: the events that have not happened yet. [`usage`]: how long each part of the hardware
//!   was busy. [`observe`]: receivers of events.
//!
//! The path of a round through the modules: `post` is the requester's processor and NIC. In timed mode
//! `respond` is the responder's NIC. In random mode `pieces` executes the round line by line. `world`
//! completes the round, and `turns` decides which coroutine runs next.
//!
//! Invariant: the simulation uses no wall clock, no thread, and no iteration order of a hash table. A
//! run with the same seed has the same events in the same order on every machine.
//!
//! ```
//! use tarn_fabric::address::{Address, GroupId, Incarnation, NodeId, NodeSlot};
//! use tarn_fabric::round::Round;
//! use tarn_sim::config::{Mode, SimConfig};
//! use tarn_sim::fabric::SimFabric;
//! use tarn_sim::profile::Profile;
//! use tarn_sim::scheduler::Scheduler;
//!
//! let fabric = SimFabric::new(&SimConfig {
//!     memory_nodes: 1,
//!     replicas: 1,
//!     compute_nodes: 1,
//!     group_bytes: 1 << 30,
//!     profile: Profile::load("cx3-56g")?,
//!     mode: Mode::Timed,
//!     seed: 42,
//! })?;
//! let port = fabric.port(NodeId { slot: NodeSlot(0), incarnation: Incarnation(1) }, 0, 42);
//! let word = Address::new(GroupId(0), 4096).at(NodeSlot(0));
//! let taken = Scheduler::new(&fabric).block_on(&port, {
//!     let port = port.clone();
//!     async move {
//!         let mut round = Round::new();
//!         let seen = round.read(word, 8);
//!         let start = port.now();
//!         port.execute(&mut round).await.expect("the node lives");
//!         assert_eq!(round.word(seen), 0);
//!         port.now() - start
//!     }
//! });
//! assert!((1_800..2_050).contains(&taken.0), "a READ takes 1.92 µs, not {taken}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_code)]

mod backend;
pub mod bell;
mod clocks;
pub mod config;
mod costs;
mod dice;
mod doorbells;
mod effects;
pub mod explore;
pub mod fabric;
mod flight;
pub mod memory;
mod messages;
mod nic;
pub mod observe;
mod pieces;
mod post;
mod prefetch;
pub mod profile;
pub mod queue;
mod respond;
mod revoke;
pub mod scheduler;
pub mod service;
mod slab;
pub mod switch;
mod threads;
mod turns;
pub mod usage;
mod world;
