//! Keeps the texts of data files until the program ends. Further functions read values of other crates' types from
//! data files.
//!
//! Invariant: each different text is kept only once, so that the program takes no more memory if it reads a file
//! again.

use crate::reproduce::charge::Charge;
use crate::simulate::stamps::Source;
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Deref;
use std::sync::Mutex;
use tarn_engine::session::coordinator::Retry;

/// A text that the program keeps until it ends. With this alias, serde does not treat the type as a borrowed string.
pub(super) type Kept = &'static str;

/// Keeps a text until the program ends.
pub(super) fn kept(text: &str) -> Kept {
    static KNOWN: Mutex<BTreeSet<Kept>> = Mutex::new(BTreeSet::new());
    let mut known = KNOWN.lock().expect("no panic under this lock");
    if let Some(it) = known.get(text) {
        return it;
    }
    let it: Kept = Box::leak(text.into());
    known.insert(it);
    it
}

/// A text that was read from a data file and is kept until the program ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Text(pub &'static str);

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.0
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Text, D::Error> {
        kept_from(from).map(Text)
    }
}

/// Reads a text from a data file, and keeps the text until the program ends.
pub(super) fn kept_from<'de, D: Deserializer<'de>>(from: D) -> Result<Kept, D::Error> {
    String::deserialize(from).map(|text| kept(&text))
}

/// Reads charges from a data file, and keeps them until the program ends.
pub(super) fn charges<'de, D: Deserializer<'de>>(from: D) -> Result<&'static [Charge], D::Error> {
    Vec::deserialize(from).map(|charges: Vec<Charge>| &*charges.leak())
}

/// Returns the rule for retries with this number of tries; 0 means that a transaction is tried until it commits.
pub(super) fn tries(tries_max: u32) -> Retry {
    let tries_max = if tries_max == 0 { Retry::PATIENT.tries_max } else { tries_max };
    Retry { tries_max, ..Retry::PATIENT }
}

/// Reads the number of tries of an aborted transaction.
pub(super) fn retry<'de, D: Deserializer<'de>>(from: D) -> Result<Retry, D::Error> {
    u32::deserialize(from).map(tries)
}

/// Reads the name of a source of timestamps.
pub(super) fn source<'de, D: Deserializer<'de>>(from: D) -> Result<Source, D::Error> {
    let name = String::deserialize(from)?;
    let found = Source::ALL.into_iter().find(|source| source.name() == name);
    found.ok_or_else(|| {
        D::Error::custom(format!("timestamps = {name}; allowed: counter, service, pool, clock"))
    })
}
