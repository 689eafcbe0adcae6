//! The authority of a decider: a folder that says which view is in force.
//!
//! Invariants: a view is durable before it is used. A folder with a damaged file begins no view. A view belongs to one decider: it is published by a link that fails if the view
//! exists. The greatest view of the folder only goes up, and a decider that finds a greater one than its own has lost its authority.
//!
//! | file | |
//! |---|---|
//! | `view.N` | view N has begun; only the last few are kept |
//! | `owner` | locked by the decider that runs |

use crate::os;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use tarn_locks::value::View;

/// Old views that stay, so that a folder shows its history.
const KEPT: usize = 4;
/// Bytes of a damaged file that an error shows.
const SHOWN_BYTES: usize = 40;

/// A reason why a folder gives no authority.
#[derive(Debug)]
pub enum AuthorityError {
    /// The folder does not exist, or has no view.
    Missing(PathBuf),
    /// A new folder was asked for, and this one has a view.
    Exists(PathBuf, View),
    /// A file of a view does not say that its view has begun.
    Damaged {
        /// The folder.
        folder: PathBuf,
        /// The file's name.
        file: String,
        /// The file's text.
        text: String,
    },
    /// The folder's view is the last one that a number can name.
    UsedUp(PathBuf, View),
    /// Another process has the folder.
    Busy(PathBuf),
    /// A greater view than the decider's is in force.
    Superseded {
        /// The folder.
        folder: PathBuf,
        /// The decider's view.
        own: View,
        /// The view in force.
        current: View,
    },
    /// The system's error.
    Io(PathBuf, io::Error),
}

impl fmt::Display for AuthorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuthorityError::Missing(folder) => write!(
                f,
                "--state = {}; allowed: a folder of a decider, or a new one together with --new. A cluster whose folder is lost \
                 grants its locks twice",
                folder.display()
            ),
            AuthorityError::Exists(folder, view) => write!(
                f,
                "--new = {}; allowed: a folder without views; this one has view {}",
                folder.display(),
                view.0
            ),
            AuthorityError::Damaged { folder, file, text } => write!(
                f,
                "--state = {}; allowed: a folder in which each file view.N has the text `view N`; {file} has {text:?}. A damaged \
                 folder may have lost a view, and its locks would be granted twice",
                folder.display()
            ),
            AuthorityError::UsedUp(folder, view) => write!(
                f,
                "--state = {}; allowed: a folder with a view below {}, because a next view has to begin",
                folder.display(),
                view.0
            ),
            AuthorityError::Busy(folder) => write!(
                f,
                "--state = {}; allowed: a folder that no other decider uses. `tarn lock recover --state` takes it from a decider \
                 that does not answer",
                folder.display()
            ),
            AuthorityError::Superseded { folder, own, current } => write!(
                f,
                "view {} is in force in {}: another decider has taken over from this one, of view {}",
                current.0,
                folder.display(),
                own.0
            ),
            AuthorityError::Io(folder, error) => {
                write!(f, "the state folder {} cannot be used: {error}", folder.display())
            }
        }
    }
}

impl std::error::Error for AuthorityError {}

impl AuthorityError {
    /// Whether the caller's choice of the folder is at fault.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            AuthorityError::Missing(_)
                | AuthorityError::Exists(..)
                | AuthorityError::Damaged { .. }
                | AuthorityError::UsedUp(..)
                | AuthorityError::Busy(_)
        )
    }
}

/// A state folder that this process owns.
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
    view: View,
    _owner: File,
}

impl Authority {
    /// Takes a folder, and begins a new view in it. `is_new`: the folder is made.
    ///
    /// # Errors
    /// The folder is missing or damaged, has an owner, or cannot be written.
    pub fn open(folder: &Path, is_new: bool) -> Result<Authority, AuthorityError> {
        let io = |error| AuthorityError::Io(folder.to_owned(), error);
        match (current(folder).map_err(io)?, is_new) {
            (None, false) => return Err(AuthorityError::Missing(folder.to_owned())),
            (Some(view), true) => return Err(AuthorityError::Exists(folder.to_owned(), view)),
            _ => {}
        }
        if is_new {
            fs::create_dir_all(folder).map_err(io)?;
        }
        let owner = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(folder.join("owner"))
            .map_err(io)?;
        if !os::lock_file(&owner) {
            return Err(AuthorityError::Busy(folder.to_owned()));
        }
        let view = raise(folder, View(0))?;
        Ok(Authority { folder: folder.to_owned(), view, _owner: owner })
    }

