//! Tests a change of the configuration that is called off while transactions run. The tests use every protocol, and
//! every source of timestamps that the protocol can use.
//!
//! Invariant checked: acknowledged changes are present, and no reader sees only a part of a transaction. If a change
//! of the configuration does not take place, the configuration and its number stay the same.

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context as Waiting, Poll, Waker};
use tarn::cluster::{Cluster, ClusterConfig};
use tarn::{Row, Tarn};
use tarn_engine::protocol::{ALL, names};
use tarn_engine::recovery::reconfigure::{self, Terms};
use tarn_engine::requests::serve;
use tarn_engine::requests::timestamp::pool_word;
use tarn_engine::services::timestamp::Timestamps;
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::session::transaction::Transaction;
use tarn_engine::site::Context;
use tarn_fabric::clock::Nanos;
use tarn_fabric::local::Backing;
use tarn_store::ids::Failure;
use tarn_store::schema::{Cells, ColumnId, ColumnType, TableId, TableSchema};

const T: TableId = TableId(0);
const A: ColumnId = ColumnId(0);

/// Two compute nodes with one thread each. Both nodes run on the thread of the test.
struct Stage {
    cluster: Cluster,
    nodes: Vec<Rc<Context>>,
}

impl Stage {
    fn new(protocol: &str, pool: bool) -> Stage {
        let schema = TableSchema::new("t", 100).column("a", ColumnType::U64);
        let config = ClusterConfig {
            protocol: protocol.into(),
            memory_nodes: 2,
            replicas: 2,
            compute_nodes: 2,
            backing: Backing::Private,
            ..ClusterConfig::default()
        };
        let cluster = Cluster::new(&[schema], &config).expect("a cluster");
        let lives = [0, 1].map(|slot| cluster.join(slot).expect("a life"));
        serve::share_out(cluster.database(), &lives.each_ref().map(|node| node.id));
        let nodes = lives.iter().map(|node| {
            let mut cx = cluster.context(node, 0).expect("a thread");
            if pool {
                cx.timestamps = Timestamps::Pool(pool_word());
            }
            Rc::new(cx)
        });
        let nodes = nodes.collect();
        let stage = Stage { cluster, nodes };
        let mut by = stage.coordinator(0);
        for key in 1..4u64 {
            let filled = by.transact(async |tx| {
                let row = tx.insert(T, key);
                tx.fetch().await?;
                tx.set(row, A, 1u64);
                Ok(())
            });
            assert_eq!(stage.drive(pin!(filled)), Ok(()));
        }
        stage
    }

    fn coordinator(&self, node: u32) -> Coordinator {
        let retry = Retry { deadline: Some(Nanos(10_000_000_000)), ..Retry::PATIENT };
        Coordinator::new(Rc::clone(&self.nodes[node as usize]), node, retry)
    }

