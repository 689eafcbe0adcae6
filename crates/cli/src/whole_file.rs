//! The files that commands write. This module adds errors for the command line to [`tarn_check::WholeFile`].
//!
//! Invariant: if a path cannot be written, the program reports bad input before the work begins. If a file cannot be
//! completed, the program reports a failure.

use super::Stop;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// A file that appears only when it is complete; see the module's documentation.
#[derive(Debug)]
pub(super) struct WholeFile {
    path: PathBuf,
    file: tarn_check::WholeFile,
}

impl WholeFile {
    /// Opens the file. `flag` is the flag that contained the file's path.
    ///
    /// # Errors
    /// If the path cannot be written.
    pub(super) fn create(flag: &str, path: &Path) -> Result<WholeFile, Stop> {
        let file = tarn_check::WholeFile::create(path).map_err(|error| {
            let allowed = format!("a file that can be written ({error})");
            Stop::Input(format!("{flag} = {}; allowed: {allowed}", path.display()))
        })?;
        Ok(WholeFile { path: path.to_owned(), file })
    }

    /// Writes the whole text and gives the file its final name.
    ///
    /// # Errors
    /// The errors of writing the file.
    pub(super) fn finish(self, text: &str) -> Result<(), Stop> {
        self.finish_with(|file| file.write_all(text.as_bytes()))
    }

    /// Does the same as [`WholeFile::finish`], with the output of `write` as the text.
    ///
    /// # Errors
    /// The errors of writing the file.
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
