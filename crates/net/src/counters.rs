//! Counters of a process: what it received and sent, and what it refused.
//!
//! Invariant: they only go up. Each refused datagram or packet is in exactly one of the counters of refusals.

use serde::{Deserialize, Serialize};
use tarn_locks::wire::Malformed;

/// Counters of datagrams and lock packets.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Datagrams that arrived.
    pub datagrams_in: u64,
    /// Datagrams that left.
    pub datagrams_out: u64,
    /// Datagrams that the system did not take.
    pub datagrams_unsent: u64,
    /// Lock packets that arrived.
    pub packets_in: u64,
    /// Lock packets that left.
    pub packets_out: u64,
    /// Acknowledgements among the lock packets that left.
    #[serde(default)]
    pub acknowledgements_out: u64,
    /// Lock packets that left again, because no answer had come.
    #[serde(default)]
    pub resent: u64,
    /// Lock packets for a machine without a known address.
    pub packets_without_address: u64,
    /// Refused datagrams, in the order of [`Malformed::ALL`].
    pub malformed: [u64; 6],
    /// Sealed datagrams from an address that is not their sender's.
    pub strangers: u64,
    /// Lock packets of another view, or of a time without a view.
    pub other_views: u64,
    /// Questions about a lock that does not exist.
    pub out_of_range: u64,
    /// Questions that came before an earlier one of their lane, or long after it.
    pub gaps: u64,
    /// Agents with more waiters than a datagram takes.
    pub too_large: u64,
}

impl Counters {
    /// Counts a refused datagram.
    pub fn refuse(&mut self, malformed: Malformed) {
        let at = Malformed::ALL.iter().position(|it| *it == malformed);
        self.malformed[at.expect("all kinds are in the list")] += 1;
    }

    /// Counters with their names, in a fixed order.
    #[must_use]
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        let mut named = vec![
            ("datagrams in", self.datagrams_in),
            ("datagrams out", self.datagrams_out),
            ("datagrams unsent", self.datagrams_unsent),
            ("packets in", self.packets_in),
            ("packets out", self.packets_out),
            ("acknowledgements out", self.acknowledgements_out),
            ("resent", self.resent),
            ("packets without address", self.packets_without_address),
        ];
        named.extend(Malformed::ALL.iter().zip(self.malformed).map(|(it, n)| (it.name(), n)));
        named.extend([
            ("strangers", self.strangers),
            ("other views", self.other_views),
            ("out of range", self.out_of_range),
            ("gaps", self.gaps),
            ("too large", self.too_large),
        ]);
        named
    }
}
