//! Compares the lock service with Redis, RedLock and etcd: lock and unlock, and a bank.
//!
//! Invariant: without arguments it ends within half a minute. Each argument is `--FIELD=VALUE`. It ends with 2 for a value that is not
//! allowed, and with 1 if a rival fails or money is made or lost.

use std::process::ExitCode;
use tarn_peers::{Options, OptionsError, RunError, run};

const FIELDS: &str = "--accounts, --threads, --depth, --read-percent, --theta, --seconds, \
                      --repetitions, --seed, --pairs, --banking";

fn main() -> ExitCode {
    let result = options().map_err(RunError::from).and_then(|options| run(&options));
    match result {
        Ok(report) => {
            print!("{report}");
            ExitCode::from(u8::from(!report.is_conserved()))
        }
        Err(error @ RunError::Options(_)) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Result<Options, OptionsError> {
    let mut options = Options { repetitions: 1, seconds: 0.5, ..Options::default() };
    for argument in std::env::args().skip(1) {
        let Some((field, value)) = argument.split_once('=') else {
            return Err(refuse("argument", &argument, "--FIELD=VALUE"));
        };
        match field {
            "--accounts" => options.accounts = number("--accounts", value)?,
            "--threads" => options.threads = number("--threads", value)?,
            "--depth" => options.depth = number("--depth", value)?,
            "--read-percent" => options.read_percent = number("--read-percent", value)?,
            "--theta" => options.theta = number("--theta", value)?,
            "--seconds" => options.seconds = number("--seconds", value)?,
            "--repetitions" => options.repetitions = number("--repetitions", value)?,
            "--seed" => options.seed = number("--seed", value)?,
            "--pairs" => options.pairs = number("--pairs", value)?,
            "--banking" => options.banking = number("--banking", value)?,
            _ => return Err(refuse("argument", field, FIELDS)),
        }
    }
    Ok(options)
}

fn number<T: std::str::FromStr>(field: &'static str, value: &str) -> Result<T, OptionsError> {
    value.parse().map_err(|_| refuse(field, value, "a number, or true or false"))
}

fn refuse(field: &'static str, value: &str, allowed: &str) -> OptionsError {
    OptionsError { field, value: value.to_owned(), allowed: allowed.to_owned() }
}
