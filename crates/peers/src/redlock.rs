//! RedLock on one Redis: as published, through a client that blocks, and as well as a pipelined client can.
//!
//! Invariant: a key is set with the holder's token and only if it is absent, and removed only if it still has that token. Shared requests are
//! exclusive: a key has one holder. The algorithm: redis.io, "Distributed Locks with Redis"; one instance, as in the measured application.

use crate::connection::{Connection, PeerError, expect};
use crate::locker::Locker;
use crate::resp::{Value, digits};
use crate::store::{Sent, Slot, Store};
use std::io;
use std::net::SocketAddr;
use tarn_locks::value::{LockId, Mode};

/// Compares and deletes. Source: the page of the algorithm.
pub const RELEASE_SCRIPT: &str = "if redis.call('get',KEYS[1]) == ARGV[1] then \
                                  return redis.call('del',KEYS[1]) else return 0 end";
/// How long a lock lives, in milliseconds. Source: the measured application.
const LIVE_MS: &[u8] = b"10000";

/// Names of locks, and tokens of which no two are equal.
#[derive(Clone, Debug)]
struct Names {
    key: Vec<u8>,
    thread: u64,
    issued: u64,
}

impl Names {
    fn new(thread: u64) -> Names {
        Names { key: Vec::new(), thread, issued: 0 }
    }

    fn key(&mut self, lock: LockId) -> &[u8] {
        self.key.clear();
        self.key.extend_from_slice(b"lock-");
        digits(&mut self.key, u64::from(lock.0));
        &self.key
    }

    fn token(&mut self) -> Vec<u8> {
        self.issued += 1;
        let mut token = Vec::with_capacity(20);
        digits(&mut token, self.thread);
        token.push(b'-');
        digits(&mut token, self.issued);
        token
    }
}

/// The locks of each client, with their tokens.
#[derive(Clone, Debug)]
struct Held(Vec<Vec<(LockId, Vec<u8>)>>);

impl Held {
    fn add(&mut self, slot: Slot, lock: LockId, token: Vec<u8>) {
        self.0[slot.0].push((lock, token));
    }

    fn take(&mut self, slot: Slot, lock: LockId) -> Vec<u8> {
        let held = &mut self.0[slot.0];
        let at = held.iter().position(|it| it.0 == lock);
        held.swap_remove(at.expect("a client releases a lock that it holds")).1
    }
}

/// The client that sends one command, waits for the answer, and only then does anything else.
#[derive(Debug)]
pub struct Literal {
    connection: Connection,
    names: Names,
    waiting: Vec<(Slot, LockId)>,
    held: Held,
    failed: u64,
}

impl Literal {
    /// A client with a connection of its own, for the virtual clients of a thread.
    ///
    /// # Errors
    /// The system's error.
    pub fn open(at: SocketAddr, thread: u64, slots: usize) -> io::Result<Literal> {
        let connection = Connection::open(at)?;
        let held = Held(vec![Vec::new(); slots]);
        let names = Names::new(thread);
        Ok(Literal { connection, names, waiting: Vec::new(), held, failed: 0 })
    }

    /// One attempt. An attempt that fails is followed by a release, as the algorithm asks.
    fn attempt(&mut self, slot: Slot, lock: LockId) -> Result<bool, PeerError> {
        let token = self.names.token();
        let key = self.names.key(lock);
        let answer = self.connection.call(&[b"SET", key, &token, b"NX", b"PX", LIVE_MS])?;
        if is_set(&answer)? {
            self.held.add(slot, lock, token);
            return Ok(true);
        }
        self.connection.call(&[b"EVAL", RELEASE_SCRIPT.as_bytes(), b"1", key, &token])?;
        Ok(false)
    }
}

impl Locker for Literal {
    fn request(
        &mut self,
        slot: Slot,
        lock: LockId,
        _: Mode,
        _: &mut Store,
    ) -> Result<(), PeerError> {
        self.waiting.push((slot, lock));
        Ok(())
    }

