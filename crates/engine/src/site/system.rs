//! The protocol of a database, as the storeys below the protocols know it.
//!
//! Invariant: the storeys below ask a protocol only for facts. Code that runs transactions has the protocol itself
//! ([`crate::protocol::AnyProtocol`]).

use crate::cluster::info::{Isolation, Needs, ProtocolInfo};
use std::any::Any;

/// The facts about a protocol; see the module's text.
pub trait System: Any + Send + Sync {
    /// The constants that describe the protocol.
    fn info(&self) -> ProtocolInfo;

    /// The isolation that this variant guarantees.
    fn isolation(&self) -> Isolation;

    /// The rule that this variant drops although only simulations may drop it, if there is one.
    fn unsafe_without(&self) -> Option<&'static str>;

    /// The services that the protocol needs of compute nodes, beside threads that run coordinators.
    fn needs(&self) -> Needs;
}
