//! Wraps a coroutine, and records the protocol phases that the coroutine entered when it posted its rounds.
//!
//! Invariant: the explorer polls a watched coroutine in the same way as an unwatched coroutine. Only replays are
//! watched.

use super::desk::Desk;
use std::future::poll_fn;
use std::rc::Rc;
use tarn_engine::site::Context;

/// Wraps `inner`, the coroutine of actor number `actor`. The wrapper tells the desk the phases in which the coroutine
/// posted each round.
pub fn watched(
    inner: impl Future<Output = ()> + 'static,
    (cx, desk, actor): (Rc<Context>, Rc<Desk>, usize),
) -> impl Future<Output = ()> + 'static {
    let mut inner = Box::pin(inner);
    // The phases that the coroutine entered last. A round in which the coroutine enters no phase
    // belongs to these last phases.
    let mut last = String::new();
    poll_fn(move |task| {
        let (phases, rounds) = (cx.metrics.snapshot(), cx.port.counts().rounds);
        let polled = inner.as_mut().poll(task);
        let entered = cx.metrics.snapshot().since(&phases).phases;
        let posted = cx.port.counts().rounds - rounds;
        let all = cx.database().protocol.info().phases.iter().zip(entered);
        let names: Vec<&str> = all.filter(|(_, count)| *count > 0).map(|(name, _)| *name).collect();
        if posted > 0 && !names.is_empty() {
            last = names.join(" + ");
        }
        for at in 0..posted {
            // If the coroutine entered as many phases as it posted rounds, the function assigns one phase to each
            // round. If the numbers differ, the function assigns all of these phases to every round.
            let own = match names.len() as u64 == posted {
                true => names[at as usize].to_owned(),
                false => last.clone(),
            };
            desk.left.borrow_mut().phases.insert((actor, (rounds + at + 1) as u32), own);
        }
        polled
    })
}
