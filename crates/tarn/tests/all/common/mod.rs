//! Selects the protocols under which a test runs.
//!
//! Invariant: a test prints each protocol that it leaves out.

use tarn_engine::cluster::info::{ProtocolCaps, ProtocolInfo};
use tarn_engine::protocol::ALL;

/// Returns the protocols that give a guarantee, according to their own description. Prints the other protocols.
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
