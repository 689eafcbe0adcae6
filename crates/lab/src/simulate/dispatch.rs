//! Clients in a closed loop whose transactions are routed to compute nodes.
//!
//! A client draws a transaction; the router says at which node it runs; there it waits in a queue until one of
//! the node's coroutines takes it; when it has ended its client draws the next one. So a node that is asked
//! for more than it can do has a long queue while others have coroutines to spare. (Coroutines that drew until
//! a transaction is for their own node would hide just that.)
//!
//! Invariant: as many transactions are under way as there are clients, from being drawn to being ended, and
//! each is timed from when it came to its node's queue. How it comes there takes no time.

use super::hotspot::run::Heat;
use crate::harness::desk::Source;
use rand::RngExt as _;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use tarn_engine::services::shard_load::Load;
use tarn_engine::site::Context;
use tarn_fabric::clock::Nanos;
use tarn_fabric::rng::{Rng, seeded};
use tarn_sim::bell::Bell;
use tarn_sim::fabric::SimFabric;
use tarn_store::placement::routing::Router;
use tarn_workloads::Workload;
use tarn_workloads::routes::Routes;

/// Most draws for a transaction that is to be hot. With fewer hits the share of hot ones is less than was asked for.
const DRAWS_MAX: u32 = 100_000;
/// The stream of the clients' generator, which no coordinator has.
const STREAM: u64 = u64::MAX;

/// A node's transactions that no coroutine has taken yet.
struct Queue<I> {
    waiting: RefCell<VecDeque<(I, Nanos)>>,
    bell: Bell,
}

/// See the module's text.
pub(crate) struct Dispatch<'a, W: Workload> {
    workload: &'a W,
    fabric: &'a SimFabric,
    router: Router<'a>,
    routes: Routes,
    queues: Vec<Queue<W::Input>>,
    rng: RefCell<Rng>,
    /// Which shards are asked for more than others, and who keeps what happens.
    heat: Option<Heat>,
    is_over: Cell<bool>,
}

impl<'a, W: Workload> Dispatch<'a, W> {
    /// Queues of so many nodes, and clients that have drawn their first transactions.
    pub(crate) fn new(
        workload: &'a W,
        (fabric, nodes): (&'a SimFabric, usize),
        router: Router<'a>,
        (clients, seed): (usize, u64),
        heat: Option<Heat>,
    ) -> Dispatch<'a, W> {
        let queue = |_| Queue { waiting: RefCell::default(), bell: fabric.bell() };
        let dispatch = Dispatch {
            workload,
            fabric,
            router,
            routes: Routes::of(workload),
            queues: (0..nodes).map(queue).collect(),
            rng: RefCell::new(seeded(seed, STREAM)),
            heat,
            is_over: Cell::new(false),
        };
        (0..clients).for_each(|_| dispatch.offer());
        dispatch
    }

    /// The source of a node's coroutines.
    pub(crate) fn of(&self, cx: &Rc<Context>) -> Own<'_, 'a, W> {
        Own { dispatch: self, cx: Rc::clone(cx), since: Cell::default() }
    }

    /// A client draws its next transaction.
    fn offer(&self) {
        let rng = &mut *self.rng.borrow_mut();
        let input = self.draw(rng);
        let (read_only, first) = self.routes.of_input::<W>(&input);
        let node = self.router.place(read_only, first, rng);
        let queue = &self.queues[usize::from(node.0)];
        queue.waiting.borrow_mut().push_back((input, self.fabric.now()));
        queue.bell.ring();
    }

    fn draw(&self, rng: &mut Rng) -> W::Input {
        let input = self.workload.draw(rng);
        let Some(Heat { hotspot, trail, .. }) = &self.heat else { return input };
        let passed = Nanos(self.fabric.now().0.saturating_sub(trail.start.get().0));
        let shard = |input: &W::Input| {
            let (read_only, first) = self.routes.of_input::<W>(input);
            Some(self.router.shard_of(first.filter(|_| !read_only)?))
        };
        if shard(&input).is_none() || rng.random_range(0..100) >= hotspot.share_percent {
            return input;
        }
        let is_hot = |input: &W::Input| shard(input).is_some_and(|it| hotspot.is_hot(it, passed));
        let mut draws = (0..DRAWS_MAX).map(|_| self.workload.draw(rng));
        draws.find(is_hot).unwrap_or(input)
    }

    /// Nobody takes a transaction any more.
    pub(crate) fn stop(&self) {
        self.is_over.set(true);
        self.queues.iter().for_each(|queue| queue.bell.ring_all());
    }

    /// Transactions that wait at each node.
    #[cfg(test)]
    fn waiting(&self) -> Vec<usize> {
        self.queues.iter().map(|queue| queue.waiting.borrow().len()).collect()
    }
}

/// What one node's coroutines take from.
pub(crate) struct Own<'d, 'a, W: Workload> {
    dispatch: &'d Dispatch<'a, W>,
    cx: Rc<Context>,
    /// When the one that runs came to the queue.
    since: Cell<Nanos>,
}

impl<W: Workload> Own<'_, '_, W> {
    /// Its node's, where shards are moved by it.
    fn load(&self) -> Option<&Load> {
        self.dispatch.heat.as_ref()?;
        self.cx.node.services()?.load()
    }
}

