//! The faults of the environment that can make a round or a message fail.
//!
//! Invariant: a [`FabricError`] is never a protocol's decision, because a protocol's decision to stop a transaction
//! is an abort. A [`FabricError`] is also never a bug of Tarn, because a bug is a panic. The error says that the
//! fabric could not execute a request, or that the fabric does not know whether the request was executed.

use crate::address::{NodeSlot, Target};
use std::fmt;

/// A verb, round or message that the fabric did not complete. After such an error, the caller does not know which
/// verbs of the round were executed, unless it knew before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FabricError {
    /// The node does not answer, because it died or the connection to it broke.
    NodeDown(NodeSlot),
    /// The memory nodes have revoked this compute node's access.
    Fenced,
    /// A verb accessed bytes outside the memory node's region.
    OutOfBounds(Target),
    /// A line stayed half-written for longer than a live writer takes, so its writer was killed.
    TornLine(Target),
    /// The message is larger than the maximum that the transport allows.
    MessageTooLarge {
        /// The number of bytes of the message.
        bytes: usize,
        /// The maximum number of bytes that is allowed.
        limit_bytes: usize,
    },
    /// Too many calls to this node wait already, so the new call was not sent.
    Overloaded(NodeSlot),
    /// No reply has arrived before the deadline. The call may or may not have been executed.
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
