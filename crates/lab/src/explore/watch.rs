//! A coroutine that is watched: which phases its protocol entered when it posted its rounds.
//!
//! Invariant: the coroutine is polled as it would be. Only replays are watched.

use super::desk::Desk;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Task, Poll};
use tarn_engine::site::Context;

/// See the module's text.
pub struct Watched {
    /// The coroutine.
    pub inner: Pin<Box<dyn Future<Output = ()>>>,
    /// Its thread.
    pub cx: Rc<Context>,
    /// Where to say it.
    pub desk: Rc<Desk>,
    /// Which actor it is.
    pub actor: usize,
    /// The phases that it entered last: a round that enters none belongs to them.
    pub last: String,
}

impl Future for Watched {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<()> {
        let (phases, rounds) = (self.cx.metrics.snapshot(), self.cx.port.counts().rounds);
        let polled = self.inner.as_mut().poll(task);
        let entered = self.cx.metrics.snapshot().since(&phases).phases;
        let posted = self.cx.port.counts().rounds - rounds;
        let names: Vec<&str> = self.names(&entered);
        if posted > 0 && !names.is_empty() {
            self.last = names.join(" + ");
        }
        for at in 0..posted {
            // As many phases as rounds: one each. Otherwise they share them.
            let own = match names.len() as u64 == posted {
                true => names[at as usize].to_owned(),
                false => self.last.clone(),
            };
            self.desk.posted(self.actor, (rounds + at + 1) as u32, own);
        }
        polled
    }
}

impl Watched {
    fn names(&self, entered: &[u64]) -> Vec<&'static str> {
        let all = self.cx.database().protocol.info().phases;
        let counted = all.iter().zip(entered).filter(|(_, count)| **count > 0);
        counted.map(|(name, _)| *name).collect()
    }
}
