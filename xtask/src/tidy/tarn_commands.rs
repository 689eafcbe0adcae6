//! The commands and flags of the `tarn` program, from the file that its own test keeps.
//!
//! Invariant: nothing is built to know them. A test of the program (`command_tree`) fails if the file is
//! not its command line, so a document that agrees with the file agrees with the program.

use std::collections::{BTreeMap, BTreeSet};

/// The file, relative to the root.
pub(super) const KEPT: &str = "xtask/tarn-commands.txt";

/// One command, the program itself among them.
#[derive(Debug, Default)]
pub(super) struct TarnCommand {
    /// Its flags, with their two dashes.
    pub(super) flags: BTreeSet<String>,
    pub(super) takes_arguments: bool,
}

/// All commands, by their words: `tarn`, `tarn sim`, `tarn sim nic`.
#[derive(Debug, Default)]
pub(super) struct TarnCommands(BTreeMap<String, TarnCommand>);

impl TarnCommands {
    /// Reads the file: a line that is not indented is a command, an indented one is a flag of the
    /// last command.
    pub(super) fn parse(text: &str) -> Self {
        let mut commands = BTreeMap::new();
        let mut last = String::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if line.starts_with(' ') {
                let command: &mut TarnCommand = commands.entry(last.clone()).or_default();
                command.flags.insert(line.trim().to_owned());
            } else {
                let (words, takes_arguments) = match line.strip_suffix(" <>") {
                    Some(words) => (words, true),
                    None => (line, false),
                };
                last = words.trim().to_owned();
                commands.entry(last.clone()).or_default().takes_arguments = takes_arguments;
            }
        }
        Self(commands)
    }

    /// The command of these words, `tarn` first.
    pub(super) fn get(&self, words: &[&str]) -> Option<&TarnCommand> {
        self.0.get(&words.join(" "))
    }

    /// Whether the command of these words has commands of its own.
    pub(super) fn has_commands(&self, words: &[&str]) -> bool {
        let inside = format!("{} ", words.join(" "));
        self.0.range(inside.clone()..).next().is_some_and(|(name, _)| name.starts_with(&inside))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_flags_arguments_and_commands() {
        let text = "# About.\ntarn\n  --help\ntarn sim <>\n  --ms\n  --help\ntarn sim nic\n";
        let commands = TarnCommands::parse(text);
        let of = |words: &[&str]| commands.get(words).map(|command| command.flags.len());
        assert_eq!(of(&["tarn"]), Some(1));
        assert_eq!(of(&["tarn", "sim"]), Some(2));
        assert_eq!(of(&["tarn", "sim", "nic"]), Some(0));
        assert_eq!(of(&["tarn", "bench"]), None);
        assert!(commands.get(&["tarn", "sim"]).is_some_and(|command| command.takes_arguments));
        assert!(commands.has_commands(&["tarn"]) && commands.has_commands(&["tarn", "sim"]));
        assert!(!commands.has_commands(&["tarn", "sim", "nic"]));
    }
}
