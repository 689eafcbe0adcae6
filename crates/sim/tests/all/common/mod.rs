//! Small clusters for the tests.

pub mod cases;
pub mod timed;
pub mod toy;

use tarn_fabric::address::{Address, GroupId, Incarnation, NodeId, NodeSlot, Target};
use tarn_fabric::port::Port;
use tarn_sim::config::{Mode, SimConfig};
use tarn_sim::fabric::SimFabric;
use tarn_sim::profile::Profile;

pub fn config(profile: &str, mode: Mode, seed: u64) -> SimConfig {
    SimConfig {
        memory_nodes: 3,
        replicas: 2,
        compute_nodes: 4,
        group_bytes: 1 << 20,
        profile: Profile::load(profile).unwrap(),
        mode,
        seed,
    }
}

pub fn fabric(profile: &str, mode: Mode, seed: u64) -> SimFabric {
    SimFabric::new(&config(profile, mode, seed)).unwrap()
}

pub fn compute(slot: u16) -> NodeId {
    NodeId { slot: NodeSlot(slot), incarnation: Incarnation(1) }
}

pub fn port(fabric: &SimFabric, slot: u16, thread: u16) -> Port {
    fabric.port(compute(slot), thread, 9)
}

/// Returns the address of a byte of group 0 at the group's primary.
pub fn at(offset_bytes: u64) -> Target {
    Address::new(GroupId(0), offset_bytes).at(NodeSlot(0))
}
