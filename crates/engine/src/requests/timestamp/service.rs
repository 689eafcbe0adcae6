//! The timestamp service: a node of the compute pool that keeps a counter.
//!
//! Invariants:
//! - The service gives no timestamp at or above its *bound*. The service writes a bound to every copy of
//!   [`super::pool_word`] before it uses the bound. The service writes the primary first and then the other copies,
//!   so that a copy that is being filled finally has the bound as well.
//! - A succeeding service begins at the greatest bound of any live copy. Before that, members stop accepting
//!   timestamps of earlier services ([`Membership::succeed_timestamper`]), and no earlier service can write to
//!   memory. So the succeeding service begins above all timestamps that were ever given. (Deviation L20: a service
//!   that simply continues to count after a restart gives timestamps twice.)
//!
//! A window is a range of 2^20 timestamps. The service extends its window when half of it is used up. Such an
//! extension takes one WRITE to each copy for half a million commits. A restart loses the unused rest of the window,
//! which has no effect.
//!
//! ```text
//! request   how many u32: 0 to start               reply   since u64 | first u64: 0 if none can be given now
//! word      bound u64 | since u64, at every copy
//! ```

use super::pool_word;
use crate::cluster::membership::Succession;
use crate::requests::fence::revoke_everywhere;
use crate::site::Context;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_fabric::backend::Cost;
use tarn_fabric::clock::Nanos;
use tarn_fabric::error::FabricError;
use tarn_fabric::port::Port;
use tarn_fabric::round::Round;
use tarn_fabric::rpc::{Answer, Request};
use tarn_store::ids::{Failure, Timestamp, ViewNumber};

/// The interval at which the service checks whether its window is used up, or whether it may begin to serve.
const LOOK_AGAIN: Nanos = Nanos(20_000);

/// The options of a timestamp service.
#[derive(Clone, Copy, Debug)]
pub struct ServiceConfig {
    /// The number of timestamps that one bound allows.
    pub window: u64,
    /// **Breaks the contract**: a service begins at the timestamp where a fresh service would, and fences no
    /// predecessor. Tests use this flag to prove that they detect the bug.
    #[doc(hidden)]
    pub planted_unfenced: bool,
}

impl Default for ServiceConfig {
    fn default() -> ServiceConfig {
        ServiceConfig { window: 1 << 20, planted_unfenced: false }
    }
}

/// The counter and the bound that the cores of one timestamp service share.
#[derive(Debug, Default)]
struct Count {
    /// The next timestamp to be given.
    next: AtomicU64,
    /// One more than the last timestamp that the service may give; 0 while it does not serve.
    bound: AtomicU64,
    since: AtomicU64,
}

impl Count {
    /// Gives `many` adjacent timestamps, and returns the first of them.
    fn give(&self, many: u64) -> Option<u64> {
        let bound = self.bound.load(Ordering::Acquire);
        let fits = |next: u64| (next + many <= bound).then_some(next + many);
        self.next.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).ok()
    }
}

/// One incarnation of the timestamp service; clones of this value share its state.
#[derive(Clone, Debug)]
pub struct StampService {
    count: Arc<Count>,
    config: ServiceConfig,
}

/// While this value exists, it counts as a running try of a transaction, so that the configuration does not change.
struct Busy<'a>(&'a Context);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl StampService {
    /// Creates a timestamp service that does not serve yet.
    ///
    /// If the service's window is empty.
    pub fn new(config: ServiceConfig) -> StampService {
        assert!(config.window > 1, "a window of at least 2 timestamps");
        StampService { count: Arc::default(), config }
    }

    /// Creates a service without a real bound, which needs no memory nodes. A benchmark uses such a service to
    /// measure the cost of a request.
    pub fn of_no_database() -> StampService {
        let service = StampService::new(ServiceConfig::default());
        service.count.next.store(Timestamp::LOADED.0 + 1, Ordering::Release);
        service.count.bound.store(Timestamp::MAX.0, Ordering::Release);
        service
    }

