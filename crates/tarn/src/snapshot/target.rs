//! The file that a save writes before it has its name.
//!
//! Invariant: until [`Target::put_in_place`] the file under the caller's path stays as it was. One save at a time
//! writes the file beside it, because the save holds the lock of this file. A process that dies leaves the file
//! behind, and the next save writes it anew.

use super::error::SnapshotError;
use crate::error::Error;
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{Error as IoError, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The end of the name of a file that is being written.
const ENDING: &str = ".saving";

/// A file that will replace the snapshot at a path. Dropping this value removes the file.
pub(super) struct Target {
    path: PathBuf,
    beside: PathBuf,
    file: File,
    is_in_place: bool,
}

impl Target {
    /// Creates the empty file beside `path`.
    ///
    /// # Errors
    /// If the path names no file, the folder cannot be written, or another save writes the file.
    pub(super) fn create(path: &Path) -> Result<Target, Error> {
        let refuse = || IoError::new(ErrorKind::InvalidInput, "the path must end with a file name");
        let name = path.file_name().ok_or_else(refuse);
        let mut name: OsString = name.map_err(SnapshotError::io(path, "create"))?.to_owned();
        name.push(ENDING);
        let beside = path.with_file_name(name);
        loop {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            let file = options.open(&beside).map_err(SnapshotError::io(&beside, "create"))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(SnapshotError::Running { path: beside }.into());
                }
                Err(TryLockError::Error(error)) => {
                    return Err(SnapshotError::io(&beside, "lock")(error));
                }
            }
            // Another save may have renamed the file between the opening and the locking.
            if is_at(&file, &beside).map_err(SnapshotError::io(&beside, "create"))? {
                file.set_len(0).map_err(SnapshotError::io(&beside, "write"))?;
                return Ok(Target { path: path.to_owned(), beside, file, is_in_place: false });
            }
        }
    }

    /// The file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// The path that the file will have.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file its name. The caller has written and synchronised all its bytes.
    ///
    /// # Errors
    /// The operating system's error. If only the folder was not written to the disk, a power failure may bring the
    /// old file back.
    pub(super) fn put_in_place(mut self) -> Result<(), Error> {
        fs::rename(&self.beside, &self.path).map_err(SnapshotError::io(&self.path, "rename"))?;
        self.is_in_place = true;
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(SnapshotError::io(&self.path, "synchronise the folder of"))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.is_in_place {
            // The save has failed already, and the next save writes the file anew.
            let _ = fs::remove_file(&self.beside);
        }
    }
}

/// Whether the open file is the one at `path`.
fn is_at(file: &File, path: &Path) -> std::io::Result<bool> {
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(its) => Ok((its.dev(), its.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