    fn poll<F: Future>(&self, future: Pin<&mut F>) -> Option<F::Output> {
        self.nodes.iter().for_each(|cx| cx.serve());
        match future.poll(&mut Waiting::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    fn drive<F: Future>(&self, mut future: Pin<&mut F>) -> F::Output {
        loop {
            if let Some(value) = self.poll(future.as_mut()) {
                return value;
            }
        }
    }

    /// Node 1 announces a change of the configuration. Then the test drops the future of this change, because node 0
    /// is busy.
    fn drop_a_change(&self) {
        let configurations = &self.cluster.database().configurations;
        let before = configurations.open();
        let mut told = |_, _: &_| {};
        {
            let change = reconfigure::change(&self.nodes[1], Terms::default(), &mut told, |_| None);
            let change = pin!(change);
            assert!(self.poll(change).is_none(), "it waits for the busy");
            assert_ne!(configurations.announced(), before.number);
        }
        assert_eq!(configurations.open(), before);
        assert_eq!(configurations.announced(), before.number);
    }
}

/// Runs `test` under every protocol with the process's counter of timestamps. If the protocol takes timestamps, the
/// function also runs `test` with the timestamps of the memory pool.
fn each(test: impl Fn(&Stage, &str)) {
    for info in ALL {
        for pool in [false, true] {
            let stage = Stage::new(info.name, pool);
            if !pool || stage.cluster.database().protocol.needs().timestamps {
                test(&stage, &format!("{}, pool {pool}", info.name));
            }
        }
    }
}

async fn turn() {
    let mut was = false;
    std::future::poll_fn(|_| match std::mem::replace(&mut was, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

async fn until(stage: &Cell<u32>, at: u32) {
    while stage.get() < at {
        turn().await;
    }
}

async fn write(tx: &mut Transaction<'_>, key: u64, value: u64) -> Result<(), Failure> {
    let row = tx.update(T, key, Cells::ALL);
    tx.fetch().await?;
    tx.set(row, A, value);
    Ok(())
}

async fn read(tx: &mut Transaction<'_>, key: u64) -> Result<Option<u64>, Failure> {
    let row = tx.read(T, key, Cells::ALL);
    tx.fetch().await?;
    Ok(tx.get(row).map(|row| row.u64(A)))
}

#[test]
fn no_acknowledged_update_is_lost_beside_a_change_that_is_dropped() {
    each(|stage, what| {
        let at = Cell::new(0);
        let (mut a, mut b) = (stage.coordinator(0), stage.coordinator(1));
        let mut first = pin!(a.transact(async |tx| {
            let one = tx.update(T, 1, Cells::ALL);
            tx.fetch().await?;
            at.set(at.get().max(1));
            until(&at, 2).await;
            let two = tx.update(T, 2, Cells::ALL);
            tx.fetch().await?;
            let seen = tx.get(two).map_or(0, |row| row.u64(A));
            tx.set(one, A, seen + 1);
            tx.set(two, A, seen + 1);
            Ok(seen)
        }));
        while at.get() < 1 {
            assert!(stage.poll(first.as_mut()).is_none());
        }
        stage.drop_a_change();
        let second = b.transact(async |tx| write(tx, 2, 100).await);
        assert_eq!(stage.drive(pin!(second)), Ok(()), "{what}");
        at.set(2);
        assert_eq!(stage.drive(first), Ok(100), "{what}");
        let after = b.transact(async |tx| Ok([read(tx, 1).await?, read(tx, 2).await?]));
        assert_eq!(stage.drive(pin!(after)), Ok([Some(101); 2]), "{what}");
    });
}

#[test]
fn readers_beside_a_dropped_change_see_whole_transactions() {
    each(|stage, what| {
        let (at, seen) = (Cell::new(0), Cell::new(0));
        let (mut a, mut b) = (stage.coordinator(0), stage.coordinator(1));
        let mut first = pin!(a.transact(async |tx| {
            at.set(at.get().max(1));
            until(&at, 2).await;
            let both = [1, 2].map(|key| tx.update(T, key, Cells::ALL));
            tx.fetch().await?;
            both.into_iter().for_each(|row| tx.set(row, A, 50u64));
            Ok(())
        }));
        while at.get() < 1 {
            assert!(stage.poll(first.as_mut()).is_none());
        }
        stage.drop_a_change();
        let third = b.transact(async |tx| write(tx, 3, 100).await);
        assert_eq!(stage.drive(pin!(third)), Ok(()), "{what}");
        let mut reader = pin!(b.transact_read_only(async |tx| {
            let one = read(tx, 1).await?;
            seen.set(seen.get().max(1));
            until(&seen, 2).await;
            Ok([one, read(tx, 2).await?])
        }));
        while seen.get() < 1 {
            assert!(stage.poll(reader.as_mut()).is_none());
        }
        at.set(2);
        // The writer ends while the reader runs, or after the reader, because the reader may hold locks.
        let mut written = None;
        for _ in 0..1_000 {
            written = written.or_else(|| stage.poll(first.as_mut()));
        }
        seen.set(2);
        let mut read = None;
        // Both transactions advance in turn, because each may have to wait for a step of the other.
        while read.is_none() || written.is_none() {
            written = written.or_else(|| stage.poll(first.as_mut()));
            read = read.or_else(|| stage.poll(reader.as_mut()));
        }
        let read = read.expect("it ended").expect("it reads");
        assert!([[Some(1); 2], [Some(50); 2]].contains(&read), "{what}: {read:?}");
        assert_eq!(written, Some(Ok(())), "{what}");
    });
}

#[derive(Row)]
#[row(table = "words", key(id))]
struct Word {
    id: u64,
    text: [u8; 8],
}

/// A superblock has room for the name of each protocol and each of its forms.
#[test]
fn every_name_of_a_protocol_opens_a_database() -> Result<(), tarn::Error> {
    for name in names() {
        let tarn = Tarn::embedded().table::<Word>(10).protocol(name, "corrected").open()?;
        let words = tarn.table::<Word>()?;
        let mut session = tarn.session()?;
        session.run(async |tx| words.put(tx, &Word { id: 1, text: *b"tarn    " }).await)?;
        let found = session.run(async |tx| words.find(tx, 1).await)?;
        assert_eq!(found.map(|word| (word.id, word.text)), Some((1, *b"tarn    ")), "{name}");
    }
    Ok(())
}