    /// The handler that a core of the service runs for [`crate::services::timestamp::STAMP`]. The handler charges the
    /// work to `port`.
    pub fn handler(
        &self,
        port: Port,
    ) -> impl FnMut(Request<'_>, &mut Vec<u8>) -> Answer + use<> + 'static {
        let count = Arc::clone(&self.count);
        move |request, reply| {
            port.charge(Cost::LocalAtomic);
            let wanted = request.bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
            let since = count.since.load(Ordering::Acquire);
            let first = count.give(u64::from(wanted)).unwrap_or(0);
            reply.extend(since.to_le_bytes());
            reply.extend(first.to_le_bytes());
            Answer::Now
        }
    }

    /// Whether the timestamp service gives timestamps now.
    pub fn serves(&self) -> bool {
        self.count.bound.load(Ordering::Acquire) > 0
    }

    /// Serves on the node of `cx`, as soon as the membership service allows it, until that node's incarnation has
    /// ended or `goes_on` returns false. The service first succeeds the previous service. The service then extends
    /// its own bound when needed.
    pub async fn run(&self, cx: &Context, goes_on: impl Fn() -> bool) {
        while goes_on() && cx.database().membership.is_member(cx.node.id) {
            let done = match self.serves() {
                false => self.begin(cx).await,
                true if self.left() < self.config.window / 2 => self.extend(cx).await,
                true => Ok(()),
            };
            // The fabric may refuse a step now and allow it in the next configuration.
            if done.is_err() || self.serves() {
                cx.port.sleep(LOOK_AGAIN).await;
            }
        }
        self.count.bound.store(0, Ordering::Release);
    }

    fn left(&self) -> u64 {
        let Count { next, bound, .. } = &*self.count;
        bound.load(Ordering::Acquire).saturating_sub(next.load(Ordering::Acquire))
    }

    /// Succeeds the previous service, if no other node serves.
    async fn begin(&self, cx: &Context) -> Result<(), Failure> {
        let membership = &cx.database().membership;
        let Succession::Granted { since, before } = membership.succeed_timestamper(cx.node.id)
        else {
            cx.port.sleep(LOOK_AGAIN).await;
            return Ok(());
        };
        self.count.since.store(since.0, Ordering::Release);
        // The service starts above the timestamps that this process's counter gave before a service existed.
        let mut given = cx.database().counter.last().0 + 1;
        if !self.config.planted_unfenced {
            let _busy = self.enter(cx).await?;
            for whom in before {
                revoke_everywhere(cx, whom).await?;
            }
            given = given.max(read_bound(cx, since).await?);
        }
        self.count.next.store(given, Ordering::Release);
        self.extend(cx).await
    }

    /// Writes a bound beyond the present bound to memory, then allows the timestamps below the new bound.
    async fn extend(&self, cx: &Context) -> Result<(), Failure> {
        let _busy = self.enter(cx).await?;
        let Count { next, bound, since } = &*self.count;
        let beyond = next.load(Ordering::Acquire) + self.config.window;
        let word = [beyond, since.load(Ordering::Acquire)];
        let targets: Vec<_> = cx.groups.whole().all(pool_word()).collect();
        for copies in [&targets[..1], &targets[1..]] {
            let mut round = Round::new();
            let at = round.reserve(16);
            round.array_mut::<2>(at).copy_from_slice(&word);
            copies.iter().for_each(|copy| round.write(*copy, at, 16));
            cx.port.execute(&mut round).await?;
        }
        bound.store(beyond, Ordering::Release);
        Ok(())
    }

    /// Enters the open configuration. While the result exists, the set of copies does not change.
    async fn enter<'a>(&self, cx: &'a Context) -> Result<Busy<'a>, Failure> {
        while !cx.enter() {
            cx.adopt(None).await?;
        }
        Ok(Busy(cx))
    }
}

/// Reads the greatest bound at any live copy.
async fn read_bound(cx: &Context, since: ViewNumber) -> Result<u64, Failure> {
    let mut bound = 0;
    for copy in cx.groups.whole().counted(pool_word()) {
        let mut round = Round::new();
        let at = round.read(copy, 16);
        cx.port.execute(&mut round).await?;
        let [found, of] = *round.array::<2>(at);
        if of > since.0 {
            // Another service has succeeded this service since then. So this node's incarnation has ended, and the
            // node learns of its end only now.
            return Err(cx.port.note_failure(FabricError::Fenced).into());
        }
        bound = bound.max(found);
    }
    Ok(bound)
}
