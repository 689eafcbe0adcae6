//! Hardware profiles: the costs of processors, NICs, links and clocks. Each constant names its source.
//!
//! Invariant: the model contains no number of its own. Every cost is read from a profile. For each
//! number, a profile names the publication from which the number was read, or marks the number as
//! derived or assumed. The simulator refuses a profile that names an unknown constant, lacks a
//! constant, or gives an impossible value.

mod error;
mod sections;

pub use error::ProfileError;
pub use sections::{Clock, Cluster, Cpu, Link, Nic};

use serde::{Deserialize, Serialize};
use std::path::Path;

/// How much a constant can be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// The constant was published as a measurement.
    Measured,
    /// The constant was computed from measurements.
    Derived,
    /// The constant is common knowledge that has not been verified. Before you rely on such a constant,
    /// run with half of its value and with twice its value.
    Assumed,
}

/// A value, its source, and how much the value can be trusted.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Constant<T> {
    /// The value, in the unit at the end of the constant's name.
    pub value: T,
    /// The publication, or the arithmetic, from which the value was taken.
    pub source: String,
    /// How much the value can be trusted.
    pub standing: Standing,
}

/// How a NIC executes atomics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtomicUnit {
    /// The NIC executes atomics one after the other, whatever their addresses.
    Serial,
    /// The NIC executes atomics in parallel, unless their addresses are equal.
    PerAddress,
}

/// The queue pairs that ring one doorbell register.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Doorbells {
    /// The stock driver: a fixed number of registers, given to queue pairs in the order in which the
    /// queue pairs are created.
    OfQueuePairs,
    /// Each thread has a register of its own for all its queue pairs.
    OneAThread,
}

/// The kind of headers on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Framing {
    /// Native InfiniBand.
    Infiniband,
    /// RDMA over converged Ethernet, version 2.
    RoceV2,
}

/// The properties of the hardware that are choices and not numbers.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    /// How the NIC executes atomics.
    pub atomic_unit: Constant<AtomicUnit>,
    /// The queue pairs that ring one doorbell register.
    pub doorbells: Constant<Doorbells>,
    /// The kind of headers on the wire.
    pub framing: Constant<Framing>,
}

/// The hardware of a cluster.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The profile's name on the command line.
    pub name: String,
    /// The hardware that the profile describes.
    pub hardware: String,
    /// The properties of the hardware that are choices and not numbers.
    pub form: Form,
    /// The costs of the requester's processor.
    pub cpu: Cpu,
    /// The costs of every node's NIC.
    pub nic: Nic,
    /// The costs of cables and the switch.
    pub link: Link,
    /// The properties of clocks.
    pub clock: Clock,
    /// The times that a machine needs to restart.
    pub cluster: Cluster,
    /// The constants that were set after the profile was read. The list is empty in a profile as
    /// published.
    #[serde(skip)]
    pub changes: Vec<Change>,
}

/// A constant that was set after the profile was read.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Change {
    /// The constant's section and name.
    pub key: String,
    /// The new value.
    pub value: String,
    /// The old value.
    pub was: String,
}

/// A constant in a list of all constants.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Listed<'a> {
    /// The section: `cpu`, `nic`, `link`, `clock` or `cluster`.
    pub section: &'static str,
    /// The name of the constant, which ends in the unit.
    pub name: &'static str,
    /// The value, its source, and how much it can be trusted.
    pub constant: &'a Constant<f64>,
    /// The smallest and the largest value that is accepted.
    pub allowed: (f64, f64),
}

/// The profiles that are built into the program.
const EMBEDDED: [(&str, &str); 3] = [
    ("cx3-56g", include_str!("../../../../profiles/cx3-56g.toml")),
    ("cx5-100g", include_str!("../../../../profiles/cx5-100g.toml")),
    ("cx6-200g", include_str!("../../../../profiles/cx6-200g.toml")),
];

