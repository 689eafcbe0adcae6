//! The `tarn` program: benchmarks with verdicts, and verdicts on recorded histories.
//!
//! Invariant: results go to standard output, everything else to standard error; the exit code is 0
//! if all is well, 1 if a check failed or the work could not be done, 2 if the command line, a
//! scenario or a history could not be used.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    tarn::cli::main()
}
