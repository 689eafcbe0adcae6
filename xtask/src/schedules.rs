//! The swarm: the engine under scenarios that no earlier run has seen, for a minute and a quarter.
//!
//! Invariant: the first seed is printed, and is a function of the commit, so that each commit looks at
//! other seeds and a run can be repeated; a seed that fails ends the step with the command that replays
//! it.

use std::path::Path;

use crate::cargo;
use crate::error::Error;

/// No seed is begun later than this.
const MINUTES: &str = "1.25";
/// Where a tree that git does not know begins.
const OTHERWISE: u64 = 1 << 32;

/// Runs the step.
pub(crate) fn run(root: &Path) -> Result<(), Error> {
    let commit = cargo::output_of(cargo::git(root, &["rev-parse", "HEAD"]));
    let first_seed = commit.map_or(OTHERWISE, |commit| first_seed(commit.trim()));
    println!("   first seed {first_seed}, from the commit's name");
    let first_seed = first_seed.to_string();
    // The tests' build, with assertions and overflow checks.
    let program = ["run", "--locked", "--quiet", "-p", "tarn", "--"];
    let what = ["swarm", "--minutes", MINUTES, "--first-seed", &first_seed];
    cargo::run_visibly(cargo::cargo(root, &[&program[..], &what[..]].concat()))
}

/// The first 48 bits of a commit's name, short enough to be typed.
fn first_seed(commit: &str) -> u64 {
    let digits = commit.get(..12).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    digits.unwrap_or(OTHERWISE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_commit_has_its_seeds() {
        assert_eq!(first_seed("0000000000ff870289b"), 255);
        assert_ne!(first_seed("870289b0aaaa"), first_seed("7d3ec2f0aaaa"));
        assert_eq!(first_seed("no name"), OTHERWISE);
    }
}
