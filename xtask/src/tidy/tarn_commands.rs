//! The commands and flags of the `tarn` program, read from a file that the program's own test keeps up
//! to date.
//!
//! Invariant: the check learns the commands without building the program. A test of the program
//! (`command_tree`) fails if the file differs from the program's command line. So a document that
//! agrees with the file agrees with the program.

use std::collections::{BTreeMap, BTreeSet};

/// The file with the commands, relative to the root.
pub(super) const KEPT: &str = "xtask/tarn-commands.txt";

/// One command. The program itself is also a command.
#[derive(Debug, Default)]
pub(super) struct TarnCommand {
    /// The flags of the command, with their two dashes.
    pub(super) flags: BTreeSet<String>,
    pub(super) takes_arguments: bool,
}

/// All commands of the `tarn` program, by their words, for example `tarn`, `tarn sim` and `tarn sim
/// nic`.
#[derive(Debug, Default)]
pub(super) struct TarnCommands(BTreeMap<String, TarnCommand>);

impl TarnCommands {
    /// Reads the text of the file. A line that is not indented is a command. An indented line is a
    /// flag of the command above it.
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

    /// Returns the command with these words. The first word is `tarn`.
    pub(super) fn get(&self, words: &[&str]) -> Option<&TarnCommand> {
        self.0.get(&words.join(" "))
    }

    /// Returns whether the command with these words has subcommands.
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
