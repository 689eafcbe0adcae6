//! The accounts of the bank in a Redis: one hash an account, as in the published application.
//!
//! Invariant: a reply goes to the client whose command it answers. Balances and pipelined locks share one connection of a thread, so that one
//! sleep waits for both.

use crate::connection::{Connection, PeerError, Wait, expect};
use crate::resp::{Value, digits};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use tarn_locks::value::LockId;

/// The field of a hash that keeps the balance.
const FIELD: &[u8] = b"balance";
/// Commands that are sent before their replies are read, while accounts are made and counted.
const BULK: u32 = 1_000;

/// A virtual client of a thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub usize);

/// A command of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Read a balance.
    Read,
    /// Write a balance.
    Write,
    /// Take a lock.
    Acquire,
    /// Release a lock.
    Release,
}

/// The store as one thread sees it.
#[derive(Debug)]
pub struct Store {
    /// `None`: this locker needs no store.
    connection: Option<Connection>,
    sent: VecDeque<(Slot, Sent)>,
    key: Vec<u8>,
    number: Vec<u8>,
}

impl Store {
    /// Connects.
    ///
    /// # Errors
    /// The system's error.
    pub fn open(at: SocketAddr) -> io::Result<Store> {
        Ok(Store { connection: Some(Connection::open(at)?), ..Store::absent() })
    }

    /// No store, for lockers that put no command on it.
    #[must_use]
    pub fn absent() -> Store {
        Store { connection: None, sent: VecDeque::new(), key: Vec::new(), number: Vec::new() }
    }

    fn send(&mut self, slot: Slot, sent: Sent, parts: impl FnOnce(&mut Connection, &[u8], &[u8])) {
        let connection = self.connection.as_mut().expect("a store that is there");
        parts(connection, &self.key, &self.number);
        self.sent.push_back((slot, sent));
    }

    /// Puts a command of a client behind the others.
    pub fn put(&mut self, slot: Slot, sent: Sent, parts: &[&[u8]]) {
        self.send(slot, sent, |connection, _, _| connection.put(parts));
    }

    /// Reads a balance.
    pub fn read(&mut self, slot: Slot, account: LockId) {
        self.name(account);
        self.send(slot, Sent::Read, |connection, key, _| connection.put(&[b"HGET", key, FIELD]));
    }

    /// Writes a balance.
    pub fn write(&mut self, slot: Slot, account: LockId, balance: u64) {
        self.name(account);
        self.number.clear();
        digits(&mut self.number, balance);
        self.send(slot, Sent::Write, |connection, key, number| {
            connection.put(&[b"HSET", key, FIELD, number]);
        });
    }

    fn name(&mut self, account: LockId) {
        self.key.clear();
        digits(&mut self.key, u64::from(account.0));
    }

    /// Sends what waits.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn flush(&mut self) -> Result<(), PeerError> {
        self.connection.as_mut().map_or(Ok(()), Connection::flush)
    }

    /// Whether a command has no reply yet.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        !self.sent.is_empty()
    }

    /// The next reply, and the command that it answers.
    ///
    /// # Errors
    /// The connection has ended, or a command is refused.
    pub fn receive(&mut self, wait: Wait) -> Result<Option<(Slot, Sent, Value)>, PeerError> {
        let Some(connection) = &mut self.connection else { return Ok(None) };
        let Some(value) = connection.receive(wait)? else { return Ok(None) };
        let (slot, sent) = self.sent.pop_front().expect("each command has a sender");
        let command = match sent {
            Sent::Read => "HGET",
            Sent::Write => "HSET",
            Sent::Acquire => "SET",
            Sent::Release => "EVALSHA",
        };
        expect(!matches!(value, Value::Error(_)), (command, "a value"), &value)?;
        Ok(Some((slot, sent, value)))
    }

    /// One command, when no other is under way.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn call(&mut self, parts: &[&[u8]]) -> Result<Value, PeerError> {
        self.connection.as_mut().expect("a store that is there").call(parts)
    }

    /// Gives accounts 0 to `accounts` a balance.
    ///
    /// # Errors
    /// The connection has ended, or Redis refuses a balance.
    pub fn fill(&mut self, accounts: u32, balance: u64) -> Result<(), PeerError> {
        self.each(accounts, |store, account| store.write(Slot(0), account, balance), |_| Ok(()))
    }

    /// The sum of all balances.
    ///
    /// # Errors
    /// The connection has ended, or an account has no balance.
    pub fn sum(&mut self, accounts: u32) -> Result<u64, PeerError> {
        let mut sum = 0;
        let add = |value: Value| {
            sum += balance(&value)?;
            Ok(())
        };
        self.each(accounts, |store, account| store.read(Slot(0), account), add)?;
        Ok(sum)
    }

    fn each(
        &mut self,
        accounts: u32,
        ask: impl Fn(&mut Store, LockId),
        mut take: impl FnMut(Value) -> Result<(), PeerError>,
    ) -> Result<(), PeerError> {
        for first in (0..accounts).step_by(BULK as usize) {
            (first..accounts.min(first + BULK)).for_each(|account| ask(self, LockId(account)));
            while let Some((_, _, value)) = self.receive(Wait::Sleeps)? {
                take(value)?;
            }
        }
        Ok(())
    }
}

/// The balance that a reply states.
///
/// # Errors
/// It states none.
pub fn balance(value: &Value) -> Result<u64, PeerError> {
    let number = value.number().and_then(|number| u64::try_from(number).ok());
    expect(number.is_some(), ("HGET", "a balance of 0 or more"), value)?;
    Ok(number.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[test]
    fn accounts_are_filled_and_summed() {
        let fake = Fake::start();
        let mut store = Store::open(fake.address()).unwrap();
        store.fill(2_500, 7).unwrap();
        assert_eq!(store.sum(2_500).unwrap(), 17_500);
        store.write(Slot(1), LockId(2_499), 0);
        assert!(store.receive(Wait::Sleeps).unwrap().is_some());
        assert_eq!(store.sum(2_500).unwrap(), 17_493);
        assert!(store.sum(2_501).is_err(), "an account without balance is no account of 0");
    }
}