impl Profile {
    /// Returns the names of the profiles that are built into the program.
    pub fn names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|(name, _)| *name)
    }

    /// Returns a built-in profile, or a profile from a file if `name` ends in `.toml`.
    ///
    /// # Errors
    /// The error names the profile or the constant, its value, and the allowed values.
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

    /// Parses a profile from its text. Errors name the profile by `origin`.
    ///
    /// # Errors
    /// The same errors as [`Profile::load`].
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
            ("doorbells", &self.form.doorbells.source),
            ("framing", &self.form.framing.source),
        ];
        match sources.into_iter().find(|(_, source)| source.trim().is_empty()) {
            Some((name, _)) => Err(ProfileError::no_source(origin, "form", name)),
            None => Ok(()),
        }
    }

    /// Returns all numbers of the profile, in a fixed order.
    pub fn constants(&self) -> Vec<Listed<'_>> {
        let mut all = self.cpu.constants();
        all.extend(self.nic.constants());
        all.extend(self.link.constants());
        all.extend(self.clock.constants());
        all.extend(self.cluster.constants());
        all
    }

    /// Returns the profile with one number replaced (`nic.read_mops`, for example). Sweeps over the
    /// values of a constant use this function. Such a sweep shows how much a result depends on an
    /// assumed constant.
    ///
    /// # Errors
    /// The name is unknown, or the value is not allowed.
    pub fn with(self, key: &str, value: f64) -> Result<Profile, ProfileError> {
        self.set(key, &value.to_string())
    }

    /// Returns the profile with one constant replaced by `text`. The text is a number, or the name of
    /// a choice (for example of an atomic unit).
    ///
    /// # Errors
    /// The same errors as [`Profile::with`].
    pub fn set(mut self, key: &str, text: &str) -> Result<Profile, ProfileError> {
        let origin = self.name.clone();
        let was = match key.split_once('.') {
            Some(("cpu", field)) => self.cpu.slot(field).map(|slot| number(slot, text)),
            Some(("nic", field)) => self.nic.slot(field).map(|slot| number(slot, text)),
            Some(("link", field)) => self.link.slot(field).map(|slot| number(slot, text)),
            Some(("clock", field)) => self.clock.slot(field).map(|slot| number(slot, text)),
            Some(("cluster", field)) => self.cluster.slot(field).map(|slot| number(slot, text)),
            Some(("form", "atomic_unit")) => Some(form(&mut self.form.atomic_unit, text)),
            Some(("form", "doorbells")) => Some(form(&mut self.form.doorbells, text)),
            Some(("form", "framing")) => Some(form(&mut self.form.framing, text)),
            _ => None,
        };
        let Some(was) = was else {
            return Err(ProfileError::unknown_constant(&origin, key, self.keys().into_iter()));
        };
        let was = was.map_err(|allowed| ProfileError::no_value(&origin, key, text, &allowed))?;
        self.validate(&origin)?;
        self.changes.push(Change { key: key.to_owned(), value: text.to_owned(), was });
        Ok(self)
    }

    /// Returns the names of all constants, in a fixed order.
    pub fn keys(&self) -> Vec<String> {
        let numbers = self.constants();
        let numbers = numbers.iter().map(|listed| format!("{}.{}", listed.section, listed.name));
        let forms = ["form.atomic_unit", "form.doorbells", "form.framing"].map(str::to_owned);
        forms.into_iter().chain(numbers).collect()
    }
}

/// Replaces the number of a constant. Returns the old value, or the allowed values if the new value
/// is not allowed.
fn number(constant: &mut Constant<f64>, text: &str) -> Result<String, String> {
    let value = text.parse().map_err(|_| "a number".to_owned())?;
    Ok(replace(constant, value, text).to_string())
}

/// Replaces the choice of a constant that is not a number. Returns the old value, or the allowed
/// values if the new value is not allowed.
fn form<T: Serialize + serde::de::DeserializeOwned>(
    constant: &mut Constant<T>,
    text: &str,
) -> Result<String, String> {
    let name = serde::de::value::StrDeserializer::<serde::de::value::Error>::new(text);
    let value = T::deserialize(name).map_err(|error| {
        let error = error.to_string();
        error.rsplit("expected ").next().unwrap_or_default().to_owned()
    })?;
    let was = toml::Value::try_from(replace(constant, value, text)).map_err(|e| e.to_string())?;
    Ok(was.as_str().unwrap_or_default().to_owned())
}

fn replace<T>(constant: &mut Constant<T>, value: T, text: &str) -> T {
    constant.source = format!("set to {text} for this run");
    constant.standing = Standing::Assumed;
    std::mem::replace(&mut constant.value, value)
}

#[cfg(test)]
mod tests;
