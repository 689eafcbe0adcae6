//! Checks that every dependency may be used under a licence that this project accepts.
//!
//! Invariant: the check works offline, from the manifests that cargo has already fetched. The check
//! fails if a package names no licence or has a licence expression that is not SPDX. The step also
//! checks the table of dependencies, because the table and the licence together say why a package may
//! be used.

use std::path::Path;

use spdx::{Expression, Licensee, ParseMode};

use crate::dependencies;
use crate::error::Error;
use crate::metadata::{Metadata, Package};

/// Permissive licences that are compatible with the project's own licence.
const ALLOWED: [&str; 14] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "CC0-1.0",
    "0BSD",
    "MIT-0",
    "Unlicense",
    "BSL-1.0",
];

/// Checks all packages of the lock file and the table of dependencies.
pub(crate) fn run(root: &Path) -> Result<(), Error> {
    let metadata = Metadata::read(root)?;
    let mut findings = violations(&metadata.packages);
    findings.extend(dependencies::violations(root, &metadata)?);
    for finding in &findings {
        println!("   {finding}");
    }
    println!("   {} packages, {} wrong", metadata.packages.len(), findings.len());
    if findings.is_empty() {
        return Ok(());
    }
    Err(Error::failed(format!("{} findings about licences and dependencies", findings.len())))
}

/// Returns one line for each package that this project must not use because of its licence.
fn violations(packages: &[Package]) -> Vec<String> {
    packages
        .iter()
        .filter_map(|package| {
            let reason = objection(package.license.as_deref())?;
            Some(format!("{} {}: {reason}", package.name, package.version))
        })
        .collect()
}

/// Returns the reason why the check refuses a package with this licence. Returns `None` if the
/// licence is allowed.
fn objection(licence: Option<&str>) -> Option<String> {
    let Some(text) = licence.map(str::trim).filter(|text| !text.is_empty()) else {
        return Some("its manifest names no licence".to_owned());
    };
    // The lax mode accepts the form `MIT/Apache-2.0`, in which the slash of older manifests means OR.
    let expression = match Expression::parse_mode(text, ParseMode::LAX) {
        Ok(expression) => expression,
        Err(error) => {
            return Some(format!("`{text}` is not an SPDX expression: {}", error.reason));
        }
    };
    let allowed = allowed();
    let usable =
        expression.evaluate(|required| allowed.iter().any(|licensee| licensee.satisfies(required)));
    (!usable).then(|| format!("`{text}` cannot be satisfied by the licences that we accept"))
}

fn allowed() -> Vec<Licensee> {
    ALLOWED.iter().filter_map(|text| Licensee::parse(text).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::fixture::package;

    #[test]
    fn every_allowed_licence_is_known_to_spdx() {
        assert_eq!(allowed().len(), ALLOWED.len());
        for text in ALLOWED {
            assert_eq!(objection(Some(text)), None);
        }
    }

    #[test]
    fn expressions_that_can_be_satisfied() {
        for text in [
            "MIT OR Apache-2.0",
            "GPL-3.0-only OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "MIT AND (GPL-2.0-only OR Zlib)",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
            "MIT/Apache-2.0",
            "Unlicense/MIT",
        ] {
            assert_eq!(objection(Some(text)), None, "{text}");
        }
    }

    #[test]
    fn expressions_that_cannot() {
        for text in [
            "GPL-3.0-only",
            "MIT AND GPL-3.0-only",
            "(MIT OR Apache-2.0) AND LGPL-2.1-only",
            "MPL-2.0 OR GPL-2.0-only",
            "MIT WITH Classpath-exception-2.0",
            "GPL-2.0-only/LGPL-2.1-only",
        ] {
            let reason = objection(Some(text)).expect(text);
            assert!(reason.contains("cannot be satisfied"), "{text}: {reason}");
        }
    }

    #[test]
    fn a_missing_or_garbled_licence_is_a_failure() {
        assert!(objection(None).is_some_and(|reason| reason.contains("names no licence")));
        assert!(objection(Some("  ")).is_some_and(|reason| reason.contains("names no licence")));
        for text in ["Do what you like", "MIT OR", "(MIT"] {
            let reason = objection(Some(text)).expect(text);
            assert!(reason.contains("not an SPDX expression"), "{text}: {reason}");
        }
    }

    #[test]
    fn the_finding_names_the_package() {
        let mut bad = package("copyleft", &[], &[]);
        bad.license = Some("AGPL-3.0-only".to_owned());
        let findings = violations(&[package("fine", &[], &[]), bad]);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].starts_with("copyleft 0.1.0: `AGPL-3.0-only`"), "{findings:?}");
    }
}
