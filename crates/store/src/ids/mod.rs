//! Names and numbers that all crates above use: transactions, timestamps, views, configurations, and how a
//! transaction ends.
//!
//! Invariant: each kind of number is a separate type, so that code does not compile if it uses one kind of number in
//! place of another.

mod outcome;
mod owner;

pub use outcome::{AbortReason, Explanation, Failure, Resolution, TxnId, UsageError, VERDICTS_MAX};
pub use owner::{COUNT_MAX, INCARNATIONS_MAX, OwnerTag, SLOTS_MAX, THREADS_MAX};

/// A point in the order of commits. The timestamp 0 is before all commits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The point before every commit.
    pub const ZERO: Timestamp = Timestamp(0);
    /// The timestamp of records that were loaded before any transaction ran.
    pub const LOADED: Timestamp = Timestamp(1);
    /// The greatest timestamp. In memory, the two bits above a timestamp are free for marks.
    pub const MAX: Timestamp = Timestamp((1 << 62) - 1);
}

/// A configuration's number. Each new configuration gets the next greater number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConfigurationNumber(pub u64);

impl ConfigurationNumber {
    /// The number of the configuration that a database begins with.
    pub const FIRST: ConfigurationNumber = ConfigurationNumber(1);
}

/// The number of a membership view.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ViewNumber(pub u64);

/// The purpose for which a caller accesses a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The caller wants the record's value.
    Read,
    /// The caller wants the record's value in order to change it.
    Update,
    /// The caller wants the record to exist from now on.
    Insert,
    /// The caller wants the record to be deleted.
    Delete,
}