    fn release(&mut self, slot: Slot, lock: LockId, _: &mut Store) -> Result<(), PeerError> {
        let token = self.held.take(slot, lock);
        let (key, script) = (self.names.key(lock), RELEASE_SCRIPT.as_bytes());
        let answer = self.connection.call(&[b"EVAL", script, b"1", key, &token])?;
        expect_released(&answer)
    }

    fn reply(
        &mut self,
        _: (Slot, Sent),
        value: &Value,
        _: &mut Store,
        _: &mut Vec<Slot>,
    ) -> Result<(), PeerError> {
        expect(false, ("a lock's command", "none on the store's connection"), value)
    }

    fn poll(&mut self, granted: &mut Vec<Slot>) -> Result<bool, PeerError> {
        let waiting = std::mem::take(&mut self.waiting);
        let has_attempted = !waiting.is_empty();
        for (slot, lock) in waiting {
            if self.attempt(slot, lock)? {
                granted.push(slot);
            } else {
                self.failed += 1;
                self.waiting.push((slot, lock));
            }
        }
        Ok(has_attempted)
    }

    fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn failed(&self) -> u64 {
        self.failed
    }
}

/// The client whose commands share the store's connection, with one under way for each virtual client.
///
/// An attempt that fails is made again as soon as its answer has come. It is not followed by a release, because the only Redis has said that
/// it set nothing. The script is loaded once and named by its hash.
#[derive(Debug)]
pub struct Pipelined {
    names: Names,
    script: Vec<u8>,
    wanted: Vec<Option<(LockId, Vec<u8>)>>,
    held: Held,
    failed: u64,
}

impl Pipelined {
    /// A client for the virtual clients of a thread. It loads the script.
    ///
    /// # Errors
    /// Redis cannot be reached, or refuses the script.
    pub fn open(store: &mut Store, thread: u64, slots: usize) -> Result<Pipelined, PeerError> {
        let answer = store.call(&[b"SCRIPT", b"LOAD", RELEASE_SCRIPT.as_bytes()])?;
        let Value::Text(Some(script)) = answer else {
            let names = ("SCRIPT LOAD", "the script's hash");
            return Err(expect(false, names, &answer).expect_err("the answer is not allowed"));
        };
        Ok(Pipelined {
            names: Names::new(thread),
            script,
            wanted: vec![None; slots],
            held: Held(vec![Vec::new(); slots]),
            failed: 0,
        })
    }

    fn attempt(&mut self, slot: Slot, store: &mut Store) {
        let (lock, token) = self.wanted[slot.0].as_ref().expect("a client that waits");
        let key = self.names.key(*lock);
        store.put(slot, Sent::Acquire, &[b"SET", key, token, b"NX", b"PX", LIVE_MS]);
    }
}

impl Locker for Pipelined {
    fn request(
        &mut self,
        slot: Slot,
        lock: LockId,
        _: Mode,
        store: &mut Store,
    ) -> Result<(), PeerError> {
        self.wanted[slot.0] = Some((lock, self.names.token()));
        self.attempt(slot, store);
        Ok(())
    }

    fn release(&mut self, slot: Slot, lock: LockId, store: &mut Store) -> Result<(), PeerError> {
        let token = self.held.take(slot, lock);
        let key = self.names.key(lock);
        store.put(slot, Sent::Release, &[b"EVALSHA", &self.script, b"1", key, &token]);
        Ok(())
    }

    fn reply(
        &mut self,
        (slot, sent): (Slot, Sent),
        value: &Value,
        store: &mut Store,
        granted: &mut Vec<Slot>,
    ) -> Result<(), PeerError> {
        if sent == Sent::Release {
            return expect_released(value);
        }
        if is_set(value)? {
            let (lock, token) = self.wanted[slot.0].take().expect("a client that waits");
            self.held.add(slot, lock, token);
            granted.push(slot);
        } else {
            self.failed += 1;
            self.attempt(slot, store);
        }
        Ok(())
    }

