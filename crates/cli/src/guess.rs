//! If a given name does not exist, guesses the name that the user probably meant.
//!
//! Invariant: this module makes the guesses for every command, flag and file. The module reads the line about bad
//! input, `NAME = VALUE; allowed: LIST`. The module adds a guess only if LIST contains a name that differs from VALUE
//! in a few letters. If LIST is no list of names, there is no guess.

use strsim::osa_distance;

/// The least number of letters of a value for a guess. Shorter values differ from too many names in only a letter or
/// two.
const LETTERS_MIN: usize = 3;
/// The number of letters for which a guess allows one wrong letter.
const LETTERS_PER_SLIP: usize = 3;

/// Returns the line. If there is a name that the user probably meant, the function adds `; did you mean NAME?`.
pub(super) fn with_guess(line: &str) -> String {
    let guess = || {
        let (start, allowed) = line.split_once("; allowed: ")?;
        if allowed.contains("did you mean") {
            return None; // clap knows the flags better and has made its own guess
        }
        let (_, value) = start.split_once(" = ")?;
        // The value has parts: the key and value of a setting, or a switch that the user turns off or on.
        value.split('=').find_map(|part| {
            let part = part.strip_prefix("unsafe-no-").unwrap_or(part);
            nearest(part.trim_start_matches(['-', '+', ',']), names(allowed))
        })
    };
    match guess() {
        Some(name) => format!("{line}; did you mean {name}?"),
        None => line.to_owned(),
    }
}

/// Returns the names in a list: the single words between commas, brackets and "or".
fn names(allowed: &str) -> impl Iterator<Item = &str> {
    let items = allowed.split([',', ';', ':', '(', ')']).flat_map(|item| item.split(" or "));
    items.map(|item| item.trim().trim_start_matches("or ")).filter(|item| is_name(item))
}

fn is_name(text: &str) -> bool {
    let letters = |it: char| it.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&it);
    text.starts_with(|it: char| it.is_ascii_alphabetic()) && text.chars().all(letters)
}

/// Returns the name that differs from `given` in the fewest letters. `None` if too many letters differ, or if `given`
/// is one of the names.
fn nearest<'a>(given: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if given.chars().count() < LETTERS_MIN || !is_name(given) {
        return None;
    }
    let given = given.to_ascii_lowercase();
    let most = (given.len() / LETTERS_PER_SLIP).max(1);
    let near = names.filter(|name| name.len() >= LETTERS_MIN).map(|name| {
        let is_begun = name.starts_with(&given);
        // If the user has typed only the beginning of a name, the missing letters do not count as wrong.
        (if is_begun { 1 } else { osa_distance(&given, name) }, name)
    });
    let (distance, name) = near.min_by_key(|(distance, _)| *distance)?;
    (distance <= most && given != name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likely_name_is_found_in_every_form_of_list() {
        let cases = [
            ("WORKLOAD = smalbank; allowed: kvs, smallbank, tatp", Some("smallbank")),
            (
                "WORKLOAD = rendom; allowed: kvs, ycsb, or hotspot, nic, outage, random",
                Some("random"),
            ),
            (
                "--variant = -validate-read; allowed: corrected, literal or measured, then ,-NAME of ford (validate-reads, x)",
                Some("validate-reads"),
            ),
            (
                "--variant = mesured; allowed: corrected, literal or measured, then ,-NAME",
                Some("measured"),
            ),
            (
                "--variant = unsafe-no-lock-cass; allowed: corrected, then ,unsafe-no-NAME (lock-cas)",
                Some("lock-cas"),
            ),
            (
                "--set = nic.read_mop=3; allowed: KEY=VALUE with one of these keys: nic.read_mops, nic.x",
                Some("nic.read_mops"),
            ),
            (
                "--what-if = tpcc=cres; allowed: tpcc= with one of lotus-code, crest, tiny",
                Some("crest"),
            ),
            ("COMMAND = small; allowed: kvs, smallbank", Some("smallbank")),
            ("WORKLOAD = Kvs1; allowed: kvs, smallbank", Some("kvs")),
            // The first three lists contain no names, or no name that is similar to the value.
            ("--seeds = whole; allowed: a whole number without a sign", None),
            ("HISTORY = /kvs; allowed: kvs", None),
            ("--threads = 1025; allowed: 1 to 1024", None),
            ("WORKLOAD = mongo; allowed: kvs, smallbank, tatp", None),
            ("WORKLOAD = kv; allowed: kvs, smallbank", None),
            ("--procedure = deposit; allowed: only together with deposit", None),
            (
                "argument = --threds; allowed: the flags that --help lists; did you mean --threads?",
                None,
            ),
        ];
        for (line, meant) in cases {
            let expected =
                meant.map_or(line.to_owned(), |name| format!("{line}; did you mean {name}?"));
            assert_eq!(with_guess(line), expected);
        }
    }
}
