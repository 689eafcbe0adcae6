//! Writes the commands and flags of the program as a text, which is stored in the repository.
//!
//! Invariant: `xtask/tarn-commands.txt` describes the command line of this program. `cargo xtask tidy` checks
//! documents against that file, so it need not build the program.

use std::path::Path;

use clap::CommandFactory;

use super::Cli;

const KEPT: &str = "../../xtask/tarn-commands.txt";
const BLESS: &str =
    concat!("TARN_BLESS=1 cargo test -p ", env!("CARGO_PKG_NAME"), " --bin tarn command_tree");

/// Writes one line for a command, with `<>` if the command takes arguments, and one line for each of its flags.
fn write(command: &clap::Command, name: &str, out: &mut String) {
    let takes_arguments = command.get_positionals().next().is_some();
    out.push_str(name);
    out.push_str(if takes_arguments { " <>\n" } else { "\n" });
    let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let flags = shown.flat_map(|argument| argument.get_long_and_visible_aliases());
    for flag in flags.flatten() {
        out.push_str(&format!("  --{flag}\n"));
    }
    let is_shown = |inner: &&clap::Command| !inner.is_hide_set() && inner.get_name() != "help";
    for inner in command.get_subcommands().filter(is_shown) {
        for word in [inner.get_name()].into_iter().chain(inner.get_visible_aliases()) {
            write(inner, &format!("{name} {word}"), out);
        }
    }
}

#[test]
fn the_kept_commands_equal_the_program_s() {
    let mut program = Cli::command();
    program.build();
    let mut text =
        format!("# The commands and flags of `tarn`; a test of it keeps them:\n# {BLESS}\n");
    write(&program, "tarn", &mut text);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(KEPT);
    if std::env::var_os("TARN_BLESS").is_some() {
        std::fs::write(&path, &text).expect("the kept commands can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let differ = kept.lines().zip(text.lines()).position(|(kept, is)| kept != is);
    assert!(kept == text, "{KEPT} is stale, from line {differ:?} on: `{BLESS}` writes it anew");
}
