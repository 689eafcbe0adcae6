//! Pairs of lock and unlock a second: of each service, alone and with many requests under way.
//!
//! Invariant: no two clients want the same lock at once, so that the figures are those of the services and not of waiting. A pair counts when
//! its lock was granted and its unlock was sent; where clients block, when the unlock was answered.

use crate::clock;
use crate::connection::{Connection, PeerError, Wait, expect};
use crate::dice::Dice;
use crate::etcd::{EtcdError, Gateway};
use crate::locker::{Locker, Turn, run_turns};
use crate::resp::{Value, digits};
use crate::store::{Slot, Store};
use std::net::SocketAddr;
use std::time::Duration;
use tarn_locks::value::{LockId, Mode};

/// Pairs in a time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pairs {
    /// Their number.
    pub count: u64,
    /// From the first request to the last answer.
    pub time: Duration,
}

impl Pairs {
    /// Pairs a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.count as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

/// How a measurement is made.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Locks that are taken in turn, at random.
    pub locks: u32,
    /// Requests that are under way at once.
    pub depth: usize,
    /// How long.
    pub time: Duration,
    /// The seed of the locks.
    pub seed: u64,
}

impl Load {
    /// Draws a lock that no other client draws.
    fn lock(&self, slot: usize, dice: &mut Dice) -> LockId {
        let depth = self.depth as u32;
        let each = (self.locks / depth).max(1);
        LockId(dice.below(u64::from(each)) as u32 * depth + slot as u32)
    }
}

fn key(lock: LockId) -> Vec<u8> {
    let mut key = b"lock-".to_vec();
    digits(&mut key, u64::from(lock.0));
    key
}

const SET: (&str, &str) = ("SET", "OK");
const DEL: (&str, &str) = ("DEL", "1, the lock was held until now");

fn put_set(connection: &mut Connection, lock: LockId) {
    connection.put(&[b"SET", &key(lock), b"token", b"NX"]);
}

fn is_set(value: &Value) -> Result<(), PeerError> {
    expect(*value == Value::Simple("OK".into()), SET, value)
}

fn is_deleted(value: &Value) -> Result<(), PeerError> {
    expect(*value == Value::Integer(1), DEL, value)
}

fn next(connection: &mut Connection, wait: Wait) -> Result<Value, PeerError> {
    let value = connection.receive(wait)?;
    value.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into())
}

/// `SET key token NX` and `DEL key` over so many connections as the load is deep, each with one command under way.
///
/// # Errors
/// Redis cannot be reached, or refuses a command.
pub fn redis_connections(at: SocketAddr, load: &Load) -> Result<Pairs, PeerError> {
    let open = |_| Connection::open(at);
    let mut connections = (0..load.depth).map(open).collect::<Result<Vec<_>, _>>()?;
    let mut dice = Dice::new(load.seed, 0);
    let start = clock::now();
    // The lock that a connection holds; `None` while it asks for it.
    let mut clients = Vec::new();
    for (slot, connection) in connections.iter_mut().enumerate() {
        let lock = load.lock(slot, &mut dice);
        put_set(connection, lock);
        connection.flush()?;
        clients.push((lock, false));
    }
    let (mut count, mut is_due) = (0, false);
    let mut active = load.depth;
    while active > 0 {
        is_due = is_due || clock::now().duration_since(start) >= load.time;
        // Redis answers a round of connections together, so that reading them in turn waits for the first one only.
        for (slot, connection) in connections.iter_mut().enumerate() {
            if connection.unanswered() == 0 {
                continue;
            }
            let value = next(connection, Wait::Sleeps)?;
            let (lock, is_held) = &mut clients[slot];
            if *is_held {
                is_deleted(&value)?;
                count += 1;
                if is_due {
                    active -= 1;
                    continue;
                }
                *lock = load.lock(slot, &mut dice);
                put_set(connection, *lock);
            } else {
                is_set(&value)?;
                connection.put(&[b"DEL", &key(*lock)]);
            }
            *is_held = !*is_held;
            connection.flush()?;
        }
    }
    Ok(Pairs { count, time: clock::now().duration_since(start) })
}

/// `SET key token NX` and `DEL key` over one connection, with so many locks under way as the load is deep. A client's next lock leaves together
/// with its last unlock.
///
/// # Errors
/// Redis cannot be reached, or refuses a command.
pub fn redis_pipelined(at: SocketAddr, load: &Load) -> Result<Pairs, PeerError> {
    let mut connection = Connection::open(at)?;
    let mut dice = Dice::new(load.seed, 0);
    let start = clock::now();
    let mut sent = std::collections::VecDeque::new();
    for slot in 0..load.depth {
        let lock = load.lock(slot, &mut dice);
        put_set(&mut connection, lock);
        sent.push_back(Some((slot, lock)));
    }
    let (mut count, mut is_due) = (0, false);
    while !sent.is_empty() {
        is_due = is_due || clock::now().duration_since(start) >= load.time;
        let mut wait = Wait::Sleeps;
        while let Some(value) = connection.receive(wait)? {
            wait = Wait::Takes;
            let Some((slot, lock)) = sent.pop_front().flatten() else {
                is_deleted(&value)?;
                continue;
            };
            is_set(&value)?;
            connection.put(&[b"DEL", &key(lock)]);
            sent.push_back(None);
            count += 1;
            if !is_due {
                let lock = load.lock(slot, &mut dice);
                put_set(&mut connection, lock);
                sent.push_back(Some((slot, lock)));
            }
        }
        connection.flush()?;
    }
    Ok(Pairs { count, time: clock::now().duration_since(start) })
}

