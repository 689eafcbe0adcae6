//! The errors of the table.
//!
//! Invariant: an operation that returns an error has changed nothing, and the table can be used as before.

use std::error::Error;
use std::fmt;

use crate::raw::Obstacle;

/// The reason why the table did not store a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The key has an entry. Only `insert` gives this reason.
    Occupied,
    /// The key has another value than the expected one, or no entry. Only `compare_exchange` gives this reason.
    Different,
    /// The system has no memory for a larger index.
    OutOfMemory,
    /// The key's bin is full, and a 64 times larger table would not separate its 15 entries. Either the hash function
    /// is weak, or a key has too many entries.
    Collision,
    /// Another caller has locked the key. Only the functions that begin with `try_` give this reason.
    Locked,
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Occupied => "the key has an entry already",
            Self::Different => "the key has another value, or none",
            Self::OutOfMemory => "there is no memory for a larger table",
            Self::Collision => "15 other entries have almost the same hash",
            Self::Locked => "the key is locked",
        })
    }
}

impl Error for Reason {}

impl From<Obstacle> for Reason {
    fn from(obstacle: Obstacle) -> Self {
        match obstacle {
            Obstacle::OutOfMemory => Self::OutOfMemory,
            Obstacle::Collision => Self::Collision,
            Obstacle::Locked => Self::Locked,
        }
    }
}

/// A value that the table did not store, and the reason.
///
/// ```
/// use tarn_table::{Reason, Table};
///
/// let table = Table::new();
/// table.insert(1, "one").unwrap();
/// let refused = table.insert(1, "uno").unwrap_err();
/// assert_eq!((refused.value, refused.reason), ("uno", Reason::Occupied));
///
/// /// A type without `Debug` and `Clone`.
/// struct Opaque;
/// let table = Table::new();
/// table.insert(1, Opaque).unwrap();
/// assert_eq!(format!("{:?}", table.insert(1, Opaque)), "Err(Refused { reason: Occupied, .. })");
/// assert!(table.get_with(&1, |_| ()).is_some());
/// table.for_each(|key, _| assert_eq!(*key, 1));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Refused<V> {
    /// The value that the caller gave.
    pub value: V,
    /// The reason.
    pub reason: Reason,
}

impl<V> fmt::Display for Refused<V> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(out)
    }
}

/// Without the value, so that `unwrap` works for every type.
impl<V> fmt::Debug for Refused<V> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Refused").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl<V> Error for Refused<V> {}
