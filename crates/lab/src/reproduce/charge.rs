//! Charges: times that a published system's own software takes, where they differ from the times in the testbed's
//! hardware profile.
//!
//! Invariant: a charge replaces the value of one constant of the profile. Like the profile, a charge states the
//! source of its value and how reliable this value is. Charges belong to a system, never to a single figure, and no
//! charge is chosen by the result that it gives.

use super::text::{self, Kept};
use serde::{Deserialize, Serialize};
use std::fmt;
use tarn_sim::profile::{Profile, Standing};

/// The changed value of one constant, for one system.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Charge {
    /// The constant's section and name in the profile.
    #[serde(deserialize_with = "text::kept_from")]
    pub key: Kept,
    /// The constant's new value, in the unit with which the constant's name ends.
    pub value: f64,
    /// The reliability of this value.
    pub standing: Standing,
    /// The source of this value.
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

/// Returns the charges that change constants of clocks. A cluster's clock errors are drawn when the cluster is made,
/// so these charges must be known at that time.
pub fn of_clocks(charges: &[Charge]) -> Vec<Charge> {
    charges.iter().filter(|charge| charge.key.starts_with("clock.")).copied().collect()
}

/// Returns the hardware profile of the testbed, with the constants that the charges of a system replace.
///
/// # Panics
/// Panics if a charge names no constant of the profile, or if the profile does not allow the value.
pub fn charged(testbed: Profile, charges: &[Charge]) -> Profile {
    charges.iter().fold(testbed, |profile, Charge { key, value, .. }| {
        profile.with(key, *value).unwrap_or_else(|error| panic!("a charge: {error}"))
    })
}
