//! A schedule as one short line of text.
//!
//! Invariant: a schedule names every transition of an execution, by its position among all enabled
//! transitions. A schedule names all transitions under every reduction, so a replay needs no knowledge
//! of reductions. A schedule prints as numbers of base 36 with `-` between them, and `n*c` for `n`
//! times `c` (n decimal). The text parses back to the same schedule.

use std::fmt;
use std::str::FromStr;

/// The transition taken at each step, as a position among the enabled transitions in their fixed order.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Schedule {
    /// One choice for each transition of the execution.
    pub choices: Vec<u32>,
}

const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for run in self.choices.chunk_by(|a, b| a == b) {
            f.write_str(separator)?;
            separator = "-";
            if run.len() > 1 {
                write!(f, "{}*", run.len())?;
            }
            write_base_36(f, run[0])?;
        }
        Ok(())
    }
}

fn write_base_36(f: &mut fmt::Formatter<'_>, mut number: u32) -> fmt::Result {
    let mut digits = [0; 7];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = DIGITS[(number % 36) as usize];
        number /= 36;
        if number == 0 {
            break;
        }
    }
    f.write_str(str::from_utf8(&digits[at..]).expect("digits are ASCII"))
}

/// The error for a text that is not a valid schedule. The error names the mistake and the expected
/// form of a schedule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScheduleError(pub String);

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ScheduleError {}

/// The parser refuses a schedule with more choices than this number.
const CHOICES_MAX: usize = 10_000_000;

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Schedule, ScheduleError> {
        let mut choices = Vec::new();
        for item in text.trim().split('-').filter(|_| !text.trim().is_empty()) {
            let wrong = || {
                ScheduleError(format!(
                    "schedule: \"{item}\": expected a number of base 36, or one with how often before \
                     it, as in 12*0"
                ))
            };
            let (count, number) = item.split_once('*').unwrap_or(("1", item));
            let count: usize = count.parse().map_err(|_| wrong())?;
            let choice = u32::from_str_radix(number, 36).map_err(|_| wrong())?;
            if count == 0 || choices.len() + count > CHOICES_MAX {
                return Err(wrong());
            }
            choices.resize(choices.len() + count, choice);
        }
        Ok(Schedule { choices })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_schedule_parses_back() {
        for choices in
            [vec![], vec![0], vec![0, 0, 0, 35, 36, 36, u32::MAX, 0], vec![7; 100], vec![1, 2, 1]]
        {
            let schedule = Schedule { choices };
            assert_eq!(schedule.to_string().parse(), Ok(schedule));
        }
        assert_eq!(Schedule { choices: vec![0, 0, 0, 35, 36] }.to_string(), "3*0-z-10");
    }

    #[test]
    fn a_wrong_schedule_is_named() {
        for text in ["3*", "-", "0*1", "!", "99999999999*1", "1--2"] {
            let error = text.parse::<Schedule>().unwrap_err();
            assert!(error.to_string().contains("expected"), "{error}");
        }
    }
}
