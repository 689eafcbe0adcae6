//! The protocol of a database, as the modules below the protocols know it.
//!
//! Invariant: the modules below the protocols ask a protocol only for facts. Code that runs transactions has the
//! protocol itself ([`crate::protocol::AnyProtocol`]).

use crate::cluster::info::{Isolation, Needs, ProtocolInfo};
use std::any::Any;

/// The facts about a protocol; see the module's text.
pub trait System: Any + Send + Sync {
    /// The constants that describe the protocol.
    fn info(&self) -> ProtocolInfo;

    /// The isolation that this variant guarantees.
    fn isolation(&self) -> Isolation;

    /// The rule that this variant drops although only simulations may drop the rule, if there is one.
    fn unsafe_without(&self) -> Option<&'static str>;

    /// The services that the protocol needs from compute nodes, in addition to threads that run coordinators.
    fn needs(&self) -> Needs;
}