/// Locks and unlocks through a locker.
///
/// # Errors
/// The service cannot be reached, or answers otherwise than it should.
pub fn through(
    locker: &mut impl Locker,
    store: &mut Store,
    load: &Load,
) -> Result<Pairs, PeerError> {
    let mut dice = Dice::new(load.seed, 0);
    let mut wanted: Vec<_> = (0..load.depth).map(|slot| load.lock(slot, &mut dice)).collect();
    let start = clock::now();
    let (mut count, mut is_begun, mut active) = (0, false, load.depth);
    let mut granted = Vec::new();
    run_turns(&*locker.turns(), || {
        if !std::mem::replace(&mut is_begun, true) {
            let mut wanted = wanted.iter().enumerate();
            wanted.try_for_each(|(slot, lock)| {
                locker.request(Slot(slot), *lock, Mode::Exclusive, store)
            })?;
        }
        let is_due = clock::now().duration_since(start) >= load.time;
        store.flush()?;
        let mut has_progress = locker.poll(&mut granted)?;
        let mut wait = if has_progress || locker.is_busy() { Wait::Looks } else { Wait::Sleeps };
        while let Some((slot, sent, value)) = store.receive(wait)? {
            (has_progress, wait) = (true, Wait::Takes);
            locker.reply((slot, sent), &value, store, &mut granted)?;
        }
        for slot in std::mem::take(&mut granted) {
            locker.release(slot, wanted[slot.0], store)?;
            count += 1;
            if is_due {
                active -= 1;
                continue;
            }
            wanted[slot.0] = load.lock(slot.0, &mut dice);
            locker.request(slot, wanted[slot.0], Mode::Exclusive, store)?;
        }
        if store.is_awaited() || locker.is_busy() {
            return Ok(Turn::Again);
        }
        Ok(match (active, has_progress) {
            (0, _) => Turn::Over,
            (_, true) => Turn::Again,
            (_, false) => Turn::Idle,
        })
    })?;
    Ok(Pairs { count, time: clock::now().duration_since(start) })
}

/// Locks and unlocks of etcd, over so many connections as the load is deep, each with a thread and a lease.
///
/// # Errors
/// etcd cannot be reached, or answers otherwise than it should.
pub fn etcd(at: SocketAddr, load: &Load) -> Result<Pairs, EtcdError> {
    let open = |_| -> Result<_, EtcdError> {
        let mut gateway = Gateway::open(at)?;
        let lease = gateway.lease()?;
        Ok((gateway, lease))
    };
    let clients = (0..load.depth).map(open).collect::<Result<Vec<_>, _>>()?;
    let start = clock::now();
    let work = |slot: usize, mut gateway: Gateway, lease: String| -> Result<u64, EtcdError> {
        let (mut dice, mut count) = (Dice::new(load.seed, slot as u64), 0);
        while clock::now().duration_since(start) < load.time {
            let name = format!("lock-{}", load.lock(slot, &mut dice).0);
            let key = gateway.lock(&name, &lease)?;
            gateway.unlock(&key)?;
            count += 1;
        }
        Ok(count)
    };
    let counts: Result<Vec<u64>, _> = std::thread::scope(|scope| {
        let clients = clients.into_iter().enumerate();
        let threads = clients
            .map(|(slot, (gateway, lease))| scope.spawn(move || work(slot, gateway, lease)))
            .collect::<Vec<_>>();
        let counts = threads.into_iter().map(|thread| thread.join().expect("no client panics"));
        counts.collect()
    });
    Ok(Pairs { count: counts?.into_iter().sum(), time: clock::now().duration_since(start) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use crate::redlock::{Literal, Pipelined};

    fn load(depth: usize) -> Load {
        Load { locks: 1_000, depth, time: Duration::from_millis(30), seed: 1 }
    }

    #[test]
    fn pairs_of_redis_end_with_all_locks_free() {
        let fake = Fake::start();
        for depth in [1, 32] {
            assert!(redis_connections(fake.address(), &load(depth)).unwrap().count >= depth as u64);
            assert!(redis_pipelined(fake.address(), &load(depth)).unwrap().count >= depth as u64);
            assert_eq!(fake.keys(), 0);
        }
    }

    #[test]
    fn pairs_of_redlock_end_with_all_locks_free() {
        let fake = Fake::start();
        let mut store = Store::open(fake.address()).unwrap();
        let mut literal = Literal::open(fake.address(), 1, 4).unwrap();
        assert!(through(&mut literal, &mut store, &load(4)).unwrap().count >= 4);
        let mut pipelined = Pipelined::open(&mut store, 1, 32).unwrap();
        assert!(through(&mut pipelined, &mut store, &load(32)).unwrap().count >= 32);
        assert_eq!((fake.keys(), pipelined.failed()), (0, 0));
    }

    #[test]
    fn clients_never_draw_the_same_lock() {
        let (load, mut dice) = (load(32), Dice::new(1, 1));
        for slot in (0..32).cycle().take(5_000) {
            let lock = load.lock(slot, &mut dice).0;
            assert_eq!((lock as usize % 32, lock < load.locks), (slot, true));
        }
    }
}
