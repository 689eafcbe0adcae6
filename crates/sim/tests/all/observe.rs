//! An observer does not change a run. The simulation shows the observer the path of a round in order.

use crate::common;
use crate::common::*;
use std::cell::RefCell;
use std::rc::Rc;
use tarn_fabric::address::NodeSlot;
use tarn_fabric::clock::Nanos;
use tarn_fabric::round::Round;
use tarn_sim::config::Mode;
use tarn_sim::observe::{Observer, Seen};
use tarn_sim::scheduler::Scheduler;

/// The events that the observer saw: for each event a name and its times.
type Notes = Rc<RefCell<Vec<(String, Vec<Nanos>)>>>;

struct Notebook(Notes);

impl Observer for Notebook {
    fn see(&mut self, seen: Seen<'_>) {
        let note = match seen {
            Seen::Posted { is_detached, to, verbs, posted, sent, arrives, .. } => {
                let mine = verbs.iter().filter(|verb| verb.target.node() == to).count();
                let kind = if is_detached { "detached" } else { "posted" };
                (format!("{kind} {mine} to {}", to.0), vec![posted, sent, arrives])
            }
            Seen::Served { by, arrived, left, taken, seen, .. } => {
                (format!("served by {}", by.0), vec![arrived, left, taken, seen])
            }
            Seen::Completed { verbs, at, .. } => {
                (format!("completed, found {}", verbs[0].value), vec![at])
            }
            Seen::Sent { to, bytes, sent, arrives } => {
                (format!("sent {bytes} to {}", to.node.0), vec![sent, arrives])
            }
        };
        self.0.borrow_mut().push(note);
    }
}

/// Runs one awaited round to two nodes, a detached round, and a message. Returns the digest of the run
/// and the time at which the run ended.
fn run(notes: Option<&Notes>) -> (u64, Nanos) {
    let fabric = fabric("cx5-100g", Mode::Timed, 5);
    if let Some(notes) = notes {
        fabric.observe(Box::new(Notebook(Rc::clone(notes))));
    }
    let port = port(&fabric, 0, 0);
    let other = common::port(&fabric, 1, 0).endpoint();
    let mut scheduler = Scheduler::new(&fabric);
    scheduler.block_on(&port, {
        let port = port.clone();
        async move {
            let mut round = Round::new();
            round.cas(at(64), 0, 7);
            round.read(at(128), 64);
            round.read(at(256).address().at(NodeSlot(1)), 8);
            port.execute(&mut round).await.expect("the nodes live");
            round.begin();
            round.cas(at(64), 7, 0);
            let detached = port.post_detached(&mut round).expect("posted");
            port.send(other, &[0; 40]).expect("sent");
            port.settle(detached).await.expect("done");
        }
    });
    (fabric.digest(), fabric.now())
}

#[test]
fn an_observed_run_is_the_same_run_and_its_rounds_are_shown_in_order() {
    let notes = Notes::default();
    assert_eq!(run(Some(&notes)), run(None));
    let notes = notes.borrow();
    let said: Vec<&str> = notes.iter().map(|(said, _)| said.as_str()).collect();
    assert_eq!(
        said,
        [
            "posted 2 to 0",
            "posted 1 to 1",
            "served by 0",
            "served by 1",
            "completed, found 0",
            "detached 1 to 0",
            "sent 40 to 1",
            "served by 0",
            "completed, found 7",
        ]
    );
    for (said, times) in notes.iter() {
        assert!(times.is_sorted(), "{said}: {times:?}");
    }
    // The batch that was posted first arrives at the time that the observer was shown. The round is
    // complete when the requester's processor sees the last answer.
    assert_eq!(notes[0].1[2], notes[2].1[0]);
    assert_eq!(notes[1].1[2], notes[3].1[0]);
    assert_eq!(notes[4].1[0], notes[2].1[3].max(notes[3].1[3]));
}
