//! The faults of the environment that a round or a message may meet.
//!
//! Invariant: a [`FabricError`] is never a protocol's verdict (that is an abort) and never our bug
//! (that is a panic). It says that the fabric could not execute a request, or cannot say whether it
//! executed it.

use crate::address::{NodeSlot, Target};
use std::fmt;

/// A verb, round or message that the fabric did not complete. After such an error the outcome of
/// every verb of the round is unknown, unless it was known before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FabricError {
    /// The node does not answer: it died, or the connection to it broke.
    NodeDown(NodeSlot),
    /// This compute node's access was revoked by the memory nodes.
    Fenced,
    /// A verb named bytes outside the node's region.
    OutOfBounds(Target),
    /// A line stayed half-written longer than any live writer could take: its writer was killed.
    TornLine(Target),
    /// The message is larger than the transport carries.
    MessageTooLarge {
        /// Bytes asked for.
        bytes: usize,
        /// Bytes allowed.
        limit_bytes: usize,
    },
    /// Too many calls wait for this node already: nothing was sent.
    Overloaded(NodeSlot),
    /// No reply in the time allowed; the call may or may not have run.
    TimedOut(NodeSlot),
}

impl fmt::Display for FabricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FabricError::NodeDown(node) => write!(f, "node {} does not answer", node.0),
            FabricError::Fenced => write!(f, "this compute node's access was revoked"),
            FabricError::OutOfBounds(target) => write!(f, "{target:?} lies outside its region"),
            FabricError::TornLine(target) => {
                write!(f, "the line at {target:?} was left half-written by a dead writer")
            }
            FabricError::MessageTooLarge { bytes, limit_bytes } => {
                write!(
                    f,
                    "message = {bytes} bytes; allowed: at most {limit_bytes}, the \
                           transport's limit"
                )
            }
            FabricError::Overloaded(node) => {
                write!(f, "too many calls already wait for node {}", node.0)
            }
            FabricError::TimedOut(node) => write!(f, "node {} did not reply in time", node.0),
        }
    }
}

impl std::error::Error for FabricError {}
