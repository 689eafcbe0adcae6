//! The stores that take part, and the promises that each makes in this comparison.
//!
//! Invariant: this list is the only place that names all stores. No store syncs to a disk, and each runs in the form
//! that was the fastest for it.

mod fjall;
mod lmdb;
mod redb;
mod sqlite;
mod tarn;

use crate::inputs::Workload;
use crate::run::{Blocking, Contender};
use crate::store::Failure;
use std::path::Path;

/// A store that takes part.
pub struct Entry {
    pub name: &'static str,
    /// The crate in the lock file.
    pub package: &'static str,
    pub isolation: &'static str,
    pub writers: &'static str,
    /// The durability in this configuration.
    pub durability: &'static str,
    /// Opens and loads the store. The folder is empty and belongs to the store.
    pub load: fn(Workload, &Path) -> Result<Box<dyn Contender>, Failure>,
}

impl Entry {
    pub fn is_tarn(&self) -> bool {
        self.package == "tarn"
    }
}

/// The number of coroutines of a thread, as `tarn bench` has it.
const COROUTINES: usize = 8;

const ONE_WRITER: &str = "one at a time; readers beside it";
const FILE: &str = "none until a sync; the file may be damaged by a power failure";
const LOST: &str = "none; a snapshot is saved on request";

pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "tarn",
        package: "tarn",
        isolation: "strictly serializable",
        writers: "several",
        durability: LOST,
        load: |workload, _| Ok(Box::new(tarn::OnTarn::load(workload, COROUTINES)?)),
    },
    Entry {
        name: "tarn, one session",
        package: "tarn",
        isolation: "strictly serializable",
        writers: "several",
        durability: LOST,
        load: |workload, _| Ok(Box::new(tarn::OnTarn::load(workload, 1)?)),
    },
    Entry {
        name: "lmdb",
        package: "heed",
        isolation: "serializable",
        writers: ONE_WRITER,
        durability: FILE,
        load: |workload, folder| Ok(Box::new(Blocking::load(lmdb::Lmdb::open(folder)?, workload)?)),
    },
    Entry {
        name: "redb",
        package: "redb",
        isolation: "serializable",
        writers: ONE_WRITER,
        durability: "none until a durable commit; the file stays whole",
        load: |workload, folder| Ok(Box::new(Blocking::load(redb::Redb::open(folder)?, workload)?)),
    },
    Entry {
        name: "fjall",
        package: "fjall",
        isolation: "serializable (optimistic)",
        writers: "several; commits one at a time",
        durability: "none until the journal is persisted; the files stay whole",
        load: |workload, folder| {
            Ok(Box::new(Blocking::load(fjall::Fjall::open(folder)?, workload)?))
        },
    },
    Entry {
        name: "sqlite, memory",
        package: "rusqlite",
        isolation: "serializable",
        writers: "one transaction at a time, readers too",
        durability: "none; a backup is saved on request",
        load: |workload, _| Ok(Box::new(Blocking::load(sqlite::InMemory::open()?, workload)?)),
    },
    Entry {
        name: "sqlite, WAL file",
        package: "rusqlite",
        isolation: "serializable",
        writers: ONE_WRITER,
        durability: FILE,
        load: |workload, folder| {
            Ok(Box::new(Blocking::load(sqlite::WalFile::open(folder)?, workload)?))
        },
    },
];
