//! `serde`: a table as a map.
//!
//! Invariant: a table that is read back has the entries that the iteration saw when it was written.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::table::Table;

impl<K, V, S> Serialize for Table<K, V, S>
where
    K: Serialize + Hash + Eq + Clone,
    V: Serialize + Clone,
    S: BuildHasher,
{
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        serializer.collect_map(self.iter())
    }
}

struct Entries<K, V, S>(PhantomData<(K, V, S)>);

impl<'de, K, V, S> Visitor<'de> for Entries<K, V, S>
where
    K: Deserialize<'de> + Hash + Eq,
    V: Deserialize<'de> + Clone,
    S: BuildHasher + Default,
{
    type Value = Table<K, V, S>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        // A length that the input claims is not trusted with memory.
        let table = Table::with_hasher(S::default());
        while let Some((key, value)) = map.next_entry()? {
            table.insert_or_replace(key, value).map_err(|it| Error::custom(it.reason))?;
        }
        Ok(table)
    }
}

impl<'de, K, V, S> Deserialize<'de> for Table<K, V, S>
where
    K: Deserialize<'de> + Hash + Eq,
    V: Deserialize<'de> + Clone,
    S: BuildHasher + Default,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries(PhantomData))
    }
}
