//! The steps of `ci` and `test`: run in order, timed, stopped at the first failure.
//!
//! Invariant: a step's name is printed before its output and its time after, and
//! the last line after a failure says which step and which command.

use std::path::Path;

use crate::cargo;
use crate::error::Error;
use crate::times::{Taken, table};
use crate::{examples, licences, litmus, schedules, tidy};

/// One named piece of work.
pub(crate) struct Step {
    name: &'static str,
    work: Work,
}

enum Work {
    /// A cargo command, with environment variables of its own.
    Cargo {
        arguments: &'static [&'static str],
        environment: &'static [(&'static str, &'static str)],
    },
    /// A function of this tool.
    Check(fn(&Path) -> Result<(), Error>),
}

const fn cargo_step(name: &'static str, arguments: &'static [&'static str]) -> Step {
    Step { name, work: Work::Cargo { arguments, environment: &[] } }
}

const fn check_step(name: &'static str, check: fn(&Path) -> Result<(), Error>) -> Step {
    Step { name, work: Work::Check(check) }
}

/// Everything that `cargo xtask ci` does.
pub(crate) fn ci(skip_tests: bool) -> Vec<Step> {
    let mut steps = vec![
        cargo_step("format", &["fmt", "--all", "--check"]),
        cargo_step(
            "clippy",
            &["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"],
        ),
    ];
    if !skip_tests {
        steps.extend(tests());
        steps.extend(loom());
    }
    steps.push(check_step("schedules", schedules::run));
    steps.push(check_step("litmus", litmus::run));
    steps.push(Step {
        name: "docs",
        work: Work::Cargo {
            arguments: &["doc", "--locked", "--no-deps", "--workspace"],
            environment: &[("RUSTDOCFLAGS", "-D warnings")],
        },
    });
    steps.push(check_step("licences", licences::run));
    steps.push(check_step("tidy", tidy::run));
    steps
}

/// Everything that `cargo xtask test` does.
pub(crate) fn tests() -> Vec<Step> {
    vec![
        // Not `--examples`: they hold no tests, and would be linked once more, as test programs.
        cargo_step("tests", &["test", "--locked", "--workspace", "--lib", "--bins", "--tests"]),
        cargo_step("doc tests", &["test", "--locked", "--workspace", "--doc"]),
        check_step("examples", examples::run),
    ]
}

/// Models of the synchronisation of the local backend and of the lock table. In a folder of its own: every crate is compiled with
/// another flag.
pub(crate) fn loom() -> Vec<Step> {
    vec![Step {
        name: "loom",
        work: Work::Cargo {
            arguments: &[
                "test",
                "--locked",
                "--target-dir",
                "target/loom",
                "-p",
                "tarn-fabric",
                "-p",
                "tarn-engine",
                "--test",
                "loom",
            ],
            environment: &[("RUSTFLAGS", "--cfg loom")],
        },
    }]
}

/// Runs the steps of a command, prints what each one took, and keeps it.
pub(crate) fn run(root: &Path, command: &'static str, steps: &[Step]) -> Result<(), Error> {
    let mut all = Vec::new();
    for step in steps {
        println!("== {}{}", step.name, step.command_line(root));
        let (outcome, taken) = Taken::by(command, step.name, || step.run(root));
        println!("== {}\n", taken.shown());
        taken.keep(root)?;
        all.push(taken);
        if let Err(error) = outcome {
            print!("{}", table(&all));
            return Err(Error::failed(format!("step `{}` failed: {error}", step.name)));
        }
    }
    print!("{}", table(&all));
    Ok(())
}

impl Step {
    fn command_line(&self, root: &Path) -> String {
        match &self.work {
            Work::Cargo { arguments, environment } => {
                let variables: String = environment
                    .iter()
                    .map(|(name, value)| format!("{name}=\"{value}\" "))
                    .collect();
                format!(": {variables}{}", cargo::shown(&cargo::cargo(root, arguments)))
            }
            Work::Check(_) => String::new(),
        }
    }

    fn run(&self, root: &Path) -> Result<(), Error> {
        match &self.work {
            Work::Cargo { arguments, environment } => {
                let mut command = cargo::cargo(root, arguments);
                command.envs(environment.iter().copied());
                cargo::run_visibly(command)
            }
            Work::Check(check) => check(root),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(steps: &[Step]) -> Vec<&'static str> {
        steps.iter().map(|step| step.name).collect()
    }

    #[test]
    fn ci_runs_everything_in_order() {
        let always = ["schedules", "litmus", "docs", "licences", "tidy"];
        let tests = ["tests", "doc tests", "examples", "loom"];
        let all = [&["format", "clippy"], &tests[..], &always[..]].concat();
        assert_eq!(names(&ci(false)), all);
        assert_eq!(names(&ci(true)), [&["format", "clippy"], &always[..]].concat());
    }

    #[test]
    fn the_first_failure_stops_the_rest() {
        fn fails(_: &Path) -> Result<(), Error> {
            Err(Error::failed("planted"))
        }
        fn never(_: &Path) -> Result<(), Error> {
            panic!("ran after a failure")
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let steps = [check_step("first", fails), check_step("second", never)];
        let error = run(folder.path(), "test", &steps).expect_err("the first step fails");
        assert_eq!(error.to_string(), "step `first` failed: planted");
    }
}
