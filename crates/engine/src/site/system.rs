//! The protocol of a database, as the storeys below the protocols know it.
//!
//! Invariant: the storeys below ask a protocol for facts alone. Whoever runs transactions has the
//! protocol itself ([`crate::protocol::AnyProtocol`]).

use crate::cluster::info::{Isolation, Needs, ProtocolInfo};
use std::any::Any;

/// See the module's text.
pub trait System: Any + Send + Sync {
    /// What there is to know about it without running it.
    fn info(&self) -> ProtocolInfo;

    /// What this variant guarantees.
    fn isolation(&self) -> Isolation;

    /// The rule that this variant is without and that may be missing in simulations alone.
    fn unsafe_without(&self) -> Option<&'static str>;

    /// What it needs of compute nodes beside threads that run coordinators.
    fn needs(&self) -> Needs;
}
