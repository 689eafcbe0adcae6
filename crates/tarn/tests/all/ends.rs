//! Tests how transactions end, and the answers that sessions and bodies get: unknown outcomes, dropped futures,
//! dropped sessions, and bodies that abort.
//!
//! Invariants checked, under every protocol that guarantees them. Every session that asks how a transaction ended, in
//! any order, gets the answer that agrees with the records. If a session is dropped at any poll, it leaves nothing
//! for which other sessions would have to wait. A body's own abort is reported only if the records on which it
//! depends existed together at one moment. The tests print the protocols that they leave out.

#![allow(clippy::disallowed_methods, reason = "drives real threads")]

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context as Waiting, Poll, Waker};
use tarn::{Error, Nanos, Resolution, Retry, Session, Table, Tarn, TxnId, block_on};
use tarn_engine::cluster::info::{ProtocolCaps, ProtocolInfo};
use tarn_engine::protocol::ALL;
use tarn_engine::requests::serve::share_out;
use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};

/// A row that contains one number.
#[derive(tarn::Row, Clone, PartialEq, Debug)]
#[row(table = "rows", key(id))]
struct Row {
    id: u64,
    v: u64,
}

/// Returns the names of the protocols that give a guarantee. Prints the names of the other protocols.
fn those(what: &str, promise: impl Fn(&ProtocolCaps) -> bool) -> Vec<&'static str> {
    let (those, others): (Vec<&ProtocolInfo>, Vec<&ProtocolInfo>) =
        ALL.iter().partition(|info| promise(&info.caps));
    let names: Vec<_> = others.iter().map(|info| info.name).collect();
    println!("not {what}: {names:?}");
    those.iter().map(|info| info.name).collect()
}

fn open(protocol: &str, copies: usize, deadline: Option<Nanos>) -> (Tarn, Table<Row>) {
    let retry = Retry { deadline, ..Retry::PATIENT };
    let builder = Tarn::embedded().table::<Row>(64).spare_bytes(1 << 20).sessions_max(12);
    let builder = builder.memory_nodes(copies).replicas(copies).retry(retry).deadline(None);
    let tarn = builder.protocol(protocol, "corrected").open().expect("it can be opened");
    let database = tarn.cluster().database();
    if database.protocol.needs().locks {
        share_out(database, &[NodeId { slot: NodeSlot(0), incarnation: Incarnation(1) }]);
    }
    let rows = tarn.table::<Row>().expect("a table");
    (tarn, rows)
}

fn put(session: &mut Session, rows: Table<Row>, key: u64, v: u64) -> Result<(), Error> {
    session.run(async |tx| rows.put(tx, &Row { id: key, v }).await).map(|_| ())
}

fn find(session: &mut Session, rows: Table<Row>, key: u64) -> Result<Option<u64>, Error> {
    Ok(session.run(async |tx| rows.find(tx, key).await)?.map(|row| row.v))
}

/// The kind of session that asks how a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asker {
    Itself,
    Sibling,
    OtherSession,
    OtherThread,
}

const ASKERS: [Asker; 4] = [Asker::Itself, Asker::Sibling, Asker::OtherSession, Asker::OtherThread];

fn orders() -> Vec<[Asker; 4]> {
    let mut orders = Vec::new();
    for code in 0..256usize {
        let order = [code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6].map(|at| ASKERS[at]);
        if ASKERS.iter().all(|asker| order.contains(asker)) {
            orders.push(order);
        }
    }
    orders
}

/// A few sessions of one database: one session for each kind of asker.
struct Sessions {
    tarn: Tarn,
    rows: Table<Row>,
    own: Session,
    sibling: Session,
    other: Session,
}

impl Sessions {
    fn new(protocol: &str, key: u64) -> Sessions {
        let (tarn, rows) = open(protocol, 2, Some(Nanos(50_000_000)));
        let mut own = tarn.session().expect("a session");
        let sibling = own.sibling().expect("another");
        let mut other = tarn.session().expect("one of its own");
        put(&mut own, rows, key, 7).expect("nothing is broken");
        put(&mut other, rows, 100, 7).expect("nothing is broken");
        Sessions { tarn, rows, own, sibling, other }
    }

