//! The configuration of a run.
//!
//! Invariant: a configuration that passes [`Options::check`] can be measured. A refusal names the field, its value, and the values that are
//! allowed.

use crate::banking::Bank;
use std::fmt;
use std::time::Duration;
use tarn_locks::trace::{Picker, Skew};

/// Requests under way where many are. Source: the acceptance figures of the lock service.
pub(crate) const DEEP: usize = 32;
/// Clients of one thread, at most: questions of a lane that may be unanswered at once.
const DEPTH_MAX: usize = 64;
const THREADS_MAX: usize = 62;
const ACCOUNTS_MAX: u32 = 10_000_000;

/// The configuration of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Accounts of the bank, and locks of the pairs.
    pub accounts: u32,
    /// Threads with clients of the bank.
    pub threads: usize,
    /// Clients of a thread.
    pub depth: usize,
    /// Of 100 operations, so many read a balance.
    pub read_percent: u64,
    /// Zipf's exponent of the accounts; 0 is uniform.
    pub theta: f64,
    /// Seconds of one measurement.
    pub seconds: f64,
    /// Measurements of each kind; the median is reported.
    pub repetitions: usize,
    /// The seed of accounts, amounts and locks.
    pub seed: u64,
    /// Measure lock and unlock.
    pub pairs: bool,
    /// Measure the bank.
    pub banking: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            accounts: 100_000,
            threads: 1,
            depth: 32,
            read_percent: 90,
            theta: 0.99,
            seconds: 1.0,
            repetitions: 3,
            seed: 1,
            pairs: true,
            banking: true,
        }
    }
}

/// A value of the configuration that is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptionsError {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// The values that are allowed.
    pub allowed: String,
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}; allowed: {}", self.field, self.value, self.allowed)
    }
}

impl std::error::Error for OptionsError {}

impl Options {
    /// Checks each value.
    ///
    /// # Errors
    /// The first value that is not allowed.
    pub fn check(&self) -> Result<(), OptionsError> {
        let refuse = |field, value: &dyn fmt::Display, allowed: String| {
            Err(OptionsError { field, value: value.to_string(), allowed })
        };
        let range = |low: &dyn fmt::Display, high: &dyn fmt::Display| format!("{low} to {high}");
        // Each client of the pairs has locks of its own, and a transfer needs two accounts.
        if !(DEEP as u32..=ACCOUNTS_MAX).contains(&self.accounts) {
            return refuse("accounts", &self.accounts, range(&DEEP, &ACCOUNTS_MAX));
        }
        if !(1..=THREADS_MAX).contains(&self.threads) {
            return refuse("threads", &self.threads, range(&1, &THREADS_MAX));
        }
        if !(1..=DEPTH_MAX).contains(&self.depth) {
            return refuse("depth", &self.depth, range(&1, &DEPTH_MAX));
        }
        if self.read_percent > 100 {
            return refuse("read_percent", &self.read_percent, range(&0, &100));
        }
        if !(0.0..=4.0).contains(&self.theta) {
            return refuse("theta", &self.theta, range(&"0 (uniform)", &4));
        }
        if !(0.01..=3_600.0).contains(&self.seconds) {
            return refuse("seconds", &self.seconds, range(&0.01, &3_600));
        }
        if !(1..=100).contains(&self.repetitions) {
            return refuse("repetitions", &self.repetitions, range(&1, &100));
        }
        Ok(())
    }

    pub(crate) fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    pub(crate) fn bank(&self) -> Bank {
        let skew = match self.theta {
            0.0 => Skew::Uniform,
            theta => Skew::Zipf { theta, scattered: true },
        };
        let picker = Picker::new(self.accounts, skew);
        Bank { picker, read_percent: self.read_percent, time: self.time(), depth: self.depth }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        let refused = |options: Options| options.check().unwrap_err().to_string();
        let base = Options::default;
        assert_eq!(base().check(), Ok(()));
        let texts = [
            refused(Options { accounts: 31, ..base() }),
            refused(Options { threads: 63, ..base() }),
            refused(Options { depth: 0, ..base() }),
            refused(Options { read_percent: 101, ..base() }),
            refused(Options { theta: f64::NAN, ..base() }),
            refused(Options { seconds: 0.0, ..base() }),
            refused(Options { repetitions: 0, ..base() }),
        ];
        assert_eq!(texts[0], "accounts = 31; allowed: 32 to 10000000");
        assert_eq!(texts[1], "threads = 63; allowed: 1 to 62");
        assert_eq!(texts[2], "depth = 0; allowed: 1 to 64");
        assert_eq!(texts[3], "read_percent = 101; allowed: 0 to 100");
        assert_eq!(texts[4], "theta = NaN; allowed: 0 (uniform) to 4");
        assert_eq!(texts[5], "seconds = 0; allowed: 0.01 to 3600");
        assert_eq!(texts[6], "repetitions = 0; allowed: 1 to 100");
    }
}