    /// The view in which this process decides.
    #[must_use]
    pub fn view(&self) -> View {
        self.view
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Begins the next view.
    ///
    /// # Errors
    /// Another decider has begun one, or the folder cannot be written.
    pub fn raise(&mut self) -> Result<View, AuthorityError> {
        self.check()?;
        self.view = raise(&self.folder, self.view)?;
        Ok(self.view)
    }

    /// Reads the folder again.
    ///
    /// # Errors
    /// Another decider has begun a view.
    pub fn check(&self) -> Result<(), AuthorityError> {
        let io = |error| AuthorityError::Io(self.folder.clone(), error);
        match current(&self.folder).map_err(io)? {
            Some(current) if current > self.view => {
                let (folder, own) = (self.folder.clone(), self.view);
                Err(AuthorityError::Superseded { folder, own, current })
            }
            Some(_) => Ok(()),
            None => Err(AuthorityError::Missing(self.folder.clone())),
        }
    }
}

/// Takes a folder from its owner, whether the owner answers or not: begins a view, so that the owner stops as soon as it goes on.
///
/// # Errors
/// The folder is missing, damaged, or cannot be written.
pub fn depose(folder: &Path) -> Result<View, AuthorityError> {
    let io = |error| AuthorityError::Io(folder.to_owned(), error);
    if current(folder).map_err(io)?.is_none() {
        return Err(AuthorityError::Missing(folder.to_owned()));
    }
    let view = raise(folder, View(0))?;
    match fs::remove_file(folder.join("owner")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io(error)),
        _ => Ok(view),
    }
}

/// The greatest view of a folder; `None`: it has none, or does not exist.
fn current(folder: &Path) -> io::Result<Option<View>> {
    Ok(views(folder)?.last().copied())
}

fn views(folder: &Path) -> io::Result<Vec<View>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut views = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("view."));
        views.extend(number.and_then(|number| number.parse().ok()).map(View));
    }
    views.sort_unstable();
    Ok(views)
}

/// Reads the files of all views: each has to say what its name says.
fn read_views(folder: &Path) -> Result<(), AuthorityError> {
    let io = |error| AuthorityError::Io(folder.to_owned(), error);
    for entry in fs::read_dir(folder).map_err(io)? {
        let file = entry.map_err(io)?.file_name().to_string_lossy().into_owned();
        let Some(number) = file.strip_prefix("view.") else { continue };
        let bytes = match fs::read(folder.join(&file)) {
            Ok(bytes) => bytes,
            // Another decider has begun a view, and has removed an old one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(io(error)),
        };
        // The name has to be the one that this module gives: `view.007` would name view 7 a second time.
        let named = number.parse().ok().map(View).filter(|view| file_of(*view) == file);
        if named.is_none_or(|view| bytes != text_of(view).as_bytes()) {
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES)]).into_owned();
            return Err(AuthorityError::Damaged { folder: folder.to_owned(), file, text });
        }
    }
    Ok(())
}

fn file_of(view: View) -> String {
    format!("view.{}", view.0)
}

fn text_of(view: View) -> String {
    format!("view {}\n", view.0)
}

/// Publishes a view above all others of the folder and above `own`.
fn raise(folder: &Path, own: View) -> Result<View, AuthorityError> {
    read_views(folder)?;
    let io = |error| AuthorityError::Io(folder.to_owned(), error);
    loop {
        let views = views(folder).map_err(io)?;
        let last = views.last().copied().unwrap_or_default().max(own);
        if last.0 == u32::MAX {
            return Err(AuthorityError::UsedUp(folder.to_owned(), last));
        }
        let next = last.next();
        match publish(folder, next) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(io(error)),
        }
        for old in views.iter().rev().skip(KEPT) {
            _ = fs::remove_file(folder.join(file_of(*old)));
        }
        return Ok(next);
    }
}

