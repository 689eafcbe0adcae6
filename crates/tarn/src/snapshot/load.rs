//! Opens a database with the rows of a snapshot.
//!
//! Invariant: the schema is compared before any memory is laid out, and each block is checked before any of its rows
//! is loaded. If a part of the file is damaged, the database is dropped, and the caller gets only the error. The rows
//! are loaded as new rows, so the file does not decide about protocol, memory nodes, copies or indexes.

use super::contents::Contents;
use crate::cluster::OpenError;
use crate::database::{Builder, Tarn};
use crate::error::Error;
use crate::mistakes::row_difference;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tarn_engine::admin::load::{Loader, Part};
use tarn_fabric::executor::block_on;
use tarn_store::ids::Failure;
use tarn_store::schema::{TableId, TableSchema};

/// The most threads that load one database. Each thread reads the whole file, so more threads gain little.
const LOADERS_MAX: usize = 16;

impl Tarn {
    /// Opens a database with the tables and rows of a snapshot, and with the default settings. [`Builder::load`] does
    /// the same with other settings, tables or indexes.
    ///
    /// # Errors
    /// The same errors as [`Builder::load`].
    pub fn load(path: impl AsRef<Path>) -> Result<Tarn, Error> {
        Tarn::embedded().load(path)
    }
}

impl Builder {
    /// Opens a database with the rows of a snapshot that [`Tarn::save`] has written. The database may have another
    /// protocol, number of memory nodes or number of copies than the saved one.
    ///
    /// A table of the builder must have the key and the columns of the snapshot's table with the same name. It may
    /// have other indexes, which are built anew. A table that only the snapshot has is created as it was saved. A
    /// table that only the builder has is empty. A table has room for all its saved rows, even if it expects fewer.
    ///
    /// # Errors
    /// [`SnapshotError`](crate::SnapshotError), if the file cannot be read, is damaged or was cut. A usage error that
    /// names the table and the column, if the builder's table differs. `UniqueViolation`, if two rows have the same
    /// key in a new unique index. The errors of [`Builder::open`].
    pub fn load(mut self, path: impl AsRef<Path>) -> Result<Tarn, Error> {
        let contents = Contents::open(path.as_ref())?;
        take_tables(self.schemas_mut(), &contents)?;
        let tarn = self.open()?;
        fill(&tarn, &contents)?;
        Ok(tarn)
    }
}

/// Completes the builder's tables by those of the snapshot.
fn take_tables(schemas: &mut Vec<TableSchema>, contents: &Contents) -> Result<(), Error> {
    for saved in &contents.tables {
        let Some(declared) = schemas.iter_mut().find(|schema| schema.name == saved.name) else {
            schemas.push(saved.clone());
            continue;
        };
        let holder = format!("as the snapshot {} has it", contents.path().display());
        if let Some(error) = row_difference(saved, declared, &holder) {
            return Err(OpenError::Usage(error).into());
        }
        declared.expected_records = declared.expected_records.max(saved.expected_records);
    }
    Ok(())
}

/// The reason why a loader stopped.
enum Stopped {
    /// The loader's own error.
    Error(Error),
    /// Another loader has failed.
    ByAnother,
}

/// Loads all rows, in several threads.
fn fill(tarn: &Tarn, contents: &Contents) -> Result<(), Error> {
    let catalog = &tarn.cluster().database().catalog;
    let ids = contents.tables.iter().map(|table| {
        catalog.table_id(&table.name).expect("the tables of the snapshot were added to the schema")
    });
    let ids: Vec<TableId> = ids.collect();
    let count = thread::available_parallelism().map_or(1, usize::from).min(LOADERS_MAX) as u32;
    let failed = AtomicBool::new(false);
    let load = |index| {
        let loaded = load_part(tarn, (contents, &ids), Part { index, of: count }, &failed);
        if loaded.is_err() {
            failed.store(true, Ordering::Relaxed);
        }
        loaded
    };
    let results: Vec<Result<u64, Stopped>> = thread::scope(|scope| {
        let others: Vec<_> = (1..count).map(|index| scope.spawn(move || load(index))).collect();
        let own = load(0);
        let others = others.into_iter().map(|thread| thread.join().expect("a loader panicked"));
        std::iter::once(own).chain(others).collect()
    });
    let mut rows = 0;
    for result in results {
        match result {
            Ok(loaded) => rows += loaded,
            Err(Stopped::Error(error)) => return Err(error),
            Err(Stopped::ByAnother) => {}
        }
    }
    let saved: u64 = contents.rows.iter().sum();
    assert!(rows == saved, "{rows} of {saved} rows were loaded (a bug of Tarn)");
    Ok(())
}

fn load_part(
    tarn: &Tarn,
    (contents, ids): (&Contents, &[TableId]),
    part: Part,
    failed: &AtomicBool,
) -> Result<u64, Stopped> {
    let cx = tarn.own_context().map_err(Stopped::Error)?;
    let explain = |failure: Failure| Stopped::Error(Error::of(&cx, failure));
    let mut loader = Loader::new(&cx, part);
    let mut blocks = contents.blocks();
    while let Some(block) = blocks.read_next().map_err(Stopped::Error)? {
        if failed.load(Ordering::Relaxed) {
            return Err(Stopped::ByAnother);
        }
        let id = ids[block.table];
        block_on(async {
            for (key, payload) in block.rows() {
                loader.insert(id, key, |row| row.payload().copy_from_slice(payload)).await?;
            }
            Ok(())
        })
        .map_err(explain)?;
    }
    block_on(loader.finish()).map_err(explain)
}
