//! The step `format` checks that every file is formatted by rustfmt.
//!
//! Invariant: the step `format` also checks the files of protocols. `cargo fmt` does not find these
//! files, because a macro declares their modules.

use std::path::Path;

use crate::cargo;
use crate::error::Error;

const PROTOCOLS: &str = "crates/engine/src/protocol";

/// Checks the format of all files. Returns an error for the first file whose format differs.
pub(crate) fn run(root: &Path) -> Result<(), Error> {
    let protocols = protocols(root)?;
    let mut arguments = vec!["fmt".to_owned(), "--all".into(), "--check".into(), "--".into()];
    arguments.extend(protocols);
    cargo::run_visibly(cargo::cargo(root, &arguments)).map_err(|_| {
        Error::failed(format!(
            "files are not formatted: run `cargo fmt --all -- {PROTOCOLS}/*/mod.rs`"
        ))
    })
}

/// Returns the first file of each protocol's folder.
fn protocols(root: &Path) -> Result<Vec<String>, Error> {
    let unread = |error: std::io::Error| {
        Error::failed(format!("cannot read the folder {PROTOCOLS}: {error}"))
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(root.join(PROTOCOLS)).map_err(unread)? {
        let folder = entry.map_err(unread)?.file_name().to_string_lossy().into_owned();
        let file = format!("{PROTOCOLS}/{folder}/mod.rs");
        if root.join(&file).is_file() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_protocol_is_looked_at() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let files = protocols(&root).expect("the folder of protocols");
        assert!(files.contains(&format!("{PROTOCOLS}/ford/mod.rs")), "{files:?}");
        assert!(files.len() >= 8, "{files:?}");
    }
}