    fn poll(&mut self, _: &mut Vec<Slot>) -> Result<bool, PeerError> {
        Ok(false)
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn failed(&self) -> u64 {
        self.failed
    }
}

fn is_set(answer: &Value) -> Result<bool, PeerError> {
    let is_set = *answer == Value::Simple("OK".into());
    expect(is_set || answer.is_none(), ("SET", "OK, or nothing"), answer)?;
    Ok(is_set)
}

/// A lock that is gone at its release has lived too long: another client may have held it.
fn expect_released(answer: &Value) -> Result<(), PeerError> {
    expect(*answer == Value::Integer(1), ("a release", "1, the lock was held until now"), answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Wait;
    use crate::fake::Fake;

    const LOCK: LockId = LockId(7);

    fn drain(locker: &mut Pipelined, store: &mut Store) -> Vec<Slot> {
        let mut granted = Vec::new();
        // Each of two clients has at most one command under way: two replies are one round.
        for _ in 0..2 {
            if !store.is_awaited() {
                break;
            }
            let (slot, sent, value) = store.receive(Wait::Sleeps).unwrap().unwrap();
            locker.reply((slot, sent), &value, store, &mut granted).unwrap();
        }
        granted
    }

    #[test]
    fn a_pipelined_lock_has_one_holder_and_goes_to_the_waiter() {
        let fake = Fake::start();
        let mut store = Store::open(fake.address()).unwrap();
        let mut locker = Pipelined::open(&mut store, 1, 2).unwrap();
        locker.request(Slot(0), LOCK, Mode::Shared, &mut store).unwrap();
        locker.request(Slot(1), LOCK, Mode::Shared, &mut store).unwrap();
        assert_eq!(drain(&mut locker, &mut store), [Slot(0)]);
        assert_eq!(drain(&mut locker, &mut store), []);
        locker.release(Slot(0), LOCK, &mut store).unwrap();
        while drain(&mut locker, &mut store) != [Slot(1)] {}
        assert!(locker.failed >= 2);
    }

    #[test]
    fn a_literal_lock_has_one_holder_and_a_failed_attempt_frees_nothing() {
        let fake = Fake::start();
        let mut store = Store::open(fake.address()).unwrap();
        let mut locker = Literal::open(fake.address(), 1, 2).unwrap();
        let mut granted = Vec::new();
        for slot in [Slot(0), Slot(1)] {
            locker.request(slot, LOCK, Mode::Exclusive, &mut store).unwrap();
            locker.poll(&mut granted).unwrap();
        }
        assert_eq!((&granted[..], locker.is_busy()), (&[Slot(0)][..], true));
        locker.release(Slot(0), LOCK, &mut store).unwrap();
        locker.poll(&mut granted).unwrap();
        assert_eq!((&granted[..], locker.is_busy()), (&[Slot(0), Slot(1)][..], false));
    }

    #[test]
    fn a_lock_that_is_lost_is_told_at_its_release() {
        let fake = Fake::start();
        let mut store = Store::open(fake.address()).unwrap();
        let mut locker = Literal::open(fake.address(), 1, 1).unwrap();
        locker.request(Slot(0), LOCK, Mode::Exclusive, &mut store).unwrap();
        locker.poll(&mut Vec::new()).unwrap();
        // The lock's time runs out, and another client takes it.
        assert_eq!(store.call(&[b"DEL", b"lock-7"]).unwrap(), Value::Integer(1));
        store.call(&[b"SET", b"lock-7", b"another", b"NX", b"PX", b"9"]).unwrap();
        let error = locker.release(Slot(0), LOCK, &mut store).unwrap_err();
        assert!(error.to_string().contains("allowed: 1"), "{error}");
    }
}
