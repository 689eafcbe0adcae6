//! A bad network, for tests: datagrams that are lost, repeated and overtaken.
//!
//! Invariant: the order of faults follows from the seed. No file of configuration can ask for them.

use crate::os::Address;
use std::sync::Mutex;

/// How bad a network is. Each share is of 1,000 datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadNetwork {
    /// Datagrams that are lost.
    pub lost: u32,
    /// Datagrams that come twice.
    pub repeated: u32,
    /// Datagrams that later ones overtake.
    pub overtaken: u32,
    /// The seed of the faults.
    pub seed: u64,
}

/// The faults of one socket.
#[derive(Debug)]
pub struct Faults {
    network: BadNetwork,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    random: u64,
    held: Vec<(Address, Vec<u8>)>,
}

impl Faults {
    /// Faults of a socket; `salt` makes the sockets of a cluster differ.
    #[must_use]
    pub fn new(network: BadNetwork, salt: u64) -> Faults {
        let random = (network.seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1;
        Faults { network, state: Mutex::new(State { random, held: Vec::new() }) }
    }

    /// Hands the datagrams on that the network does not lose.
    pub(crate) fn pass(
        &self,
        datagrams: &[(Address, &[u8])],
        mut send: impl FnMut(&[(Address, &[u8])]) -> usize,
    ) {
        let mut state = self.state.lock().expect("no thread panics with the faults locked");
        let BadNetwork { lost, repeated, overtaken, .. } = self.network;
        for (to, bytes) in datagrams {
            let draw = (state.next() % 1_000) as u32;
            let earlier = std::mem::take(&mut state.held);
            if draw < lost {
                state.held = earlier;
                continue;
            }
            if draw < lost + overtaken {
                state.held = earlier;
                state.held.push((*to, bytes.to_vec()));
                continue;
            }
            send(&[(*to, bytes)]);
            if draw < lost + overtaken + repeated {
                send(&[(*to, bytes)]);
            }
            for (to, bytes) in earlier {
                send(&[(to, &bytes)]);
            }
        }
    }
}

impl State {
    /// Xorshift, after Marsaglia, "Xorshift RNGs", Journal of Statistical Software, 2003.
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}
