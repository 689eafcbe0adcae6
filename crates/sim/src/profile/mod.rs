//! Hardware profiles: what processors, NICs, links and clocks cost, each constant with its source.
//!
//! Invariant: the model has no number of its own. Whatever it charges comes from a profile, where it
//! stands beside the publication that it was read from, or is marked as derived or assumed. A profile
//! that names an unknown constant, leaves one out or gives an impossible value is refused.

mod error;
mod sections;

pub use error::ProfileError;
pub use sections::{Clock, Cpu, Link, Nic};

use serde::{Deserialize, Serialize};
use std::path::Path;

/// How far a constant can be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Published as a measurement, and read.
    Measured,
    /// Arithmetic on measurements.
    Derived,
    /// Common knowledge that nobody has verified: halve it and double it before leaning on it.
    Assumed,
}

/// A value, where it is from, and how far it can be trusted.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Constant<T> {
    /// The value, in the unit that the constant's name ends in.
    pub value: T,
    /// Publication, or arithmetic.
    pub source: String,
    /// How far it can be trusted.
    pub standing: Standing,
}

/// How a NIC executes atomics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtomicUnit {
    /// One after the other, whatever their addresses.
    Serial,
    /// Side by side, unless their addresses are equal.
    PerAddress,
}

/// Headers on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Framing {
    /// Native InfiniBand.
    Infiniband,
    /// RDMA over converged Ethernet, version 2.
    RoceV2,
}

/// What is chosen rather than counted.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    /// How the NIC executes atomics.
    pub atomic_unit: Constant<AtomicUnit>,
    /// Headers on the wire.
    pub framing: Constant<Framing>,
}

/// A cluster's hardware.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What it is called on the command line.
    pub name: String,
    /// What hardware it stands for.
    pub hardware: String,
    /// What is chosen rather than counted.
    pub form: Form,
    /// The requester's processor.
    pub cpu: Cpu,
    /// Every node's NIC.
    pub nic: Nic,
    /// Cables and the switch.
    pub link: Link,
    /// Oscillators.
    pub clock: Clock,
}

/// A constant as it is listed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Listed<'a> {
    /// `cpu`, `nic`, `link`, `clock`.
    pub section: &'static str,
    /// Name, which ends in the unit.
    pub name: &'static str,
    /// Value, source and standing.
    pub constant: &'a Constant<f64>,
    /// Smallest and largest value that is accepted.
    pub allowed: (f64, f64),
}

/// The profiles that come with the program.
const EMBEDDED: [(&str, &str); 3] = [
    ("cx3-56g", include_str!("../../../../profiles/cx3-56g.toml")),
    ("cx5-100g", include_str!("../../../../profiles/cx5-100g.toml")),
    ("cx6-200g", include_str!("../../../../profiles/cx6-200g.toml")),
];

impl Profile {
    /// Names of the profiles that come with the program.
    pub fn names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|(name, _)| *name)
    }

    /// A profile that comes with the program, or, if `name` ends in `.toml`, one from a file.
    ///
    /// # Errors
    /// Names the profile or the constant, its value, and what is allowed.
    pub fn load(name: &str) -> Result<Profile, ProfileError> {
        if let Some((_, text)) = EMBEDDED.iter().find(|(known, _)| *known == name) {
            return Profile::parse(&format!("profiles/{name}.toml"), text);
        }
        let path = Path::new(name);
        if path.extension().is_none_or(|extension| extension != "toml") {
            return Err(ProfileError::unknown(name, Profile::names()));
        }
        let text = std::fs::read_to_string(path)
            .map_err(|error| ProfileError::unreadable(name, &error))?;
        Profile::parse(name, &text)
    }

    /// A profile from its text; `origin` names it in errors.
    ///
    /// # Errors
    /// As [`Profile::load`].
    pub fn parse(origin: &str, text: &str) -> Result<Profile, ProfileError> {
        let profile: Profile =
            toml::from_str(text).map_err(|error| ProfileError::syntax(origin, &error))?;
        profile.validate(origin)?;
        Ok(profile)
    }

    fn validate(&self, origin: &str) -> Result<(), ProfileError> {
        for listed in self.constants() {
            let (low, high) = listed.allowed;
            if !(low..=high).contains(&listed.constant.value) {
                return Err(ProfileError::out_of_range(origin, &listed));
            }
            if listed.constant.source.trim().is_empty() {
                return Err(ProfileError::no_source(origin, listed.section, listed.name));
            }
        }
        let sources = [
            ("atomic_unit", &self.form.atomic_unit.source),
            ("framing", &self.form.framing.source),
        ];
        match sources.into_iter().find(|(_, source)| source.trim().is_empty()) {
            Some((name, _)) => Err(ProfileError::no_source(origin, "form", name)),
            None => Ok(()),
        }
    }

    /// All numbers of the profile, in a fixed order.
    pub fn constants(&self) -> Vec<Listed<'_>> {
        let mut all = self.cpu.constants();
        all.extend(self.nic.constants());
        all.extend(self.link.constants());
        all.extend(self.clock.constants());
        all
    }

    /// The profile with one number replaced (`nic.read_mops`, say): for sweeps and for the question
    /// how much depends on an assumed constant.
    ///
    /// # Errors
    /// An unknown name, or a value that is not allowed.
    pub fn with(mut self, name: &str, value: f64) -> Result<Profile, ProfileError> {
        let origin = self.name.clone();
        let slot = match name.split_once('.') {
            Some(("cpu", field)) => self.cpu.slot(field),
            Some(("nic", field)) => self.nic.slot(field),
            Some(("link", field)) => self.link.slot(field),
            Some(("clock", field)) => self.clock.slot(field),
            _ => None,
        };
        let Some(constant) = slot else {
            let names = self.constants();
            let names = names.iter().map(|listed| format!("{}.{}", listed.section, listed.name));
            return Err(ProfileError::unknown_constant(&origin, name, names));
        };
        constant.value = value;
        constant.source = format!("set to {value} for this run");
        constant.standing = Standing::Assumed;
        self.validate(&origin)?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests;
