//! Timestamps of clocks whose uncertainty is bounded: nobody is asked, and what commits waits.
//!
//! Invariant: whoever has a timestamp has taken it at a true time at or before it, and gives nothing away
//! before a true time after it (the commit wait of Corbett et al., "Spanner: Google's globally-distributed
//! database", OSDI 2012). So timestamps of transactions one after the other ascend, though no two clocks
//! agree.
//!
//! A start is waited out as well. A reader whose clock is ahead, and who begins to read at once, may read a
//! record, and then somebody whose clock is behind gets a timestamp below the reader's, with its versions in
//! the records that the reader has yet to read: half a transaction. (Spanner's readers wait until the replica
//! that they ask has passed their time.)
//!
//! ```text
//! 61                16 | 15      6 | 5     0
//! ticks of 64 ns (46)  | slot (10) | thread 6        of the clock's latest, as it was taken
//! ```
//! 46 bits of ticks are 52 days from the start of the fabric.

use super::LastSeen;
use std::cell::Cell;
use tarn_fabric::clock::Nanos;
use tarn_fabric::port::Port;
use tarn_store::ids::{Explanation, SLOTS_MAX, THREADS_MAX, Timestamp};

/// A tick, in nanoseconds: what a clock that is exact makes a commit wait at the most.
const TICK_NS: u64 = 64;
const TAKER_BITS: u32 = 16;
const TICKS_MAX: u64 = Timestamp::MAX.0 >> TAKER_BITS;

const _: () = assert!(SLOTS_MAX * THREADS_MAX == 1 << TAKER_BITS);

/// A thread's timestamps of its node's clock.
#[derive(Debug, Default)]
pub struct ClockStamps {
    /// The tick that was used last.
    last: Cell<u64>,
}

impl ClockStamps {
    /// The end of the last tick that is over for everybody, or will be when this returns.
    pub(crate) async fn start(&self, port: &Port) -> Timestamp {
        // Who was acknowledged had a tick that was over: below the one that may be now.
        let start = before_tick(tick(port.clock().latest));
        wait_out(port, start).await;
        start
    }

    /// Above all that were given to whoever was acknowledged, and above what the node knows.
    pub(crate) fn commit(&self, port: &Port, seen: &LastSeen) -> Result<Timestamp, Explanation> {
        let known = seen.get().0 >> TAKER_BITS;
        let tick = tick(port.clock().latest).max(self.last.get() + 1).max(known + 1);
        if tick > TICKS_MAX {
            let error = Explanation::usage("uptime_ns", tick * TICK_NS, "at most 2^52: 52 days");
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

/// The last timestamp before a tick.
fn before_tick(tick: u64) -> Timestamp {
    Timestamp(((tick << TAKER_BITS) - u64::from(tick > 0)).max(Timestamp::LOADED.0))
}

/// Waits until the tick of `given` is over by every clock.
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
