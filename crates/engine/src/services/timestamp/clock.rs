//! Timestamps from clocks of bounded uncertainty: a thread asks no other node, and a commit waits.
//!
//! Invariant: a thread takes a timestamp at a true time that is not later than the timestamp. The thread reveals no
//! result of the transaction before a true time after the timestamp (the commit wait of Corbett et al., "Spanner:
//! Google's globally-distributed database", OSDI 2012). So the timestamps of successive transactions ascend, though
//! no two clocks agree.
//!
//! A transaction also waits when it starts. Suppose that a reader whose clock is ahead began to read immediately.
//! After it has read one record, a writer whose clock is behind may get a timestamp below the reader's timestamp. The
//! writer's versions then appear in records that the reader has still to read, and the reader sees only a part of the
//! writer's transaction. (A reader of Spanner waits until the replica that it reads has passed the reader's time.)
//!
//! ```text
//! 61                17 | 16      7 | 6     0
//! ticks of 64 ns (45)  | slot (10) | thread 7        of the clock's latest, as it was taken
//! ```
//! A count of ticks in 45 bits lasts 26 days from the start of the fabric.

use super::LastSeen;
use std::cell::Cell;
use tarn_fabric::clock::Nanos;
use tarn_fabric::port::Port;
use tarn_store::ids::{Explanation, SLOTS_MAX, THREADS_MAX, Timestamp};

/// The length of a tick, in nanoseconds: the longest commit wait with an exact clock.
const TICK_NS: u64 = 64;
const TAKER_BITS: u32 = 17;
const TICKS_MAX: u64 = Timestamp::MAX.0 >> TAKER_BITS;

const _: () = assert!(SLOTS_MAX * THREADS_MAX == 1 << TAKER_BITS);

/// The source of a thread's timestamps from its node's clock.
#[derive(Debug, Default)]
pub struct ClockStamps {
    /// The tick of the thread's last commit timestamp.
    last: Cell<u64>,
}

impl ClockStamps {
    /// Returns a start timestamp: the last timestamp of a tick. By every clock, this tick has ended when the function
    /// returns.
    pub(crate) async fn start(&self, port: &Port) -> Timestamp {
        // An acknowledged transaction waited until its tick had ended, so its tick is below the present tick.
        let start = before_tick(tick(port.clock().latest));
        wait_out(port, start).await;
        start
    }

    /// Returns a commit timestamp above the timestamps of all acknowledged transactions, and above the greatest
    /// timestamp that the node has seen.
    pub(crate) fn commit(&self, port: &Port, seen: &LastSeen) -> Result<Timestamp, Explanation> {
        let known = seen.get().0 >> TAKER_BITS;
        let tick = tick(port.clock().latest).max(self.last.get() + 1).max(known + 1);
        if tick > TICKS_MAX {
            let error = Explanation::usage("uptime_ns", tick * TICK_NS, "at most 2^51 (26 days)");
            return Err(error);
        }
        self.last.set(tick);
        let endpoint = port.endpoint();
        let taker = u64::from(endpoint.node.0) * THREADS_MAX as u64 + u64::from(endpoint.thread);
        Ok(Timestamp(tick << TAKER_BITS | taker))
    }
}

fn tick(time: Nanos) -> u64 {
    time.0 / TICK_NS
}

/// The last timestamp that is earlier than this tick.
fn before_tick(tick: u64) -> Timestamp {
    Timestamp(((tick << TAKER_BITS) - u64::from(tick > 0)).max(Timestamp::LOADED.0))
}

/// Waits until the tick of `given` has ended by every clock.
pub(crate) async fn wait_out(port: &Port, given: Timestamp) {
    let over = Nanos(((given.0 >> TAKER_BITS) + 1) * TICK_NS);
    loop {
        let earliest = port.clock().earliest;
        if earliest >= over {
            return;
        }
        port.sleep(over - earliest).await;
    }
}
