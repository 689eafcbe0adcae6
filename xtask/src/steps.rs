//! The steps of `ci` and `test`: run in order, timed, stopped at the first failure.
//!
//! Invariant: a step's name is printed before its output and its time after, and
//! the last line after a failure says which step and which command.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::cargo;
use crate::error::Error;
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

/// Runs the steps and prints what each one took.
pub(crate) fn run(root: &Path, steps: &[Step]) -> Result<(), Error> {
    let mut taken = Vec::new();
    for step in steps {
        println!("== {}{}", step.name, step.command_line(root));
        let (result, time) = stopwatch(|| step.run(root));
        println!("== {}: {} in {:.1} s\n", step.name, verdict(&result), time.as_secs_f64());
        taken.push((step.name, verdict(&result), time));
        if let Err(error) = result {
            print!("{}", table(&taken));
            return Err(Error::failed(format!("step `{}` failed: {error}", step.name)));
        }
    }
    print!("{}", table(&taken));
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

fn verdict(result: &Result<(), Error>) -> &'static str {
    if result.is_ok() { "ok" } else { "FAILED" }
}

#[expect(clippy::disallowed_methods, reason = "measures what a step really takes")]
fn stopwatch<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = work();
    (value, start.elapsed())
}

fn table(taken: &[(&str, &str, Duration)]) -> String {
    let mut text = format!("{:<12} {:>7} {:>9}\n", "step", "result", "seconds");
    for (name, verdict, time) in taken {
        text.push_str(&format!("{name:<12} {verdict:>7} {:>9.1}\n", time.as_secs_f64()));
    }
    let total: Duration = taken.iter().map(|(_, _, time)| *time).sum();
    text.push_str(&format!("{:<12} {:>7} {:>9.1}\n", "total", "", total.as_secs_f64()));
    text
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
        let steps = [check_step("first", fails), check_step("second", never)];
        let error = run(Path::new("."), &steps).expect_err("the first step fails");
        assert_eq!(error.to_string(), "step `first` failed: planted");
    }

    #[test]
    fn the_table_adds_up() {
        let text = table(&[
            ("one", "ok", Duration::from_millis(1500)),
            ("two", "FAILED", Duration::from_millis(2500)),
        ]);
        assert!(text.contains(&format!("{:<12} {:>7} {:>9}\n", "one", "ok", "1.5")), "{text}");
        assert!(text.contains(&format!("{:<12} {:>7} {:>9}\n", "total", "", "4.0")), "{text}");
    }
}
