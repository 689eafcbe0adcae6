//! Access to the table's inside for loom's models (`tests/loom.rs`).
//!
//! Invariant: this file exists only in a build with `--cfg loom`.

use std::hash::{BuildHasher, Hash};

use crate::index::Index;
use crate::table::{DefaultHash, Table};

pub use crate::plant::Plant;

/// Creates a table with a number of bins.
pub fn table(bins: usize) -> Table<u64, u64> {
    Table::with_bins(bins, false, DefaultHash::default()).expect("memory for a few bins")
}

/// Plants an error.
pub fn plant<K, V, S>(table: &mut Table<K, V, S>, plant: Plant) {
    table.raw.plants.plant(plant);
}

/// Gives the newest index a successor.
pub fn begin_growth<K, V, S>(table: &Table<K, V, S>) {
    let mut newest: &Index = table.raw.current();
    while let Some(next) = newest.next() {
        newest = next;
    }
    table.raw.begin_growth(newest, 2).expect("memory for a few bins");
}

/// Moves a chunk of the oldest index. Returns false if none is left.
pub fn help<K: Hash + Eq, V, S: BuildHasher>(table: &Table<K, V, S>) -> bool {
    table.raw.help(table.raw.current(), table)
}

/// Moves a chunk of the index after the oldest one.
pub fn help_next<K: Hash + Eq, V, S: BuildHasher>(table: &Table<K, V, S>) -> bool {
    table.raw.current().next().is_some_and(|next| table.raw.help(next, table))
}

/// Moves the bin of a key from the oldest index.
pub fn move_bin_of<K: Hash + Eq, V, S: BuildHasher>(table: &Table<K, V, S>, key: K) {
    let moved = table.raw.make_room(table.raw.current(), table.hash_of(&key), table);
    moved.expect("the next index exists");
}
