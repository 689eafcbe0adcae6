//! Texts of data files that live as long as the program, and how values of other crates are read from such files.
//!
//! Invariant: each different text is kept once, so that reading a file again or naming a system again takes no memory.

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

/// A kept text. Under this name serde does not take the type for a borrowed one.
pub(super) type Kept = &'static str;

/// Keeps a text.
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

/// A text of a data file.
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

/// Reads a text and keeps it.
pub(super) fn kept_from<'de, D: Deserializer<'de>>(from: D) -> Result<Kept, D::Error> {
    String::deserialize(from).map(|text| kept(&text))
}

/// Reads charges and keeps them.
pub(super) fn charges<'de, D: Deserializer<'de>>(from: D) -> Result<&'static [Charge], D::Error> {
    Vec::deserialize(from).map(|charges: Vec<Charge>| &*charges.leak())
}

/// How an aborted transaction is tried again: so many tries, 0: until it commits.
pub(super) fn tries(tries_max: u32) -> Retry {
    let tries_max = if tries_max == 0 { Retry::PATIENT.tries_max } else { tries_max };
    Retry { tries_max, ..Retry::PATIENT }
}

/// Reads a number of tries.
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
