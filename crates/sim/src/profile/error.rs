//! The error for a refused profile.
//!
//! Invariant: a message names the profile, the constant, its value, and the accepted values.

use super::Listed;
use std::fmt;

/// The reason why a profile is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProfileError {
    text: String,
}

impl ProfileError {
    pub(super) fn unknown(name: &str, known: impl Iterator<Item = &'static str>) -> ProfileError {
        let known: Vec<&str> = known.collect();
        let known = known.join(", ");
        ProfileError {
            text: format!("profile = {name}; allowed: {known}, or a path to a .toml file"),
        }
    }

    pub(super) fn unreadable(path: &str, error: &std::io::Error) -> ProfileError {
        ProfileError {
            text: format!("profile = {path}; allowed: a file that can be read ({error})"),
        }
    }

    pub(super) fn syntax(origin: &str, error: &toml::de::Error) -> ProfileError {
        ProfileError { text: format!("{origin}: {}", error.to_string().trim_end()) }
    }

    pub(super) fn out_of_range(origin: &str, listed: &Listed<'_>) -> ProfileError {
        let Listed { section, name, constant, allowed: (low, high) } = listed;
        let value = constant.value;
        let text = format!("{origin}: {section}.{name} = {value}; allowed: {low} to {high}");
        ProfileError { text }
    }

    pub(super) fn no_source(origin: &str, section: &str, name: &str) -> ProfileError {
        let text = format!(
            "{origin}: {section}.{name}.source is empty; allowed: the publication that it was read \
             from, or the arithmetic"
        );
        ProfileError { text }
    }

    pub(super) fn no_value(origin: &str, key: &str, text: &str, allowed: &str) -> ProfileError {
        ProfileError { text: format!("{origin}: {key} = {text}; allowed: {allowed}") }
    }

    pub(super) fn unknown_constant(
        origin: &str,
        name: &str,
        known: impl Iterator<Item = String>,
    ) -> ProfileError {
        let known: Vec<String> = known.collect();
        let known = known.join(", ");
        ProfileError { text: format!("{origin}: no constant `{name}`; allowed: {known}") }
    }
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for ProfileError {}