    /// Asks how a transaction ended. Returns the answer and then the record's value, if the record can be read.
    fn ask(&mut self, asker: Asker, id: TxnId, key: u64) -> (Resolution, Option<u64>) {
        let rows = self.rows;
        let ask = |session: &mut Session| {
            let told = block_on(session.resolve(id)).expect("it is known");
            assert_eq!(block_on(session.resolve(id)).expect("again"), told);
            (told, find(session, rows, key).ok().map(|v| v.expect("it is there")))
        };
        match asker {
            Asker::Itself => ask(&mut self.own),
            Asker::Sibling => ask(&mut self.sibling),
            Asker::OtherSession => ask(&mut self.other),
            Asker::OtherThread => std::thread::scope(|scope| {
                let tarn = &self.tarn;
                let asks = scope.spawn(move || {
                    let mut session = tarn.session().expect("a session");
                    let told = block_on(session.resolve(id)).expect("it is known");
                    (told, find(&mut session, rows, key).ok().map(|v| v.expect("it is there")))
                });
                asks.join().expect("no panic")
            }),
        }
    }
}

/// Makes a transaction. If the transaction ended in doubt, the askers ask how it ended. Returns the
/// answer of the askers, or `None` if the transaction did not end in doubt.
fn ask_in_order(
    protocol: &str,
    key: u64,
    order: [Asker; 4],
    is_nested: bool,
) -> Option<Resolution> {
    let mut sessions = Sessions::new(protocol, key);
    let rows = sessions.rows;
    sessions.tarn.cluster().fabric().fail_node(NodeSlot(1));
    let Sessions { own, sibling, .. } = &mut sessions;
    let ended = match is_nested {
        false => put(own, rows, key, 8),
        true => sibling.run(async |_| {
            let inner = own.transact(async |tx| rows.put(tx, &Row { id: key, v: 8 }).await).await;
            inner.map(|_| ())
        }),
    };
    let id = ended.err()?.unknown()?;
    let mut first = None;
    for asker in order {
        let (told, found) = sessions.ask(asker, id, key);
        let first = *first.get_or_insert(told);
        assert_eq!(told, first, "{protocol}, key {key}, {order:?}: {asker:?}");
        let expected = if told == Resolution::Committed { 8 } else { 7 };
        assert!(
            found.is_none_or(|found| found == expected),
            "{protocol}, key {key}, {order:?}: {asker:?} was told {told:?} and found {found:?}"
        );
    }
    // Other sessions use the log area of the transaction, and its session no longer exists.
    for v in 0..3 {
        let _ = put(&mut sessions.own, rows, 100, v);
    }
    let asked = block_on(sessions.other.resolve(id)).expect("still known");
    let Sessions { own, mut other, .. } = sessions;
    drop(own);
    assert_eq!(block_on(other.resolve(id)).expect("still known"), asked);
    assert_eq!(Some(asked), first);
    first
}

#[test]
fn every_session_is_told_the_outcome_that_the_records_show_in_every_order() {
    let mut seen = Vec::new();
    for protocol in those("surviving memory nodes", |caps| caps.memory_recovery) {
        let mut ends = [0; 2];
        for (at, order) in orders().into_iter().enumerate() {
            for is_nested in [false, true] {
                let key = 1 + at as u64 % 6;
                if let Some(end) = ask_in_order(protocol, key, order, is_nested) {
                    ends[usize::from(end == Resolution::Committed)] += 1;
                }
            }
        }
        println!("{protocol}: {} aborted, {} committed", ends[0], ends[1]);
        seen.push(ends[0] + ends[1]);
    }
    assert!(seen.iter().filter(|count| **count > 0).count() > 3, "{seen:?}");
}

#[test]
fn a_transaction_that_was_never_in_doubt_has_no_answer() {
    let (tarn, _) = open("ford", 1, None);
    let mut session = tarn.session().expect("a session");
    let node = NodeId { slot: NodeSlot(0), incarnation: Incarnation(1) };
    let id = tarn_store::ids::OwnerTag::new(node, 5, 77);
    let error = block_on(session.resolve(id)).expect_err("there is none");
    assert!(error.is_no_longer_known(), "{error}");
    assert!(error.to_string().contains("resolve = txn 0.1/5/77; allowed: "), "{error}");
}

/// The operation that the dropped transaction makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Update,
    Insert,
    Delete,
    Read,
}

const KINDS: [Kind; 4] = [Kind::Update, Kind::Insert, Kind::Delete, Kind::Read];

