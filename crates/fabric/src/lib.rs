//! The fabric contract: the operations through which Tarn's engine uses the network and remote memory, and the
//! guarantees of these operations.
//!
//! The modules of this crate:
//! - [`address`]: nodes and their incarnations, replica groups, offsets.
//! - [`round`]: one round trip of one-sided verbs, its ordering table, the coordinator's buffer.
//! - [`backend`]: the interface that every fabric implements. [`port`]: one thread's access to a fabric, which the
//!   engine uses.
//! - [`rpc`]: at-most-once calls over datagrams that may be lost, duplicated or reordered.
//! - [`executor`]: runs one thread's coroutines. More modules: [`clock`], [`window`], [`rng`], [`counters`],
//!   [`error`].
//! - [`local`]: the default backend, which uses threads and mapped memory of one machine.
//!
//! Invariant: this crate depends on no other crate of Tarn.
//!
//! ```
//! use tarn_fabric::address::{Address, GroupId, Incarnation, NodeId, NodeSlot};
//! use tarn_fabric::executor::block_on;
//! use tarn_fabric::local::{LocalConfig, LocalFabric};
//! use tarn_fabric::round::Round;
//!
//! let fabric = LocalFabric::new(&LocalConfig { memory_nodes: 1, ..LocalConfig::default() })?;
//! let compute = NodeId { slot: NodeSlot(0), incarnation: Incarnation(1) };
//! let port = fabric.port(compute, 0, 42);
//! let word = Address::new(GroupId(0), 4096).at(NodeSlot(0));
//!
//! let mut round = Round::new();
//! let lock = round.cas(word, 0, 7);
//! let seen = round.read(word, 8);
//! block_on(port.execute(&mut round))?;
//! assert!(round.swapped(lock));
//! assert_eq!(round.word(seen), 7); // an atomic, then a READ: in order
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod address;
pub mod backend;
pub mod clock;
pub mod counters;
pub mod error;
pub mod executor;
pub mod local;
pub mod port;
pub mod rng;
pub mod round;
pub mod rpc;
mod verb;
pub mod window;
