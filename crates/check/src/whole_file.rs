//! A file that appears under its name only when it is complete.
//!
//! Invariant: until the file is complete, its name is `NAME.partial`. If the work does not finish,
//! the partial file is removed. A program that a signal ends removes it by [`remove_partial_files`]. The partial file is opened before the work begins, so a path that
//! cannot be written is found before any work is done. If the path is a link, the module follows the
//! link, so the file replaces the link's target and not the link. The module refuses a device or a
//! pipe, because the file would replace the device or pipe instead of being written to it.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A file that appears under its name only when it is complete. The module's documentation has the
/// details.
///
/// ```
/// # use std::io::Write as _;
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("report.txt");
/// let mut file = tarn_check::WholeFile::create(&path)?;
/// file.write_all(b"all of it")?;
/// assert!(!path.exists());
/// file.finish()?;
/// assert_eq!(std::fs::read_to_string(&path)?, "all of it");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct WholeFile {
    path: PathBuf,
    partial: PathBuf,
    /// The partial file. `None` means that the file already has its final name.
    out: Option<BufWriter<File>>,
}

/// The partial files of this process.
static PARTIAL_FILES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn partial_files() -> MutexGuard<'static, Vec<PathBuf>> {
    PARTIAL_FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn forget(all: &mut Vec<PathBuf>, partial: &Path) {
    if let Some(at) = all.iter().position(|it| it == partial) {
        all.swap_remove(at);
    }
}

/// Removes the partial files of this process, which is about to end without its destructors. No file of the process is
/// completed afterwards.
pub fn remove_partial_files() {
    let mut all = partial_files();
    for partial in all.drain(..) {
        // A partial file that cannot be removed is harmless.
        drop(fs::remove_file(partial));
    }
}

impl WholeFile {
    /// Creates the partial file `NAME.partial` beside the file that `path` names.
    ///
    /// # Errors
    /// The path names a folder, a device or a pipe, or the path cannot be written.
    pub fn create(path: &Path) -> io::Result<WholeFile> {
        let path = match fs::metadata(path) {
            Ok(found) if !found.is_file() => {
                let text = "a file, not a folder or a device";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            Ok(_) => path.canonicalize()?,
            Err(_) => path.to_owned(),
        };
        let mut name = path.as_os_str().to_owned();
        name.push(".partial");
        let partial = PathBuf::from(name);
        // While the list is locked, no partial file appears or goes.
        let mut all = partial_files();
        let file = File::create(&partial)?;
        all.push(partial.clone());
        drop(all);
        Ok(WholeFile { path, partial, out: Some(BufWriter::with_capacity(1 << 18, file)) })
    }

    /// Renames the partial file to its final name, after all its contents are on the disk.
    ///
    /// # Errors
    /// The errors of writing the file. If writing fails, the partial file is removed.
    pub fn finish(mut self) -> io::Result<()> {
        let out = self.out.as_mut().expect("the file is open until it is finished");
        // A failure drops `self`, which removes the partial file.
        out.flush()?;
        out.get_ref().sync_all()?;
        let mut all = partial_files();
        fs::rename(&self.partial, &self.path)?;
        forget(&mut all, &self.partial);
        drop(all);
        self.out = None;
        Ok(())
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.as_mut().expect("the file is open until it is finished").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.as_mut().expect("the file is open until it is finished").flush()
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if self.out.take().is_some() {
            let mut all = partial_files();
            forget(&mut all, &self.partial);
            // This code cannot repair a failed removal. A partial file that remains is harmless.
            drop(fs::remove_file(&self.partial));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_folders_are_left_alone() {
        for path in ["/dev/null", "/dev"] {
            assert!(WholeFile::create(Path::new(path)).is_err(), "{path}");
            assert!(!Path::new(&format!("{path}.partial")).exists());
        }
    }

    #[test]
    #[cfg(unix)]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let (link, file) = (folder.path().join("link"), folder.path().join("file"));
        fs::write(&file, "old").expect("written");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        let mut whole = WholeFile::create(&link).expect("a file");
        whole.write_all(b"new").expect("written");
        whole.finish().expect("finished");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(fs::read_to_string(&file).expect("there"), "new");
    }

    #[test]
    fn a_dropped_file_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        drop(WholeFile::create(&folder.path().join("report")).expect("a file"));
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }
}
