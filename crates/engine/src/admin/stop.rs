//! Stops all transactions of a database at a boundary, so that the caller can take an image of its records.
//!
//! Invariant: while all threads are quiet, no transaction runs and none is in doubt, so the records are the result of
//! whole transactions. The stop is a change of the configuration that never takes place
//! ([`crate::cluster::configuration`]). So transactions pay nothing for the stop: each try loads the announced number
//! in any case. After the stop the same configuration continues, under the same number.

use crate::cluster::configuration::Change;
use crate::site::Context;
use tarn_store::ids::{Failure, TxnId};

/// No transaction begins while this value exists. Dropping it lets transactions begin again.
pub struct Stop<'a> {
    cx: &'a Context,
    change: Change,
}

impl<'a> Stop<'a> {
    /// Announces the stop. Running transactions continue to their ends. Returns `None` if another compute node changes
    /// the configuration now.
    ///
    /// The threads of one compute node share the right to announce. So the caller makes sure that no other thread of
    /// its node announces a change at the same time.
    pub fn announce(cx: &'a Context) -> Option<Stop<'a>> {
        cx.follow();
        let database = cx.database();
        let change = database.configurations.announce(cx.node.id, &*database.membership)?;
        Some(Stop { cx, change })
    }

    /// Whether every thread is quiet, every dead compute node is recovered, and the stop is still in force.
    pub fn is_quiet(&self) -> bool {
        let database = self.cx.database();
        let (configurations, membership) = (&database.configurations, &*database.membership);
        configurations.late(membership).is_empty()
            && membership.unrecovered().is_empty()
            && configurations.is_announced(self.change)
            && self.cx.is_current()
    }
}

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.cx.database().configurations.call_off(self.change);
    }
}

/// Settles the transactions in doubt whose threads no longer exist, because no stop is quiet before. Returns the
/// transactions that are still in doubt.
///
/// # Errors
/// An error of the fabric: the caller may try again.
pub async fn settle_abandoned(cx: &Context) -> Result<Vec<TxnId>, Failure> {
    cx.settle_left().await?;
    Ok(cx.database().log_area_owners.in_doubt())
}
