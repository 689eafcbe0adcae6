//! Decides when a sweep must be made, and which coroutine makes it.
//!
//! Invariant: one pass covers all incarnations that were recovered before it began, and one pass at a time runs in
//! the whole cluster. A pass begins when no expelled incarnation waits for its recovery. If a sweeper dies or its
//! future is dropped, the unfinished pass must be made again. Any coroutine may make this pass.

use super::sweep::Pass;
use super::{Pace, Swept};
use crate::cluster::recovering::Claimed;
use crate::site::Context;
use tarn_fabric::clock::Nanos;
use tarn_store::ids::Failure;

/// The state of one coroutine that makes sweeps step by step, between its checks for dead nodes.
#[derive(Default)]
pub(crate) struct Sweeper<'a> {
    pass: Option<(Claimed<'a>, Pass)>,
    next_at: Nanos,
}

impl<'a> Sweeper<'a> {
    /// Runs the next step of a sweep under three conditions. A pass must be made, no other coroutine makes this pass,
    /// and the pause after the previous step is over.
    ///
    /// # Errors
    /// An error of the fabric. The sweeper then abandons the pass, and a sweeper must make the pass again.
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

/// Makes one pass over all tables, even if no pass is needed.
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
