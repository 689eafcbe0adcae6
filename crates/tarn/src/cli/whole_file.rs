//! A file that appears under its name only when it is whole.
//!
//! Invariant: until then it is `NAME.partial`, which is removed if the work does not come to its end.
//! It is opened before the work begins, so that a path that cannot be written costs nothing.

use super::Stop;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// See the module's text.
#[derive(Debug)]
pub(super) struct WholeFile {
    path: PathBuf,
    partial: PathBuf,
    /// `None` once the file has its own name.
    file: Option<File>,
}

impl WholeFile {
    /// Opens it; `flag` is where its path was given.
    ///
    /// # Errors
    /// A path that cannot be written.
    pub(super) fn create(flag: &str, path: &Path) -> Result<WholeFile, Stop> {
        let refuse = |allowed: String| {
            Stop::Input(format!("{flag} = {}; allowed: {allowed}", path.display()))
        };
        // A device or a pipe would be replaced by the file, not written.
        if fs::metadata(path).is_ok_and(|it| !it.is_file()) {
            return Err(refuse("a file, not a folder or a device".into()));
        }
        let mut name = path.as_os_str().to_owned();
        name.push(".partial");
        let partial = PathBuf::from(name);
        let file = File::create(&partial)
            .map_err(|error| refuse(format!("a file that can be written ({error})")))?;
        Ok(WholeFile { path: path.to_owned(), partial, file: Some(file) })
    }

    /// Writes all of it and gives it its name.
    ///
    /// # Errors
    /// The file's.
    pub(super) fn finish(mut self, text: &str) -> Result<(), Stop> {
        let mut file = self.file.take().expect("open until it is finished");
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        drop(file);
        written
            .and_then(|()| fs::rename(&self.partial, &self.path))
            .inspect_err(|_| drop(fs::remove_file(&self.partial)))
            .map_err(|error| Stop::Failed(format!("{}: {error}", self.path.display())))
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // Nothing can be done about a failure here, and a stray partial file harms nobody.
            drop(fs::remove_file(&self.partial));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_left_alone() {
        for path in ["/dev/null", "/dev"] {
            assert!(WholeFile::create("--svg", Path::new(path)).is_err(), "{path}");
            assert!(!Path::new(&format!("{path}.partial")).exists());
        }
    }
}
