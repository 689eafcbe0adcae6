//! The steps of `ci` and `test`. A command runs its steps in order and measures their times. The
//! first failure stops the command.
//!
//! Invariant: a step's name is printed before the step's output, and its time after the output. After a
//! failure, the last line names the step and the command.

use std::path::Path;

use crate::cargo;
use crate::error::Error;
use crate::times::{Taken, table};
use crate::{examples, format, licences, litmus, schedules, tidy, xdp};

/// One step: a name, and the work that the step does.
pub(crate) struct Step {
    name: &'static str,
    work: Work,
}

enum Work {
    /// A cargo command. The command may have one additional environment variable.
    Cargo { arguments: Vec<String>, variable: Option<(&'static str, &'static str)> },
    /// A function of this tool.
    Check(Box<Check>),
}

type Check = dyn Fn(&Path) -> Result<(), Error>;

/// Returns the steps of `cargo xtask ci`. Steps that compile nothing are first.
pub(crate) fn ci(skip_tests: bool) -> Vec<Step> {
    let clippy = ["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
    let mut steps = vec![
        Step::check("format", format::run),
        Step::check("tidy", tidy::run),
        Step::check("licences", licences::run),
        Step::cargo("clippy", clippy),
    ];
    if !skip_tests {
        steps.extend(tests());
        steps.extend(loom());
        steps.push(Step::check("xdp", xdp::run));
    }
    steps.push(Step::check("schedules", schedules::run));
    steps.push(Step::check("litmus", litmus::run));
    let docs = Step::cargo("docs", ["doc", "--locked", "--no-deps", "--workspace"]);
    steps.push(docs.with("RUSTDOCFLAGS", "-D warnings"));
    steps
}

/// Returns the steps of `cargo xtask test`.
pub(crate) fn tests() -> Vec<Step> {
    let tests = ["test", "--locked", "--workspace", "--no-fail-fast", "--lib", "--bins", "--tests"];
    vec![
        // The arguments do not contain `--examples`. The examples contain no tests, and would be linked
        // once more as test programs.
        Step::cargo("tests", tests),
        Step::cargo("doc tests", ["test", "--locked", "--workspace", "--doc"]),
        Step::check("examples", examples::run),
    ]
}

/// The crates that the step `loom` compiles without optimisation. The models run little of their code, or none.
const HARDLY_RUN: [&str; 5] = ["tarn-engine", "tarn-store", "tarn-locks", "tarn-check", "proptest"];

/// Returns the steps for models of the synchronisation of the local backend, of the lock table and of the hash table.
/// These steps build in a separate folder, because they compile every crate with an additional flag.
pub(crate) fn loom() -> Vec<Step> {
    let packages = ["-p", "tarn-fabric", "-p", "tarn-engine", "-p", "tarn-table", "--test", "loom"];
    let folder = ["test", "--locked", "--target-dir", "target/loom"];
    let fixed = folder.into_iter().chain(packages).map(str::to_owned);
    let setting = |name| ["--config".into(), format!("profile.dev.package.{name}.opt-level=0")];
    let arguments = fixed.chain(HARDLY_RUN.into_iter().flat_map(setting));
    vec![Step::cargo("loom", arguments).with("RUSTFLAGS", "--cfg loom")]
}

/// Runs the steps of a command. The function prints the time of each step, and stores the time in a
/// file.
pub(crate) fn run(root: &Path, command: &'static str, steps: &[Step]) -> Result<(), Error> {
    let mut all = Vec::new();
    for step in steps {
        println!("== {}", step.shown(root));
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
    /// Creates a step that runs a cargo command.
    pub(crate) fn cargo<T: Into<String>>(
        name: &'static str,
        arguments: impl IntoIterator<Item = T>,
    ) -> Self {
        let arguments = arguments.into_iter().map(Into::into).collect();
        Self { name, work: Work::Cargo { arguments, variable: None } }
    }

    /// Creates a step that runs a function of this tool.
    pub(crate) fn check(
        name: &'static str,
        check: impl Fn(&Path) -> Result<(), Error> + 'static,
    ) -> Self {
        Self { name, work: Work::Check(Box::new(check)) }
    }

    /// Returns the same cargo command with a variable in its environment.
    fn with(mut self, name: &'static str, value: &'static str) -> Self {
        if let Work::Cargo { variable, .. } = &mut self.work {
            *variable = Some((name, value));
        }
        self
    }

    /// Returns the step's name, and its command line if it has one.
    pub(crate) fn shown(&self, root: &Path) -> String {
        match &self.work {
            Work::Cargo { arguments, variable } => {
                let set = variable.map(|(name, value)| format!("{name}=\"{value}\" "));
                let line = cargo::shown(&cargo::cargo(root, arguments));
                format!("{}: {}{line}", self.name, set.unwrap_or_default())
            }
            Work::Check(_) => self.name.to_owned(),
        }
    }

    fn run(&self, root: &Path) -> Result<(), Error> {
        match &self.work {
            Work::Cargo { arguments, variable } => {
                let mut command = cargo::cargo(root, arguments);
                command.envs(*variable);
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
        let first = ["format", "tidy", "licences", "clippy"];
        let tests = ["tests", "doc tests", "examples", "loom", "xdp"];
        let last = ["schedules", "litmus", "docs"];
        assert_eq!(names(&ci(false)), [&first[..], &tests, &last].concat());
        assert_eq!(names(&ci(true)), [&first[..], &last].concat());
    }

    #[test]
    fn a_step_shows_the_command_that_repeats_it() {
        let step = Step::cargo("docs", ["doc", "--locked"]).with("RUSTDOCFLAGS", "-D warnings");
        let shown = step.shown(Path::new("."));
        assert_eq!(shown, "docs: RUSTDOCFLAGS=\"-D warnings\" cargo doc --locked");
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
        let steps = [Step::check("first", fails), Step::check("second", never)];
        let error = run(folder.path(), "test", &steps).expect_err("the first step fails");
        assert_eq!(error.to_string(), "step `first` failed: planted");
    }
}
