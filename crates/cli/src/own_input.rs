//! Ensures that a command never writes to a file that it reads.
//!
//! Invariant: every command that reads and writes files checks this before it reads or writes anything. Files are
//! compared by device and inode, so a link to an input counts as that input. The `.partial` file to which a command
//! writes its result counts as an output.

use super::Stop;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A path, and the flag or argument that contained it.
pub(super) type Named<'a> = (&'a str, Option<&'a Path>);

/// Refuses an output that is one of the inputs. Names that are no files are no inputs. Examples are the names of
/// profiles and litmuses that come with the program.
///
/// # Errors
/// The error names both flags.
pub(super) fn refuse_own_input(output: Named<'_>, inputs: &[Named<'_>]) -> Result<(), Stop> {
    let (flag, Some(path)) = output else { return Ok(()) };
    let written = [identity(path), identity(&partial(path))];
    for (input, read) in inputs {
        let read = read.and_then(identity);
        if read.is_some() && written.contains(&read) {
            let text = format!("{flag} = {}; allowed: another file than {input}", path.display());
            return Err(Stop::Input(text));
        }
    }
    Ok(())
}

/// Returns the device and inode of the file to which a path leads, through links.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// Returns the path to which [`tarn_check::WholeFile`] writes until the file is complete.
fn partial(path: &Path) -> PathBuf {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut name = path.into_os_string();
    name.push(".partial");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_recognised_under_any_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let (file, soft, hard, other) = (at("file"), at("soft"), at("hard"), at("other"));
        fs::write(&file, "kept").expect("written");
        fs::write(&other, "").expect("written");
        std::os::unix::fs::symlink(&file, &soft).expect("a link");
        fs::hard_link(&file, &hard).expect("a link");
        let roundabout = folder.path().join(".").join("file");
        let ask = |output: &Path, input: &Path| {
            refuse_own_input(("--out", Some(output)), &[("--none", None), ("IN", Some(input))])
        };
        for name in [&file, &soft, &hard, &roundabout] {
            for (output, input) in [(name, &file), (&file, name)] {
                let Err(Stop::Input(text)) = ask(output, input) else { panic!("{name:?}") };
                assert!(text.starts_with("--out = ") && text.ends_with("than IN"), "{text}");
            }
        }
        fs::write(at("file.partial"), "kept too").expect("written");
        assert!(ask(&file, &at("file.partial")).is_err());
        assert!(ask(&soft, &at("file.partial")).is_err());
        assert!(ask(&other, &file).is_ok() && ask(&at("new"), &file).is_ok());
        assert!(ask(&file, Path::new("no such file")).is_ok());
        assert!(refuse_own_input(("--out", None), &[("IN", Some(&file))]).is_ok());
    }
}
