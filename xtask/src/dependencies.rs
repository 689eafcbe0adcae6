//! Checks that one table gives a reason for every direct dependency.
//!
//! Invariant: the manifests and the table name the same crates with the same version requirements.
//! For each crate, the licence in the table is the licence in the manifest of the locked version.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::error::Error;
use crate::metadata::Metadata;

/// The file with the table, relative to the root.
const TABLE: &str = "docs/design/dependencies.md";

/// The version requirement of each crate, by crate name.
type Declared = BTreeMap<String, String>;

/// One line of the table of dependencies.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    version: String,
    licence: String,
    reason: String,
}

/// Returns one line for each disagreement between the manifests and the table.
pub(crate) fn violations(root: &Path, metadata: &Metadata) -> Result<Vec<String>, Error> {
    let manifest = read(root, "Cargo.toml")?;
    let mut declared = workspace_dependencies(&manifest)?;
    for package in metadata.members() {
        for dependency in package.dependencies.iter().filter(|each| each.source.is_some()) {
            let version = dependency.req.trim_start_matches('^').to_owned();
            declared.entry(dependency.name.clone()).or_insert(version);
        }
    }
    Ok(compare(&declared, &rows(&read(root, TABLE)?), metadata))
}

fn read(root: &Path, path: &str) -> Result<String, Error> {
    std::fs::read_to_string(root.join(path))
        .map_err(|error| Error::failed(format!("cannot read {path}: {error}")))
}

/// Returns the foreign crates of `[workspace.dependencies]`, including crates that no member uses yet.
fn workspace_dependencies(manifest: &str) -> Result<Declared, Error> {
    #[derive(Deserialize)]
    struct Manifest {
        workspace: Workspace,
    }
    #[derive(Deserialize)]
    struct Workspace {
        #[serde(default)]
        dependencies: BTreeMap<String, toml::Value>,
    }
    let manifest: Manifest = toml::from_str(manifest)
        .map_err(|error| Error::failed(format!("cannot read Cargo.toml: {error}")))?;
    let foreign = manifest.workspace.dependencies.into_iter().filter_map(|(name, value)| {
        let version = match &value {
            toml::Value::String(version) => Some(version.clone()),
            other => other.get("version").and_then(toml::Value::as_str).map(str::to_owned),
        };
        value.get("path").is_none().then(|| (name, version.unwrap_or_default()))
    });
    Ok(foreign.collect())
}

/// Returns the lines of all Markdown tables whose first cell is one word in backticks.
fn rows(markdown: &str) -> BTreeMap<String, Row> {
    markdown
        .lines()
        .filter_map(|line| {
            let line = line.trim().strip_prefix('|')?.strip_suffix('|')?;
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let name = cells.first()?.strip_prefix('`')?.strip_suffix('`')?;
            let cell = |index: usize| cells.get(index).copied().unwrap_or("").to_owned();
            let row = Row { version: cell(1), licence: cell(2), reason: cell(3) };
            Some((name.to_owned(), row))
        })
        .collect()
}

fn compare(declared: &Declared, rows: &BTreeMap<String, Row>, metadata: &Metadata) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, version) in declared {
        let Some(row) = rows.get(name) else {
            findings.push(format!("{TABLE}: `{name}` is a dependency but has no line"));
            continue;
        };
        if row.version != *version {
            findings.push(format!(
                "{TABLE}: `{name}` is required as {version}, the table says {}",
                row.version
            ));
        }
        if row.reason.is_empty() {
            findings.push(format!("{TABLE}: `{name}` has no reason"));
        }
        findings.extend(wrong_licence(name, row, metadata));
    }
    for name in rows.keys().filter(|name| !declared.contains_key(*name)) {
        findings.push(format!("{TABLE}: `{name}` has a line but is no dependency"));
    }
    findings
}

/// Returns a complaint if no locked version has the licence that the table names.
fn wrong_licence(name: &str, row: &Row, metadata: &Metadata) -> Option<String> {
    let locked: Vec<&str> = metadata
        .packages
        .iter()
        .filter(|package| package.name == name)
        .filter_map(|package| package.license.as_deref())
        .collect();
    if locked.is_empty() || locked.contains(&row.licence.as_str()) {
        return None;
    }
    Some(format!("{TABLE}: `{name}` is under {}, the table says {}", locked[0], row.licence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::fixture::{package, workspace};

    const MANIFEST: &str = r#"
        [workspace]
        members = []
        [workspace.dependencies]
        ours = { path = "crates/ours" }
        alpha = "1.2"
        beta = { version = "0.3", features = ["std"] }
    "#;

    const ROWS: &str = "| crate | version | licence | reason | otherwise |\n\
                        |---|---|---|---|---|\n\
                        | `alpha` | 1.2 | MIT | counts | by hand |\n\
                        | `beta` | 0.3 | Apache-2.0 | sorts | by hand |\n";

    fn check(rows_text: &str) -> Vec<String> {
        let declared = workspace_dependencies(MANIFEST).expect("the manifest is sound");
        let mut alpha = package("alpha", &[], &[]);
        alpha.license = Some("MIT".to_owned());
        compare(&declared, &rows(rows_text), &workspace(vec![alpha]))
    }

    #[test]
    fn agreement_is_silent() {
        assert_eq!(check(ROWS), Vec::<String>::new());
    }

    #[test]
    fn a_missing_line_is_found() {
        let findings =
            check(&ROWS.replace("| `beta` | 0.3 | Apache-2.0 | sorts | by hand |\n", ""));
        assert_eq!(findings.len(), 1);
        assert!(findings[0].contains("`beta` is a dependency but has no line"), "{findings:?}");
    }

    #[test]
    fn a_line_too_many_is_found() {
        let findings = check(&format!("{ROWS}| `gamma` | 1 | MIT | none | none |\n"));
        assert_eq!(findings.len(), 1);
        assert!(findings[0].contains("`gamma` has a line but is no dependency"), "{findings:?}");
    }

    #[test]
    fn a_stale_version_licence_or_empty_reason_is_found() {
        for (before, after, expected) in [
            ("| 1.2 |", "| 1.1 |", "required as 1.2, the table says 1.1"),
            ("| MIT |", "| ISC |", "is under MIT, the table says ISC"),
            ("| counts |", "|  |", "has no reason"),
        ] {
            let findings = check(&ROWS.replace(before, after));
            assert_eq!(findings.len(), 1, "{findings:?}");
            assert!(findings[0].contains(expected), "{findings:?}");
        }
    }
}
