//! A fabric that has only messages, in virtual time and on one thread. A seed decides which datagrams the fabric
//! loses, duplicates, delays and reorders.
//!
//! Invariant: all events depend only on the seed. The fabric may lose or disturb any datagram at any time,
//! independently of other datagrams. A node's incarnation may end, with all its state. The fabric never changes the
//! bytes of a datagram, which arrives whole or not at all. All nodes read the same correct clock.

use rand::{Rng as _, RngExt as _};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::task::Poll;
use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};
use tarn_fabric::backend::{Backend, Caps, Cost, Detached, Endpoint, Posted};
use tarn_fabric::clock::{ClockInterval, Nanos};
use tarn_fabric::error::FabricError;
use tarn_fabric::port::Port;
use tarn_fabric::rng::{Rng, seeded};
use tarn_fabric::round::Round;
use tarn_fabric::window::Drift;

/// The rates at which the network disturbs datagrams.
#[derive(Clone, Copy, Debug)]
pub struct Chaos {
    pub loss_percent: u32,
    pub duplicate_percent: u32,
    pub delay_ns: (u64, u64),
    pub datagram_bytes: usize,
}

impl Chaos {
    /// Returns different rates for every seed.
    pub fn of(seed: u64) -> Chaos {
        let mut rng = seeded(seed, 1);
        Chaos {
            loss_percent: rng.random_range(0..30),
            duplicate_percent: rng.random_range(0..30),
            delay_ns: (500, rng.random_range(1_000..60_000)),
            datagram_bytes: rng.random_range(100..400),
        }
    }

    /// The rates of a network that disturbs no datagram.
    pub const CALM: Chaos = Chaos {
        loss_percent: 0,
        duplicate_percent: 0,
        delay_ns: (1_000, 1_001),
        datagram_bytes: 1500,
    };
}

struct World {
    now: u64,
    rng: Rng,
    chaos: Chaos,
    flights: u64,
    flying: BTreeMap<(u64, u64), (Endpoint, Endpoint, Vec<u8>)>,
    arrived: BTreeMap<Endpoint, VecDeque<(Endpoint, Vec<u8>)>>,
    sent: u64,
}

/// The network between all nodes of a test.
#[derive(Clone)]
pub struct Net(Rc<RefCell<World>>);

impl Net {
    pub fn new(seed: u64, chaos: Chaos) -> Net {
        Net(Rc::new(RefCell::new(World {
            now: 0,
            rng: seeded(seed, 2),
            chaos,
            flights: 0,
            flying: BTreeMap::new(),
            arrived: BTreeMap::new(),
            sent: 0,
        })))
    }

    /// Returns the port of thread 0 of a node. A later incarnation of the node receives the datagrams that are in
    /// flight to the earlier incarnation.
    pub fn port(&self, node: NodeId) -> Port {
        Port::new(Box::new(ChaosBackend { net: self.clone(), node }), 1)
    }

    /// Returns the number of datagrams sent so far. Lost datagrams are counted too.
    pub fn sent(&self) -> u64 {
        self.0.borrow().sent
    }

    pub fn now(&self) -> Nanos {
        Nanos(self.0.borrow().now)
    }

    /// Advances the virtual time, so that datagrams arrive.
    pub fn advance(&self, ns: u64) {
        let world = &mut *self.0.borrow_mut();
        world.now += ns;
        while let Some(entry) = world.flying.first_entry() {
            if entry.key().0 > world.now {
                break;
            }
            let (from, to, bytes) = entry.remove();
            world.arrived.entry(to).or_default().push_back((from, bytes));
        }
    }
}

/// Names an incarnation of a node.
pub const fn node(slot: u16, incarnation: u16) -> NodeId {
    NodeId { slot: NodeSlot(slot), incarnation: Incarnation(incarnation) }
}

struct ChaosBackend {
    net: Net,
    node: NodeId,
}

impl Backend for ChaosBackend {
    fn caps(&self) -> Caps {
        let datagram_bytes_max = self.net.0.borrow().chaos.datagram_bytes;
        Caps { masked_cas: false, datagram_bytes_max, ends_when_dropped: false }
    }

    fn node(&self) -> NodeId {
        self.node
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint { node: self.node.slot, thread: 0 }
    }

    fn post(&self, _: &mut Round) -> Posted {
        unreachable!("this fabric has no memory")
    }

    fn complete(&self, _: &mut Round) -> Poll<Result<(), FabricError>> {
        unreachable!("this fabric has no memory")
    }

    fn abandon(&self, _: &mut Round) {}

    fn post_detached(&self, _: &mut Round) -> Result<Detached, FabricError> {
        unreachable!("this fabric has no memory")
    }

    fn detached(&self, _: Detached) -> Poll<Result<(), FabricError>> {
        unreachable!("this fabric has no memory")
    }

    fn revoke(&self, _: NodeId, _: NodeSlot) -> Result<Detached, FabricError> {
        unreachable!("this fabric has no memory")
    }

    fn now(&self) -> Nanos {
        self.net.now()
    }

    fn clock(&self) -> ClockInterval {
        let now = self.now();
        ClockInterval { earliest: now, latest: now }
    }

    fn drift(&self) -> Drift {
        Drift::ONE_CLOCK
    }

    fn charge(&self, _: Cost) {}

    fn send(&self, to: Endpoint, bytes: &[u8]) -> Result<(), FabricError> {
        let world = &mut *self.net.0.borrow_mut();
        let (bytes_len, limit_bytes) = (bytes.len(), world.chaos.datagram_bytes);
        if bytes_len > limit_bytes {
            return Err(FabricError::MessageTooLarge { bytes: bytes_len, limit_bytes });
        }
        world.sent += 1;
        let copies =
            if world.rng.random_range(0..100) < world.chaos.duplicate_percent { 2 } else { 1 };
        for _ in 0..copies {
            if world.rng.random_range(0..100) < world.chaos.loss_percent {
                continue;
            }
            let (least, most) = world.chaos.delay_ns;
            let at = world.now + world.rng.random_range(least..most);
            world.flights += 1;
            world.flying.insert((at, world.flights), (self.endpoint(), to, bytes.to_vec()));
        }
        Ok(())
    }

    fn receive(&self, budget: usize, sink: &mut dyn FnMut(Endpoint, &[u8])) -> usize {
        let mut taken = 0;
        while taken < budget {
            let arrived = &mut self.net.0.borrow_mut().arrived;
            let Some((from, bytes)) =
                arrived.get_mut(&self.endpoint()).and_then(VecDeque::pop_front)
            else {
                break;
            };
            sink(from, &bytes);
            taken += 1;
        }
        taken
    }
}

/// Returns a text of `len` bytes, which is different for every `id`.
pub fn text(id: u64, len: usize) -> Vec<u8> {
    let mut bytes = id.to_le_bytes().to_vec();
    bytes.resize(len.max(8), 0);
    let mut rng = seeded(id, 3);
    rng.fill_bytes(&mut bytes[8..]);
    bytes
}

/// Returns the id of a [`text`], and checks the text's bytes.
pub fn id_of(bytes: &[u8]) -> u64 {
    let id = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(bytes, text(id, bytes.len()), "not what was sent");
    id
}