impl<W: Workload> Source<W> for Own<'_, '_, W> {
    async fn next(&self, _: &W, _: &mut Rng) -> Option<(W::Input, Option<Nanos>)> {
        let queue = &self.dispatch.queues[usize::from(self.cx.node.id.slot.0)];
        while !self.dispatch.is_over.get() {
            let first = queue.waiting.borrow_mut().pop_front();
            if let Some((input, since)) = first {
                self.since.set(since);
                if let Some(load) = self.load() {
                    load.began();
                }
                return Some((input, Some(since)));
            }
            queue.bell.wait().await;
        }
        None
    }

    fn ended(&self, is_done: bool) {
        if let Some(heat) = &self.dispatch.heat {
            let now = self.cx.port.now();
            if is_done {
                heat.trail.ended(now);
            }
            if let Some(load) = self.load() {
                load.ended(now.0.saturating_sub(self.since.get().0));
            }
        }
        if !self.dispatch.is_over.get() {
            self.dispatch.offer();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::driver::{Driver, Length};
    use crate::simulate::{Config, stamps};
    use tarn::cluster::ClusterConfig;
    use tarn_engine::cluster::membership::{EmbeddedMembership, Membership as _};
    use tarn_fabric::address::NodeSlot;
    use tarn_sim::config::{Mode, SimConfig};
    use tarn_sim::profile::Profile;
    use tarn_store::placement::catalog::{Catalog, Options};
    use tarn_store::placement::shard_map::ShardMap;
    use tarn_workloads::Settings;
    use tarn_workloads::smallbank::SmallBank;

    const NODES: usize = 3;

    /// Where 600 clients' first transactions wait if these nodes own the shards.
    fn waiting(owners: &[u16]) -> Vec<usize> {
        let fabric = SimFabric::new(&SimConfig {
            memory_nodes: 1,
            replicas: 1,
            compute_nodes: NODES,
            group_bytes: 1 << 20,
            profile: Profile::load("cx3-56g").expect("embedded"),
            mode: Mode::Timed,
            seed: 1,
        })
        .expect("a cluster");
        let settings = Settings { records: Some(10_000), ..Settings::default() };
        let bank = SmallBank::new(&settings).expect("a workload");
        let catalog = Catalog::plan(&bank.schemas(), &Options::default(), 1).expect("a plan");
        let service = EmbeddedMembership::new(NODES);
        let all = [0, 1, 2].map(|slot| service.join(NodeSlot(slot)).expect("a life"));
        let map = ShardMap::default();
        if !owners.is_empty() {
            let owners: Vec<_> = owners.iter().map(|slot| all[usize::from(*slot)]).collect();
            service.open_shards(&owners);
            map.refresh(&service);
        }
        let slots = (0..NODES as u16).map(NodeSlot).collect();
        let router = Router::new(&catalog, &map, slots);
        Dispatch::new(&bank, (&fabric, NODES), router, (600, 1), None).waiting()
    }

    #[test]
    fn without_owners_transactions_go_anywhere_and_with_one_the_writing_ones_go_there() {
        let anywhere = waiting(&[]);
        assert_eq!(anywhere.iter().sum::<usize>(), 600);
        assert!(anywhere.iter().all(|count| (140..260).contains(count)), "{anywhere:?}");
        let even = waiting(&[0, 1, 2]);
        assert!(even.iter().all(|count| (140..260).contains(count)), "{even:?}");
        // 85 % of SmallBank's transactions write; the others go to all three.
        let uneven = waiting(&[1]);
        assert!(uneven[1] > 500 && uneven[0] > 5 && uneven[2] > 5, "{uneven:?}");
        assert_eq!(uneven.iter().sum::<usize>(), 600);
    }

    /// In a closed loop clients are throughput times time (Little's law), the time in queues among it.
    #[test]
    fn as_many_transactions_are_under_way_as_there_are_clients() {
        const CLIENTS: usize = 12;
        let cluster = ClusterConfig { compute_nodes: NODES, ..ClusterConfig::default() };
        let profile = Profile::load("cx3-56g").expect("embedded");
        let (coordinators, timestamps) = (2 * CLIENTS, stamps::Source::Counter);
        let config = Config { cluster, profile, threads: 2, coordinators, timestamps };
        let settings = Settings { records: Some(5_000), ..Settings::default() };
        let bank = SmallBank::new(&settings).expect("a workload");
        let mut driver = Driver::new(bank, &config).expect("a cluster");
        driver.load(&|_, _| {}).expect("it fits");
        driver.set_clients(Some(CLIENTS));
        let (warm_up, measured) = (Nanos(200_000), Nanos(1_000_000));
        let length = Length { warm_up, measured, transactions_max: u64::MAX, record: false };
        let phase = driver.phase(length, &|_| {}).expect("it runs").phase;
        assert_eq!(phase.failures, [""; 0]);
        let (committed, seconds) = (phase.tally.committed as f64, phase.seconds);
        let under_way = committed / seconds * phase.latency_ns.mean() / 1e9;
        assert!((under_way / CLIENTS as f64 - 1.0).abs() < 0.05, "{under_way} under way");
        let (invariants, audit) = driver.check().expect("it can be judged");
        assert!(invariants.iter().all(|it| it.ok) && audit.is_clean(), "{invariants:?}");
    }
}