/// How the session of the dropped transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gone {
    /// The session was dropped on this thread.
    Here,
    /// The session was dropped on a thread that has ended.
    WithItsThread,
    /// The session still exists, and runs nothing.
    Resting,
}

/// Changes records 1 and 2, which have equal values.
async fn change(session: &mut Session, rows: Table<Row>, kind: Kind) -> Result<(), Error> {
    session
        .transact(async |tx| {
            for key in [1, 2] {
                match kind {
                    Kind::Update => _ = rows.put(tx, &Row { id: key, v: 8 }).await?,
                    Kind::Insert => _ = rows.put(tx, &Row { id: 10 + key, v: 8 }).await?,
                    Kind::Delete => _ = rows.delete(tx, key),
                    Kind::Read => _ = rows.find(tx, key).await?,
                }
            }
            Ok(())
        })
        .await
}

/// Polls a future `polls` times. Returns whether the future has ended.
fn poll_some(future: impl Future<Output = Result<(), Error>>, polls: usize) -> bool {
    let mut future = pin!(future);
    let mut waiting = Waiting::from_waker(Waker::noop());
    (0..polls).any(|_| match future.as_mut().poll(&mut waiting) {
        Poll::Ready(ended) => {
            ended.expect("nothing is broken");
            true
        }
        Poll::Pending => false,
    })
}

/// Reads records 1 and 2 and the two inserted records. Asserts that the values in each of these two pairs are equal.
fn look(session: &mut Session, rows: Table<Row>) -> [Option<u64>; 2] {
    let seen = session.run(async |tx| {
        let mut seen = [None; 4];
        for (at, key) in [1, 2, 11, 12].into_iter().enumerate() {
            seen[at] = rows.find(tx, key).await?.map(|row| row.v);
        }
        tarn::Ok(seen)
    });
    let [one, two, three, four] = seen.expect("nothing is in its way");
    assert_eq!((one, three), (two, four), "half of it is there");
    [one, three]
}

/// Uses a database after one of its transactions was dropped: sessions run one after another, and then two in
/// parallel.
fn go_on(tarn: &Tarn, rows: Table<Row>, before: Option<[Option<u64>; 2]>) -> [Option<u64>; 2] {
    let mut seen = before;
    for turn in 0..3 {
        let mut session = tarn.session().expect("a session");
        let now = look(&mut session, rows);
        assert_eq!(*seen.get_or_insert(now), now, "it came later");
        put(&mut session, rows, 20, turn).expect("nothing is in its way");
    }
    let [mut one, mut two] = [(); 2].map(|()| tarn.session().expect("a session"));
    assert_eq!([look(&mut one, rows), look(&mut two, rows)].map(Some), [seen; 2]);
    put(&mut two, rows, 21, 1).expect("nothing is in its way");
    seen.expect("it was seen")
}

/// Drops a transaction after `polls` polls. Returns whether the transaction had ended before.
fn drop_one(protocol: &str, (copies, kind, gone): (usize, Kind, Gone), polls: usize) -> bool {
    let (tarn, rows) = open(protocol, copies, Some(Nanos(2_000_000_000)));
    let mut first = tarn.session().expect("a session");
    for key in [1, 2, 20, 21] {
        put(&mut first, rows, key, 7).expect("nothing is broken");
    }
    drop(first);
    let drop_it = || {
        let mut session = tarn.session().expect("a session");
        let ended = poll_some(change(&mut session, rows, kind), polls);
        (ended, session)
    };
    let (ended, resting) = match gone {
        Gone::Here => (drop_it().0, None),
        Gone::WithItsThread => std::thread::scope(|scope| {
            (scope.spawn(|| drop_it().0).join().expect("no panic"), None)
        }),
        Gone::Resting => {
            let (ended, session) = drop_it();
            (ended, Some(session))
        }
    };
    let seen = go_on(&tarn, rows, None);
    std::thread::scope(|scope| {
        let there = scope.spawn(|| go_on(&tarn, rows, Some(seen)));
        there.join().expect("no panic");
    });
    let has_happened = match kind {
        Kind::Update => seen == [Some(8), None],
        Kind::Insert => seen == [Some(7), Some(8)],
        Kind::Delete => seen == [None, None],
        Kind::Read => true,
    };
    assert!(has_happened || seen == [Some(7), None], "{seen:?}");
    assert!(has_happened || !ended, "acknowledged and lost");
    drop(resting);
    assert_eq!(tarn.cluster().database().log_area_owners.in_doubt(), []);
    // Every session number is free, so the test can create 12 sessions.
    let sessions: Result<Vec<Session>, Error> = (0..12).map(|_| tarn.session()).collect();
    for session in &mut sessions.expect("as many as there may be") {
        put(session, rows, 22, 1).expect("nothing is in its way");
    }
    ended
}

