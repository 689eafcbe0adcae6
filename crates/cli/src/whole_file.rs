//! The files that commands write: [`tarn_check::WholeFile`] with the errors of a command line.
//!
//! Invariant: a path that cannot be written is bad input and found before the work begins. A file
//! that cannot be finished is a failure.

use super::Stop;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// A file that appears only when it is whole; see the module's documentation.
#[derive(Debug)]
pub(super) struct WholeFile {
    path: PathBuf,
    file: tarn_check::WholeFile,
}

impl WholeFile {
    /// Opens the file; `flag` is where its path was given.
    ///
    /// # Errors
    /// A path that cannot be written.
    pub(super) fn create(flag: &str, path: &Path) -> Result<WholeFile, Stop> {
        let file = tarn_check::WholeFile::create(path).map_err(|error| {
            let allowed = format!("a file that can be written ({error})");
            Stop::Input(format!("{flag} = {}; allowed: {allowed}", path.display()))
        })?;
        Ok(WholeFile { path: path.to_owned(), file })
    }

    /// Writes the whole text and gives the file its name.
    ///
    /// # Errors
    /// The file's.
    pub(super) fn finish(self, text: &str) -> Result<(), Stop> {
        self.finish_with(|file| file.write_all(text.as_bytes()))
    }

    /// Like [`WholeFile::finish`], with the output of `write`.
    ///
    /// # Errors
    /// The file's.
    pub(super) fn finish_with(
        mut self,
        write: impl FnOnce(&mut tarn_check::WholeFile) -> std::io::Result<()>,
    ) -> Result<(), Stop> {
        let written = write(&mut self.file).and_then(|()| self.file.finish());
        written.map_err(|error| {
            Stop::Failed(format!("{}: cannot be written: {error}", self.path.display()))
        })
    }
}
