//! Runs every example once, because an example that only compiles may still be wrong.
//!
//! Invariant: an example needs no arguments, reads no input, ends within the time limit and ends with
//! exit code 0. If an example requires features that are off by default, the step lists the example
//! and does not run it.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::metadata::Metadata;
use crate::programs;

/// The longest time that an example may run. A program that takes longer is a benchmark and not an
/// example.
const TIME_LIMIT: Duration = Duration::from_secs(120);
const POLL_EVERY: Duration = Duration::from_millis(20);

/// Builds and runs all examples of the workspace, in order of their names.
pub(crate) fn run(root: &Path) -> Result<(), Error> {
    let metadata = Metadata::read(root)?;
    let built = programs::examples(root, &metadata)?;
    let mut count = 0;
    for package in metadata.members() {
        for example in package.targets_of("example") {
            if !example.required_features.is_empty() {
                println!("   skipped {}: needs {:?}", example.name, example.required_features);
                continue;
            }
            println!("   example {} (package {})", example.name, package.name);
            run_one(root, &built, &example.name)?;
            count += 1;
        }
    }
    println!("   {count} examples ran");
    Ok(())
}

/// Runs one example. The function starts the program directly and not through cargo, so that it can end
/// the program at the time limit.
fn run_one(root: &Path, built: &Path, example: &str) -> Result<(), Error> {
    let child = Command::new(built.join(example))
        .current_dir(root)
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| Error::failed(format!("cannot start example `{example}`: {error}")))?;
    match wait(child, TIME_LIMIT)? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(Error::failed(format!("example `{example}` ended with {status}"))),
        None => Err(Error::failed(format!(
            "example `{example}` did not end within {} s",
            TIME_LIMIT.as_secs()
        ))),
    }
}

/// Waits for the child process to end. After the time limit, the function kills the child process and
/// returns `None`.
#[expect(clippy::disallowed_methods, reason = "limits the real time of a real process")]
fn wait(mut child: Child, limit: Duration) -> Result<Option<ExitStatus>, Error> {
    let start = Instant::now();
    loop {
        let status = child
            .try_wait()
            .map_err(|error| Error::failed(format!("cannot wait for a process: {error}")))?;
        if status.is_some() {
            return Ok(status);
        }
        if start.elapsed() >= limit {
            // Each of the next two calls fails only if the process has just ended by itself.
            child.kill().ok();
            child.wait().ok();
            return Ok(None);
        }
        std::thread::sleep(POLL_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_does_not_end_is_killed() {
        let child = Command::new("sleep").arg("60").spawn().expect("sleep starts");
        let status = wait(child, Duration::from_millis(50)).expect("can be waited for");
        assert!(status.is_none());
    }

    #[test]
    fn a_failing_process_is_noticed() {
        let child = Command::new("false").spawn().expect("false starts");
        let status = wait(child, TIME_LIMIT).expect("can be waited for").expect("ends");
        assert!(!status.success());
    }
}