/// Makes the file of a view durable.
fn publish(folder: &Path, view: View) -> io::Result<()> {
    let unique = format!("new.{}.{}", std::process::id(), os::random_u64()?);
    let temporary = folder.join(unique);
    let mut file = File::create_new(&temporary)?;
    file.write_all(text_of(view).as_bytes())?;
    file.sync_all()?;
    // A link does not replace: a view that another decider publishes at the same time stays its own.
    let linked = fs::hard_link(&temporary, folder.join(file_of(view)));
    fs::remove_file(&temporary)?;
    File::open(folder)?.sync_all()?;
    linked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_start_begins_a_view() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path().join("state");
        assert!(matches!(Authority::open(&state, false), Err(AuthorityError::Missing(_))));
        assert_eq!(Authority::open(&state, true).expect("a new folder").view(), View(1));
        assert!(matches!(Authority::open(&state, true), Err(AuthorityError::Exists(_, View(1)))));
        for view in 2..12 {
            let mut authority = Authority::open(&state, false).expect("a free folder");
            assert_eq!(authority.view(), View(2 * view - 2));
            assert_eq!(authority.raise().expect("the owner raises"), View(2 * view - 1));
        }
        assert_eq!(views(&state).expect("a folder").len(), KEPT + 1);
    }

    #[test]
    fn a_folder_has_one_owner() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path().join("state");
        let mut first = Authority::open(&state, true).expect("a new folder");
        assert!(matches!(Authority::open(&state, false), Err(AuthorityError::Busy(_))));
        first.check().expect("its own view");
        assert_eq!(depose(&state).expect("a folder with a view"), View(2));
        let second = Authority::open(&state, false).expect("nobody owns it");
        assert_eq!(second.view(), View(3));
        second.check().expect("its own view");
        for result in [first.check(), first.raise().map(|_| ())] {
            let Err(AuthorityError::Superseded { own, current, .. }) = result else {
                panic!("the first owner goes on")
            };
            assert_eq!((own, current), (View(1), View(3)));
        }
    }

    /// A folder with views 1 to 3, in which a file has another text. Returns the error of the next start.
    fn damaged(file: &str, text: &str) -> AuthorityError {
        let folder = tempfile::tempdir().expect("a folder");
        drop(Authority::open(folder.path(), true).expect("a new folder"));
        let mut authority = Authority::open(folder.path(), false).expect("a free folder");
        authority.raise().expect("the owner raises");
        fs::write(folder.path().join(file), text).expect("it is written");
        let names = || {
            let entries = fs::read_dir(folder.path()).expect("a folder");
            let names = entries.map(|entry| entry.expect("an entry").file_name());
            names.collect::<std::collections::BTreeSet<_>>()
        };
        let before = names();
        let errors = [
            authority.raise().expect_err("the owner does not raise"),
            depose(folder.path()).expect_err("nobody takes it"),
            {
                drop(authority);
                Authority::open(folder.path(), false).expect_err("nobody starts")
            },
        ];
        assert_eq!(names(), before, "a refusal leaves the folder as it is");
        let [_, deposed, opened] = errors;
        assert_eq!(deposed.to_string(), opened.to_string());
        assert!(opened.is_usage(), "{opened}");
        opened
    }

    #[test]
    fn a_damaged_view_begins_no_view() {
        for (file, text) in [
            ("view.3", ""),
            ("view.3", "xxx"),
            ("view.3", "view 2\n"),
            ("view.1", "view 1"),
            ("view.007", "view 7\n"),
            ("view.99999999999", "view 99999999999\n"),
        ] {
            let error = damaged(file, text);
            let AuthorityError::Damaged { file: named, text: said, .. } = &error else {
                panic!("{file}: {error}")
            };
            assert_eq!((named.as_str(), said.as_str()), (file, text));
        }
    }

    #[test]
    fn the_last_view_has_no_next_one() {
        let last = format!("view.{}", u32::MAX);
        let error = damaged(&last, &format!("view {}\n", u32::MAX));
        assert!(matches!(error, AuthorityError::UsedUp(_, View(u32::MAX))), "{error}");
    }
}
