//! Packets that are ready to leave, packed into as few datagrams as possible.
//!
//! Invariant: packets for one peer leave in the order in which they were put in. A datagram has one view: the outbox is flushed or cleared
//! before the view changes.

use crate::counters::Counters;
use crate::os::{self, Address};
use crate::udp::Socket;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::net::SocketAddr;
use tarn_locks::host::LockHasher;
use tarn_locks::value::{Machine, View};
use tarn_locks::wire::{Datagram, Key};

/// The decider as the end of a datagram.
pub const DECIDER: Machine = Machine(0);

/// A peer, and the datagram that is being filled for it.
#[derive(Debug)]
struct Peer {
    machine: Machine,
    at: SocketAddr,
    address: Address,
    datagram: Datagram,
}

/// An outbox.
#[derive(Debug)]
pub struct Outbox {
    from: Machine,
    view: View,
    key: Key,
    peers: Vec<Peer>,
    places: HashMap<u32, usize, BuildHasherDefault<LockHasher>>,
    /// Places of peers with a datagram that has packets.
    begun: Vec<usize>,
    full: Vec<(Address, Datagram)>,
    spare: Vec<Datagram>,
}

impl Outbox {
    /// An outbox without peers.
    #[must_use]
    pub fn new(from: Machine, view: View, key: Key) -> Outbox {
        Outbox {
            from,
            view,
            key,
            peers: Vec::new(),
            places: HashMap::default(),
            begun: Vec::new(),
            full: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Sets the address of a peer.
    pub fn set_peer(&mut self, machine: Machine, at: SocketAddr) {
        let address = os::address(at);
        if let Some(&place) = self.places.get(&u32::from(machine.0)) {
            (self.peers[place].at, self.peers[place].address) = (at, address);
            return;
        }
        let datagram = Datagram::new(self.view, self.from, machine);
        self.places.insert(u32::from(machine.0), self.peers.len());
        self.peers.push(Peer { machine, at, address, datagram });
    }

    /// Keeps only the peers for which `keeps` holds. What waits for the others is dropped.
    pub fn retain(&mut self, keeps: impl Fn(Machine) -> bool) {
        self.clear();
        self.peers.retain(|peer| keeps(peer.machine));
        let machines = self.peers.iter().enumerate();
        self.places = machines.map(|(at, peer)| (u32::from(peer.machine.0), at)).collect();
    }

    /// The address of a peer.
    #[must_use]
    pub fn peer(&self, machine: Machine) -> Option<SocketAddr> {
        self.places.get(&u32::from(machine.0)).map(|&place| self.peers[place].at)
    }

    /// Begins to speak as `from` in `view`. What waits is dropped.
    pub fn begin(&mut self, from: Machine, view: View) {
        self.clear();
        (self.from, self.view) = (from, view);
        for peer in &mut self.peers {
            peer.datagram.begin(view, from, peer.machine);
        }
    }

    fn clear(&mut self) {
        self.full.clear();
        for place in std::mem::take(&mut self.begun) {
            let peer = &mut self.peers[place];
            peer.datagram.begin(self.view, self.from, peer.machine);
        }
    }

    /// Whether no packet waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.begun.is_empty() && self.full.is_empty()
    }

    /// Puts a packet in, with its number of waiters.
    pub fn put(
        &mut self,
        to: Machine,
        waiters: usize,
        counters: &mut Counters,
        add: impl FnOnce(&mut Datagram),
    ) {
        let Some(&place) = self.places.get(&u32::from(to.0)) else {
            counters.packets_without_address += 1;
            return;
        };
        let peer = &mut self.peers[place];
        if !peer.datagram.has_room(waiters) {
            if peer.datagram.count() == 0 {
                counters.too_large += 1;
                return;
            }
            let mut next = match self.spare.pop() {
                Some(mut spare) => {
                    spare.begin(self.view, self.from, to);
                    spare
                }
                None => Datagram::new(self.view, self.from, to),
            };
            std::mem::swap(&mut peer.datagram, &mut next);
            self.full.push((peer.address, next));
            self.begun.retain(|it| *it != place);
            if !peer.datagram.has_room(waiters) {
                counters.too_large += 1;
                return;
            }
        }
        if peer.datagram.count() == 0 {
            self.begun.push(place);
        }
        add(&mut peer.datagram);
        counters.packets_out += 1;
    }

    /// Sends everything.
    pub fn flush(&mut self, socket: &Socket, counters: &mut Counters) {
        if self.is_empty() {
            return;
        }
        let Outbox { key, peers, begun, full, .. } = self;
        let total = full.len() + begun.len();
        let sent = if let (true, [place]) = (full.is_empty(), &begun[..]) {
            let peer = &mut peers[*place];
            socket.send(&[(peer.address, peer.datagram.seal(key))])
        } else {
            full.iter_mut().for_each(|(_, datagram)| _ = datagram.seal(key));
            begun.iter().for_each(|place| _ = peers[*place].datagram.seal(key));
            let parts = full.iter().map(|(to, datagram)| (*to, datagram.bytes()));
            let rest =
                begun.iter().map(|&place| (peers[place].address, peers[place].datagram.bytes()));
            socket.send(&parts.chain(rest).collect::<Vec<_>>())
        };
        counters.datagrams_out += sent as u64;
        counters.datagrams_unsent += (total - sent.min(total)) as u64;
        self.spare.extend(self.full.drain(..).map(|(_, datagram)| datagram));
        self.clear();
    }
}
