//! Decides which sweep is due, and which coroutine makes it.
//!
//! Invariant: one pass covers all lives that were recovered before it began, and one pass runs at a time in
//! the whole cluster. It begins when no life waits for its recovery. If a sweeper dies or its future is
//! dropped, the half-done pass is due again, and any coroutine may make it.

use super::sweep::Pass;
use super::{Pace, Swept};
use crate::cluster::recovering::Claimed;
use crate::site::Context;
use tarn_fabric::clock::Nanos;
use tarn_store::ids::Failure;

/// One coroutine's part in sweeps: a step at a time, between its looks for the dead.
#[derive(Default)]
pub(crate) struct Sweeper<'a> {
    pass: Option<(Claimed<'a>, Pass)>,
    next_at: Nanos,
}

impl<'a> Sweeper<'a> {
    /// Takes the next step, if a pass is due and no other coroutine makes it, and the pause after the last
    /// step is over.
    ///
    /// # Errors
    /// An error of the fabric. The pass is given up, and is due again.
    pub(crate) async fn turn(&mut self, cx: &'a Context, pace: Pace) -> Result<(), Failure> {
        if cx.port.now() < self.next_at {
            return Ok(());
        }
        let database = cx.database();
        let Some((claimed, mut pass)) = self.pass.take().or_else(|| {
            let claimed = database.sweeps.claim(cx.node.id, &*database.membership)?;
            Some((claimed, Pass::default()))
        }) else {
            return Ok(());
        };
        let began = cx.port.now();
        if pass.step(cx, pace.blocks).await? {
            let now = cx.port.now();
            self.next_at = now + pace.after_sweeping(now - began);
            self.pass = Some((claimed, pass));
        } else {
            claimed.end();
        }
        Ok(())
    }
}

/// Makes one pass over all tables, whether one is due or not.
///
/// # Errors
/// An error of the fabric. A group whose primary is down cannot be swept.
pub async fn sweep(cx: &Context, pace: Pace) -> Result<Swept, Failure> {
    let mut pass = Pass::default();
    loop {
        let began = cx.port.now();
        if !pass.step(cx, pace.blocks).await? {
            return Ok(pass.swept);
        }
        cx.port.sleep(pace.after_sweeping(cx.port.now() - began)).await;
    }
}
