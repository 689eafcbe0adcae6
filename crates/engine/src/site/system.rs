//! The protocol of a database, as modules see it that are below the protocols in the list of layers.
//!
//! Invariant: modules below the protocols only read facts about a protocol. Code that runs transactions uses the
//! protocol itself ([`crate::protocol::AnyProtocol`]).

use crate::cluster::info::{Isolation, Needs, ProtocolInfo};
use std::any::Any;

/// The facts about a protocol; see the module's text.
pub trait System: Any + Send + Sync {
    /// The constants that describe the protocol.
    fn info(&self) -> ProtocolInfo;

    /// The isolation that this variant guarantees.
    fn isolation(&self) -> Isolation;

    /// The name of a rule that this variant turns off although only simulations may turn it off. `None` if there is
    /// no such rule.
    fn unsafe_without(&self) -> Option<&'static str>;

    /// The services that the protocol needs from compute nodes, in addition to threads that run coordinators.
    fn needs(&self) -> Needs;
}
