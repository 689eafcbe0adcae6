//! Runs the transactions of one coordinator of a seed. The caller drops some of these transactions before they end.
//!
//! Invariant: the seed determines the transactions of a coordinator. A coordinator ends after its given number of
//! transactions, or later if it has to work until the cluster is repaired. A coordinator ends earlier if too many of its transactions have failed, or if its node is no longer
//! a member.

use super::desk::Desk;
use super::drawn::Drawn;
use super::faults::{go_on_after, is_member, is_mended};
use rand::RngExt as _;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::transaction::HistorySink;
use tarn_fabric::clock::Nanos;
use tarn_fabric::port::Port;
use tarn_fabric::rng::Rng;
use tarn_sim::fabric::SimFabric;
use tarn_store::ids::Failure;
use tarn_workloads::Workload;

/// A coordinator that works until the cluster is repaired runs at most this many times its number of transactions.
const LONGER_MAX: u64 = 10;

/// The largest number of polls of a transaction before its caller drops it.
const TURNS_MAX: u32 = 30;

/// The longest pause after the last counted poll before a caller drops its transaction. A round trip takes about
/// 2,000 ns, and longer under disturbances.
const PAUSE_MAX_NS: u64 = 4_000;

/// The moment at which a caller drops its transaction.
struct Patience {
    turns: u32,
    /// The pause after the counted polls, until the caller drops the transaction, even if rounds are in flight.
    /// `None` means that the caller drops the transaction at its next poll, between two rounds.
    pause: Option<Nanos>,
}

impl Patience {
    fn draw(rng: &mut Rng, drop_one_in: u32) -> Option<Patience> {
        let is_dropped = drop_one_in > 0 && rng.random_range(0..drop_one_in) == 0;
        is_dropped.then(|| {
            let turns = rng.random_range(1..TURNS_MAX);
            let is_in_flight = rng.random_range(0..2) == 0;
            let pause = is_in_flight.then(|| Nanos(rng.random_range(0..PAUSE_MAX_NS)));
            Patience { turns, pause }
        })
    }

    /// Runs a transaction. Returns `None` if the transaction has not ended when its caller wants to drop it. In both
    /// cases, the caller of this function drops the transaction's future afterwards.
    async fn run<T>(&self, port: &Port, mut run: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        let mut left = self.turns;
        let ended = poll_fn(|waiting| {
            if left == 0 {
                return Poll::Ready(None);
            }
            left -= 1;
            run.as_mut().poll(waiting).map(Some)
        })
        .await;
        let Some(pause) = self.pause.filter(|_| ended.is_none()) else { return ended };
        let mut pause = pin!(port.sleep(pause));
        poll_fn(|waiting| match run.as_mut().poll(waiting) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => pause.as_mut().poll(waiting).map(|()| None),
        })
        .await
    }
}

/// Runs the transactions of one coordinator.
pub(super) async fn coordinate<W: Workload>(
    workload: &W,
    (mut by, sink): (Coordinator, HistorySink),
    (drawn, fabric): (&Drawn, &SimFabric),
    desk: &Desk<W::Tally>,
) {
    let cx = Rc::clone(by.context());
    let mut rng = cx.port.rng();
    by.record_history_in(sink);
    let (mut tally, mut ends) = (W::Tally::default(), 0);
    for done in 0..drawn.transactions * LONGER_MAX {
        if done >= drawn.transactions && (!drawn.until_mended || is_mended(&cx, drawn)) {
            break;
        }
        let input = workload.draw(&mut rng);
        let patience = Patience::draw(&mut rng, drawn.drop_one_in);
        let run = workload.run(&mut by, &input, &mut tally);
        let ended = match patience {
            None => Some(run.await),
            Some(patience) => {
                let mut run = Box::pin(run);
                let ended = patience.run(&cx.port, run.as_mut()).await;
                let in_flight = || fabric.dropped_in_flight(cx.port.endpoint());
                let before = in_flight();
                drop(run);
                desk.left.borrow_mut().incidents.dropped_in_flight +=
                    u64::from(in_flight() > before);
                ended
            }
        };
        match ended {
            None => desk.left.borrow_mut().incidents.dropped += 1,
            Some(Ok(())) => {}
            Some(Err(failure)) => {
                if !go_on_after(failure, &mut by, drawn, (desk, &mut ends)).await {
                    break;
                }
            }
        }
    }
    // The engine settles a dropped transaction before the coordinator's next transaction begins. So the coordinator
    // runs one empty transaction at the end, in case its last transaction was dropped with data in flight.
    while drawn.drop_one_in > 0 && is_member(&cx) {
        let nothing: Result<(), Failure> = by.transact(async |_| Ok(())).await;
        if nothing.is_ok() || nothing == Err(Failure::DeadlineExceeded) {
            break;
        }
        cx.port.sleep(Nanos(5_000)).await;
    }
    W::merge(&mut desk.left.borrow_mut().tally, tally);
}
