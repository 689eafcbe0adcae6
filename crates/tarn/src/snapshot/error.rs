//! Describes why a snapshot was not saved or not loaded.
//!
//! Invariant: an error names the file. An error about the file's bytes names their place and the table to which they
//! belong.

use crate::cluster::OpenError;
use crate::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The reason why a snapshot was not saved or not loaded. It is in [`OpenError::Snapshot`](crate::cluster::OpenError).
///
/// ```
/// use tarn::cluster::OpenError;
/// use tarn::{Error, SnapshotError, Tarn};
///
/// let Err(Error::Open(error)) = Tarn::load("no such folder/bank.tarn") else { panic!() };
/// let OpenError::Snapshot(SnapshotError::Io { path, request, .. }) = *error else { panic!() };
/// assert_eq!((path.to_str(), request), (Some("no such folder/bank.tarn"), "open"));
/// ```
#[derive(Debug)]
pub enum SnapshotError {
    /// The operating system refused a request about the file.
    Io {
        /// The file.
        path: PathBuf,
        /// The request, as a verb: "create", "write", "read".
        request: &'static str,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The file is no snapshot, or its bytes are not the bytes that were saved.
    Damaged {
        /// The file.
        path: PathBuf,
        /// The first byte of the damaged part.
        at_byte: u64,
        /// The part, and the reason why it is refused.
        reason: String,
    },
    /// The snapshot has a format that this version of Tarn does not read.
    Version {
        /// The file.
        path: PathBuf,
        /// The version of the file's format.
        found: u32,
        /// The version that this program reads.
        allowed: u32,
    },
    /// Another save is writing the same file.
    Running {
        /// The file that the other save writes, before it is renamed.
        path: PathBuf,
    },
    /// The running transactions did not all end in time, so no moment for the snapshot was found.
    Busy {
        /// The time for which the save has waited.
        waited: Duration,
        /// The transactions whose outcome is unknown. Their sessions must settle them before a save.
        in_doubt: Vec<String>,
    },
    /// The process that writes the file could not read the records, or was ended.
    Writer {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

impl SnapshotError {
    /// Returns a function that adds the file and the request to an error of the operating system.
    pub(super) fn io(path: &Path, request: &'static str) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| SnapshotError::Io { path, request, source }.into()
    }

    pub(super) fn damaged(path: &Path, at_byte: u64, reason: impl Into<String>) -> Error {
        let (path, reason) = (path.to_owned(), reason.into());
        SnapshotError::Damaged { path, at_byte, reason }.into()
    }
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotError::Io { path, request, source } => {
                write!(f, "cannot {request} the snapshot {}: {source}", path.display())
            }
            SnapshotError::Damaged { path, at_byte, reason } => {
                write!(f, "the snapshot {} is damaged at byte {at_byte}: {reason}", path.display())
            }
            SnapshotError::Version { path, found, allowed } => {
                let path = path.display();
                write!(f, "version of the snapshot {path} = {found}; allowed: {allowed}")
            }
            SnapshotError::Running { path } => {
                write!(f, "another save is writing {}", path.display())
            }
            SnapshotError::Busy { waited, in_doubt } => {
                write!(f, "no snapshot: in {:.1} s ", waited.as_secs_f64())?;
                f.write_str("the running transactions did not all end at the same time")?;
                if in_doubt.is_empty() {
                    return f
                        .write_str("; a body that waits for long, or for this save, holds it up");
                }
                let list = in_doubt.join(", ");
                write!(f, "; in doubt, and to be settled by `Session::resolve`: {list}")
            }
            SnapshotError::Writer { path, reason } => {
                write!(f, "the snapshot {} was not written: {reason}", path.display())
            }
        }
    }
}

impl std::error::Error for SnapshotError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SnapshotError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<SnapshotError> for Error {
    fn from(error: SnapshotError) -> Error {
        Error::Open(Box::new(OpenError::Snapshot(error)))
    }
}