#[test]
fn sessions_dropped_at_any_poll_block_no_other_session() {
    for protocol in those("surviving drops", |caps| caps.survives_drops) {
        let mut count = 0;
        for copies in [1, 2] {
            for kind in KINDS {
                for gone in [Gone::Here, Gone::WithItsThread, Gone::Resting] {
                    let ended = |polls: &usize| {
                        count += 1;
                        drop_one(protocol, (copies, kind, gone), *polls)
                    };
                    let polls = (1..200).find(ended);
                    assert!(polls.is_some(), "{protocol}, {kind:?}: it never ends");
                }
            }
        }
        println!("{protocol}: {count} dropped");
    }
}

/// Writes equal values to two records in a thread until `stop` is set.
fn keep_alike(tarn: &Tarn, rows: Table<Row>, stop: &AtomicBool) {
    let mut session = tarn.session().expect("a session");
    let mut v = 0;
    while !stop.load(Ordering::Relaxed) {
        v += 1;
        let written = session.run(async |tx| {
            let both = [1, 2].map(|key| rows.update(tx, key));
            tx.fetch().await?;
            both.into_iter().for_each(|row| rows.set(tx, row, &Row { id: row.key(), v }));
            tarn::Ok(())
        });
        written.expect("nothing is broken");
    }
}

/// The way in which a body reports a difference between records that never differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Abort,
    Error,
    Validated,
}

/// The errors of a body.
#[derive(Debug)]
enum Told {
    Itself,
    Store,
}

impl From<Error> for Told {
    fn from(_: Error) -> Told {
        Told::Store
    }
}

/// Runs bodies while a writer keeps two records equal. Returns two numbers: how many bodies reported a difference to
/// their caller, and how many saw a difference.
fn count_told(protocol: &str, way: Way, tries: u64) -> (u64, u64) {
    let (tarn, rows) = open(protocol, 1, None);
    let mut session = tarn.session().expect("a session");
    for key in [1, 2] {
        put(&mut session, rows, key, 0).expect("nothing is broken");
    }
    let (stop, saw) = (AtomicBool::new(false), AtomicU64::new(0));
    let told = std::thread::scope(|scope| {
        scope.spawn(|| keep_alike(&tarn, rows, &stop));
        let mut told = 0;
        for turn in 0..tries {
            let ended = session.run(async |tx| {
                let one = rows.read(tx, 1);
                tx.fetch().await?;
                if turn % 16 == 0 {
                    std::thread::yield_now();
                }
                let two = rows.read(tx, 2);
                match way {
                    Way::Validated => tx.fetch_validated().await?,
                    Way::Abort | Way::Error => tx.fetch().await?,
                }
                let v = |record| rows.get(tx, record).map(|row| row.v);
                if v(one) == v(two) {
                    return Ok(());
                }
                saw.fetch_add(1, Ordering::Relaxed);
                if way == Way::Error { Err(Told::Itself) } else { Ok(tx.abort()?) }
            });
            told += u64::from(matches!(ended, Err(Told::Itself | Told::Store)));
        }
        stop.store(true, Ordering::Relaxed);
        told
    });
    (told, saw.into_inner())
}

#[test]
fn a_caller_s_abort_on_a_state_that_never_was_is_retried() {
    let tries = std::env::var("TARN_SEEDS").map_or(2_000, |seeds| seeds.parse().unwrap());
    let (mut saw_any, mut all) = (0, 0);
    for protocol in ALL.iter().map(|info| info.name) {
        for way in [Way::Abort, Way::Error, Way::Validated] {
            let (told, saw) = count_told(protocol, way, tries);
            println!("{protocol}, {way:?}: {saw} of {tries} saw it, {told} were told");
            assert_eq!(told, 0, "{protocol}, {way:?}");
            assert!(way != Way::Validated || saw == 0, "{protocol}: {saw} saw it validated");
            (saw_any, all) = (saw_any + saw, all + tries);
        }
    }
    println!("{saw_any} of {all} bodies saw what never was");
    assert!(saw_any > 0, "nobody saw it: the test tests nothing");
}
