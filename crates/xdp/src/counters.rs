//! The counters of a program.
//!
//! Invariant: every datagram that is dropped and every question that is not answered is counted once, under
//! its reason.

/// A counter of a program. The order is that of `enum counter` in the program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Counter {
    /// Questions that were answered, again or for the first time.
    Answered,
    /// Datagrams shorter than their headers or their packets.
    Short,
    /// Datagrams longer than their packets.
    Long,
    /// Datagrams of another protocol or version.
    Version,
    /// Datagrams without the cluster's seal.
    Seal,
    /// Datagrams for a machine.
    Addressee,
    /// Datagrams with a packet that is no question.
    Packet,
    /// Datagrams above [`crate::DATAGRAM_BYTES_MAX`].
    Oversize,
    /// Questions of another view.
    View,
    /// Questions about a lock that the decider does not have.
    Lock,
    /// Questions of a machine or a thread without a lane, or for a next holder on such a machine.
    Lane,
    /// Questions whose predecessors on their lane are missing, or that are older than the window.
    Gap,
    /// Questions that were dropped because their lock's word kept changing.
    Contended,
}

impl Counter {
    /// All counters.
    pub const ALL: [Counter; 13] = [
        Counter::Answered,
        Counter::Short,
        Counter::Long,
        Counter::Version,
        Counter::Seal,
        Counter::Addressee,
        Counter::Packet,
        Counter::Oversize,
        Counter::View,
        Counter::Lock,
        Counter::Lane,
        Counter::Gap,
        Counter::Contended,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Counter::Answered => "answered",
            Counter::Short => "short",
            Counter::Long => "long",
            Counter::Version => "version",
            Counter::Seal => "seal",
            Counter::Addressee => "addressee",
            Counter::Packet => "packet",
            Counter::Oversize => "oversize",
            Counter::View => "view",
            Counter::Lock => "lock",
            Counter::Lane => "lane",
            Counter::Gap => "gap",
            Counter::Contended => "contended",
        }
    }
}
