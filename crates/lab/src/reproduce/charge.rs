//! Times of a published system's own software that differ from the testbed's profile.
//!
//! Invariant: a charge is a constant of the profile with another value, and says where that value is from
//! and how far it can be trusted, as the profile does. Charges belong to a system, never to a figure: none
//! is chosen by its outcome.

use super::text::{self, Kept};
use serde::{Deserialize, Serialize};
use std::fmt;
use tarn_sim::profile::{Profile, Standing};

/// One constant, for one system.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Charge {
    /// Its section and name in the profile.
    #[serde(deserialize_with = "text::kept_from")]
    pub key: Kept,
    /// Its value, in the unit that the name ends in.
    pub value: f64,
    /// How far it can be trusted.
    pub standing: Standing,
    /// Where it is from.
    #[serde(deserialize_with = "text::kept_from")]
    pub source: Kept,
}

impl fmt::Display for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let standing = match self.standing {
            Standing::Measured => "measured",
            Standing::Derived => "derived",
            Standing::Assumed => "assumed",
        };
        write!(f, "{} = {} ({standing}): {}", self.key, self.value, self.source)
    }
}

/// Charges of clocks: a cluster's clocks are drawn when it is made.
pub fn of_clocks(charges: &[Charge]) -> Vec<Charge> {
    charges.iter().filter(|charge| charge.key.starts_with("clock.")).copied().collect()
}

/// The testbed as a system with such software meets it.
///
/// # Panics
/// If a charge names no constant of a profile, or a value that it does not allow.
pub fn charged(testbed: Profile, charges: &[Charge]) -> Profile {
    charges.iter().fold(testbed, |profile, Charge { key, value, .. }| {
        profile.with(key, *value).unwrap_or_else(|error| panic!("a charge: {error}"))
    })
}
