//! The protocols that a test runs under.
//!
//! Invariant: a protocol that is left out is printed.

use tarn_engine::cluster::info::{ProtocolCaps, ProtocolInfo};
use tarn_engine::protocol::ALL;

/// Returns the protocols that promise something, according to their own description. Prints those
/// that are left out.
pub fn each_that(
    promises: &str,
    has: impl Fn(&ProtocolCaps) -> bool,
) -> impl Iterator<Item = &'static ProtocolInfo> {
    let (its, others): (Vec<&ProtocolInfo>, Vec<&ProtocolInfo>) =
        ALL.iter().partition(|info| has(&info.caps));
    if !others.is_empty() {
        let names: Vec<&str> = others.iter().map(|info| info.name).collect();
        println!("left out, since not promised ({promises}): {}", names.join(", "));
    }
    its.into_iter()
}
