//! Tests the explorer's source of timestamps, a word of the memory pool, in every order of events.
//!
//! Invariant checked: the promises of each source (`tarn_engine::requests::timestamp`) hold for two
//! nodes that each take a start timestamp and a commit timestamp. The promises also hold for one node
//! that takes a start timestamp after its commit timestamp. Each commit timestamp is given only once,
//! and commit timestamps ascend. A start timestamp is not below a commit timestamp that was
//! acknowledged before the start was requested. A start timestamp is not above a commit timestamp that
//! is given later.

use super::cluster::{Cluster, SEED};
use super::litmus::Litmus;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::rc::Rc;
use tarn_engine::site::Context;
use tarn_sim::explore::{Actor, End, ExploreConfig, ExploreFabric, Model, Outcome, explore};
use tarn_store::ids::Timestamp;

/// The timestamps that the callers got, in the order of the callers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Seen {
    Asked(usize),
    Start(usize, Timestamp),
    Commit(usize, Timestamp),
}

struct Takers {
    cluster: Rc<Cluster>,
    seen: RefCell<Rc<RefCell<Vec<Seen>>>>,
    /// The different final results: each result lists the commit timestamps of each node.
    ends: RefCell<BTreeSet<Vec<Seen>>>,
}

async fn take(cx: Rc<Context>, fabric: ExploreFabric, taker: usize, log: Rc<RefCell<Vec<Seen>>>) {
    for _ in 0..2 {
        fabric.begin().await;
        log.borrow_mut().push(Seen::Asked(taker));
        let start = cx.timestamps.start(&cx).await.expect("nothing breaks");
        log.borrow_mut().push(Seen::Start(taker, start));
        assert!(cx.timestamps.known(&cx) >= start);
        let commit = cx.timestamps.commit(&cx).await.expect("nothing breaks");
        log.borrow_mut().push(Seen::Commit(taker, commit));
        fabric.end();
    }
}

impl Model for Takers {
    fn load(&self, _: &ExploreFabric) {}

    fn build(&self, fabric: &ExploreFabric) -> Vec<Actor> {
        let log = Rc::new(RefCell::new(Vec::new()));
        *self.seen.borrow_mut() = Rc::clone(&log);
        let (database, _) = self.cluster.database(&fabric.groups());
        let taker = |number: usize| {
            let node = self.cluster.join(&database, self.cluster.node(number as u16));
            let cx = self.cluster.context(&node, fabric.port(node.id, 0, SEED), 0, false);
            let takes = take(cx, fabric.clone(), number, Rc::clone(&log));
            Actor::new(format!("taker {number}"), node.id, 0, takes)
        };
        (0..2).map(taker).collect()
    }

    fn judge(&self, _: &End<'_>) -> Result<(), String> {
        let seen = self.seen.borrow().borrow().clone();
        let wrong = |what: &str| Err(format!("{what}: {seen:?}"));
        let (mut given, mut asked) = (Vec::new(), [Timestamp(0); 2]);
        for one in &seen {
            match *one {
                Seen::Asked(taker) => {
                    asked[taker] = given.iter().copied().max().unwrap_or_default()
                }
                Seen::Start(taker, start) if start < asked[taker] => {
                    return wrong("a start below what was acknowledged before");
                }
                Seen::Start(taker, start) => asked[taker] = start,
                Seen::Commit(taker, commit) if commit <= asked[taker] => {
                    return wrong("a commit not above the start before it");
                }
                Seen::Commit(_, commit) if given.contains(&commit) => {
                    return wrong("a commit given twice");
                }
                Seen::Commit(_, commit) => given.push(commit),
            }
        }
        if given.len() != 4 {
            return wrong("a commit is missing");
        }
        let commits = seen.into_iter().filter(|it| matches!(it, Seen::Commit(..)));
        let mut end: Vec<Seen> = commits.collect();
        end.sort_unstable();
        self.ends.borrow_mut().insert(end);
        Ok(())
    }
}

#[test]
fn a_word_of_the_pool_keeps_what_every_source_promises() {
    let litmus = Rc::new(Litmus::load("lost-update").expect("a litmus"));
    let shape = "1x1".parse().expect("a shape");
    let cluster = Cluster::new(&litmus, shape, ("ford", "corrected")).expect("a cluster");
    let config = ExploreConfig::new(1, cluster.compute_nodes(), cluster.catalog.group_bytes());
    let cluster = Rc::new(cluster);
    let takers = Takers { cluster, seen: RefCell::default(), ends: RefCell::default() };
    let explored = explore(&takers, &config, &mut |_| ControlFlow::Continue(()));
    let explored = explored.expect("a configuration");
    assert_eq!(explored.outcome, Outcome::Exhausted);
    assert!(explored.violations.is_empty(), "{}", explored.violations[0].text);
    // Two nodes take two commit timestamps each. The nodes can take the four commit timestamps in any order, so "4
    // choose 2" orders are possible.
    assert_eq!(takers.ends.borrow().len(), 6);
}
