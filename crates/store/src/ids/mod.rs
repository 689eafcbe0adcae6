//! Names and numbers that every storey uses: transactions, timestamps, views, configurations; and how a transaction ends.
//!
//! Invariant: each is a type of its own, so that swapping two of them does not compile.

mod outcome;
mod owner;

pub use outcome::{AbortReason, Explanation, Failure, Resolution, TxnId, UsageError, VERDICTS_MAX};
pub use owner::{COUNT_MAX, INCARNATIONS_MAX, OwnerTag, SLOTS_MAX, THREADS_MAX};

/// A point in the order of commits. Zero is before all of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Before every commit.
    pub const ZERO: Timestamp = Timestamp(0);
    /// Of records that were loaded before any transaction ran.
    pub const LOADED: Timestamp = Timestamp(1);
    /// The last one: the two bits above it are free for marks beside it in memory.
    pub const MAX: Timestamp = Timestamp((1 << 62) - 1);
}

/// A configuration's number: the one that is opened next has the next number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConfigurationNumber(pub u64);

impl ConfigurationNumber {
    /// Of the configuration that a database begins with.
    pub const FIRST: ConfigurationNumber = ConfigurationNumber(1);
}

/// A view's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ViewNumber(pub u64);

/// What the caller wants of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Its value.
    Read,
    /// Its value, to change it.
    Update,
    /// That it exist from now on.
    Insert,
    /// That it exist no more.
    Delete,
}
