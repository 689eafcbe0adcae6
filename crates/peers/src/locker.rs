//! A lock service as a thread with many virtual clients drives it: requests go in, grants come out later.
//!
//! Invariant: a client has at most one request that waits. A grant is told once, by [`Locker::poll`] or [`Locker::reply`], and the lock is
//! held until [`Locker::release`].

use crate::connection::PeerError;
use crate::resp::Value;
use crate::store::{Sent, Slot, Store};
use tarn_locks::value::{LockId, Mode};

/// The locks of a thread's clients.
///
/// A locker may put its commands on the thread's connection to the store; it is handed their replies.
pub trait Locker {
    /// A client requests a lock.
    ///
    /// # Errors
    /// The service cannot be reached.
    fn request(
        &mut self,
        slot: Slot,
        lock: LockId,
        mode: Mode,
        store: &mut Store,
    ) -> Result<(), PeerError>;

    /// A client releases a lock.
    ///
    /// # Errors
    /// The service cannot be reached, or says that the client did not hold the lock.
    fn release(&mut self, slot: Slot, lock: LockId, store: &mut Store) -> Result<(), PeerError>;

    /// The reply to a command that the locker has put on the store's connection. A locker that puts none there gets no
    /// reply.
    ///
    /// # Errors
    /// The reply is of another kind than the command allows.
    fn reply(
        &mut self,
        of: (Slot, Sent),
        value: &Value,
        store: &mut Store,
        granted: &mut Vec<Slot>,
    ) -> Result<(), PeerError> {
        let _ = (value, store, granted);
        unreachable!("this locker has put no command on the store's connection: {of:?}")
    }

    /// Takes in whatever has arrived elsewhere, and attempts whatever is to be attempted. Returns whether anything was done.
    ///
    /// # Errors
    /// The service cannot be reached.
    fn poll(&mut self, granted: &mut Vec<Slot>) -> Result<bool, PeerError>;

    /// Whether [`Locker::poll`] has something to do at once, so that the thread must not sleep on the store's connection.
    fn is_busy(&self) -> bool;

    /// Attempts that were made in vain.
    fn failed(&self) -> u64 {
        0
    }

    /// Runs the turns of the thread.
    fn turns(&self) -> Box<dyn Turns> {
        Box::new(Plain)
    }
}

/// The result of a turn of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// There may be more to do.
    Again,
    /// There is nothing to do before the lock service has something.
    Idle,
    /// The turns are over.
    Over,
}

/// Calls a thread's turn again and again. A service that carries packets in the callers' threads does so between the turns, and may sleep
/// after an idle one.
pub trait Turns {
    /// Calls `turn` until the turns are over.
    fn run(&self, turn: &mut dyn FnMut() -> Turn);
}

struct Plain;

impl Turns for Plain {
    fn run(&self, turn: &mut dyn FnMut() -> Turn) {
        loop {
            match turn() {
                Turn::Again => {}
                Turn::Idle => std::thread::yield_now(),
                Turn::Over => return,
            }
        }
    }
}

/// Calls `turn` inside the service until the turns are over, or one fails.
pub(crate) fn run_turns(
    turns: &dyn Turns,
    mut turn: impl FnMut() -> Result<Turn, PeerError>,
) -> Result<(), PeerError> {
    let mut result = Ok(());
    turns.run(&mut || match turn() {
        Ok(turn) => turn,
        Err(error) => {
            result = Err(error);
            Turn::Over
        }
    });
    result
}
