//! What one coordinator of a seed does: its transactions, some of which their caller drops half-way.
//!
//! Invariant: a function of the seed. A coordinator ends after the transactions that it was given, or when
//! too many of them have failed, or when its node is no member any more.

use super::drawn::Drawn;
use super::faults::{go_on_after, is_member};
use super::run::Desk;
use rand::RngExt as _;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use tarn_engine::coordinator::Coordinator;
use tarn_engine::outcome::Failure;
use tarn_engine::recorder::HistorySink;
use tarn_fabric::clock::Nanos;
use tarn_fabric::rng::Rng;
use tarn_workloads::Workload;

/// Most turns of a transaction that its caller drops.
const TURNS_MAX: u32 = 30;

/// Runs a transaction; `None` if its caller drops it after so many turns.
async fn drop_after<T>(turns: Option<u32>, run: impl Future<Output = T>) -> Option<T> {
    let mut run = pin!(run);
    let mut left = turns;
    poll_fn(|waiting| {
        if left == Some(0) {
            return Poll::Ready(None);
        }
        left = left.map(|left| left - 1);
        run.as_mut().poll(waiting).map(Some)
    })
    .await
}

fn draw_turns(rng: &mut Rng, drop_one_in: u32) -> Option<u32> {
    let is_dropped = drop_one_in > 0 && rng.random_range(0..drop_one_in) == 0;
    is_dropped.then(|| rng.random_range(1..TURNS_MAX))
}

/// One coordinator's transactions.
pub(super) async fn coordinate<W: Workload>(
    workload: &W,
    (mut by, sink): (Coordinator, HistorySink),
    drawn: &Drawn,
    desk: &Desk<W::Tally>,
) {
    let cx = Rc::clone(by.context());
    let mut rng = cx.port.rng();
    by.record_history_in(sink);
    let (mut tally, mut ends) = (W::Tally::default(), 0);
    for _ in 0..drawn.transactions {
        let input = workload.draw(&mut rng);
        let turns = draw_turns(&mut rng, drawn.drop_one_in);
        match drop_after(turns, workload.run(&mut by, &input, &mut tally)).await {
            None => desk.left.borrow_mut().dropped += 1,
            Some(Ok(())) => {}
            Some(Err(failure)) => {
                if !go_on_after(failure, &mut by, drawn, (desk, &mut ends)).await {
                    break;
                }
            }
        }
    }
    // A transaction that was dropped while its data were on their way is settled before the next.
    while drawn.drop_one_in > 0 && is_member(&cx) {
        let nothing: Result<(), Failure> = by.transact(async |_| Ok(())).await;
        if nothing.is_ok() || nothing == Err(Failure::DeadlineExceeded) {
            break;
        }
        cx.port.sleep(Nanos(5_000)).await;
    }
    W::merge(&mut desk.left.borrow_mut().tally, tally);
}
