//! Checks that the commands that documents name exist, with the flags that the documents give.
//!
//! Invariant: the check compares a `cargo xtask` command with this tool's own command line. The check
//! compares a `tarn` command with the file that a test of the program keeps up to date
//! (`tarn_commands`). The check does not check values of flags and positional arguments.

use std::collections::BTreeSet;

use clap::CommandFactory;

use super::Finding;
use super::markdown::{Document, Named};
use super::tree::Tree;

/// The cargo commands that documents may use.
const CARGO: [&str; 17] = [
    "add", "bench", "build", "check", "clean", "clippy", "doc", "fetch", "fmt", "install",
    "metadata", "publish", "run", "test", "tree", "update", "xtask",
];

/// Returns one failure for each command, package, example or flag that does not exist.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut unchecked = 0;
    for path in tree.documents() {
        let Some(text) = tree.text(path) else {
            continue;
        };
        let document = Document::parse(&text);
        for named in document.inline.iter().chain(&document.shell) {
            for words in commands_in(named) {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let (problems, skipped) = judge(tree, &words);
                unchecked += usize::from(skipped);
                let findings_here =
                    problems.into_iter().map(|problem| Finding::failure(path, named.line, problem));
                findings.extend(findings_here);
            }
        }
    }
    if unchecked > 0 {
        let text =
            format!("{unchecked} `tarn` commands in documents are unchecked: no such program");
        findings.push(Finding::warning("crates/cli", 0, text));
    }
    findings
}

/// Returns the single commands of a line of shell, without prompts, variables and comments.
fn commands_in(named: &Named) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    for word in named.text.split_whitespace() {
        if word.starts_with('#') {
            break;
        }
        if matches!(word, "|" | "||" | "&&" | ";" | "&") {
            commands.push(Vec::new());
            continue;
        }
        let ends = word.ends_with(';');
        if let Some(command) = commands.last_mut() {
            let is_prefix = word == "$" || word == "time" || is_assignment(word);
            if !(command.is_empty() && is_prefix) {
                command.push(word.trim_end_matches(';').to_owned());
            }
        }
        if ends {
            commands.push(Vec::new());
        }
    }
    commands
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_')
    })
}

/// Returns the faults of a command. The second result says whether the function could not check the
/// command.
fn judge(tree: &Tree, words: &[&str]) -> (Vec<String>, bool) {
    match words {
        ["cargo", "xtask", rest @ ..] => (judge_xtask(rest), false),
        ["cargo", rest @ ..] => judge_cargo(tree, rest),
        [program, rest @ ..] if *program == "tarn" || program.ends_with("/tarn") => {
            judge_tarn(tree, rest)
        }
        _ => (Vec::new(), false),
    }
}

fn judge_xtask(words: &[&str]) -> Vec<String> {
    let Some(name) = words.first().filter(|word| is_name(word)) else {
        return Vec::new();
    };
    let cli = crate::Cli::command();
    let Some(subcommand) = cli.find_subcommand(name) else {
        return vec![format!("`cargo xtask {name}` does not exist")];
    };
    let known: BTreeSet<String> = subcommand
        .get_arguments()
        .filter_map(|argument| argument.get_long())
        .chain(["help"])
        .map(|flag| format!("--{flag}"))
        .collect();
    unknown_flags(&words[1..], &known, &format!("cargo xtask {name}"))
}

fn judge_cargo(tree: &Tree, words: &[&str]) -> (Vec<String>, bool) {
    let Some(name) = words.first().filter(|word| is_name(word)) else {
        return (Vec::new(), false);
    };
    if !CARGO.contains(name) {
        return (vec![format!("`cargo {name}` is no command that documents use")], false);
    }
    let split = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    let (own, passed) = words.split_at(split);
    let mut problems = Vec::new();
    if !["add", "install", "tree", "update"].contains(name) {
        problems.extend(unknown_packages(tree, own));
    }
    problems.extend(unknown_examples(tree, own));
    let foreign = option(own, &["-p", "--package"]).is_some_and(|package| package != "tarn-cli")
        || option(own, &["--example"]).is_some()
        || option(own, &["--bin"]).is_some_and(|program| program != "tarn");
    if *name != "run" || foreign || passed.is_empty() {
        return (problems, false);
    }
    let (more, skipped) = judge_tarn(tree, &passed[1..]);
    problems.extend(more);
    (problems, skipped)
}

fn unknown_packages(tree: &Tree, words: &[&str]) -> Option<String> {
    let package = option(words, &["-p", "--package"]).filter(|name| is_name(name))?;
    let known = tree.packages.iter().any(|each| each.name == package);
    (!known).then(|| format!("package `{package}` does not exist"))
}

fn unknown_examples(tree: &Tree, words: &[&str]) -> Option<String> {
    let example = option(words, &["--example"]).filter(|name| is_name(name))?;
    let known = tree
        .packages
        .iter()
        .any(|package| package.targets_of("example").any(|target| target.name == example));
    (!known).then(|| format!("example `{example}` does not exist"))
}

/// Returns the value of the first option with one of these names, in the form `--name value` or
/// `--name=value`.
fn option<'a>(words: &[&'a str], names: &[&str]) -> Option<&'a str> {
    words.iter().enumerate().find_map(|(index, word)| {
        if names.contains(word) {
            return words.get(index + 1).copied();
        }
        let (name, value) = word.split_once('=')?;
        names.contains(&name).then_some(value)
    })
}

fn judge_tarn(tree: &Tree, words: &[&str]) -> (Vec<String>, bool) {
    let (first, rest) = match words.split_first() {
        Some((first, rest)) if is_name(first) || first.starts_with("--") => (*first, rest),
        _ => return (Vec::new(), false),
    };
    let Some(commands) = &tree.tarn else {
        return (Vec::new(), true);
    };
    let mut path = vec!["tarn"];
    let mut remaining = words;
    if is_name(first) && first != "help" {
        let mut next = Some((first, rest));
        while let Some((name, rest)) = next.filter(|(name, _)| is_name(name)) {
            let inner = [&path[..], &[name]].concat();
            if commands.get(&inner).is_none() {
                let takes_arguments =
                    commands.get(&path).is_some_and(|command| command.takes_arguments);
                if takes_arguments || !commands.has_commands(&path) {
                    break;
                }
                return (vec![format!("`{}` does not exist", inner.join(" "))], false);
            }
            path = inner;
            remaining = rest;
            next = rest.split_first().map(|(name, rest)| (*name, rest));
        }
    }
    let flags = commands.get(&path).map(|command| command.flags.clone()).unwrap_or_default();
    (unknown_flags(remaining, &flags, &path.join(" ")), false)
}

/// Returns whether a word can be the name of a command, and not a flag, a placeholder or prose.
fn is_name(word: &str) -> bool {
    word.starts_with(|letter: char| letter.is_ascii_lowercase())
        && word
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_')
}

fn unknown_flags(words: &[&str], known: &BTreeSet<String>, command: &str) -> Vec<String> {
    words
        .iter()
        .take_while(|word| **word != "--")
        .filter_map(|word| {
            flags_of(word)
                .into_iter()
                .find(|flag| word.trim_start_matches('[').starts_with(flag.as_str()))
        })
        .filter(|flag| !known.contains(flag))
        .map(|flag| format!("`{command}` has no flag `{flag}`"))
        .collect()
}

/// Returns all `--flags` in a text.
fn flags_of(text: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    text.split(|letter| !is_part(letter))
        .filter(|word| word.len() > 2 && word.starts_with("--"))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Target;
    use crate::metadata::fixture::package;
    use crate::tidy::planted::Fixture;
    use crate::tidy::tarn_commands::TarnCommands;

    const TARN: &str = "tarn\n  --version\ntarn bench <>\n  --seed\n  --json\ntarn lock\n\
                        tarn lock serve\n  --port\ntarn sim <>\n  --ms\ntarn sim nic\n  --profile\n";

    fn problems(document: &str) -> Vec<String> {
        let fixture = Fixture::new(&[("README.md", document)]);
        let mut tree = fixture.tree();
        let mut tarn = package("tarn-cli", &[], &[]);
        let kind = vec!["example".to_owned()];
        let name = "bank".to_owned();
        tarn.targets.push(Target { name, kind, required_features: Vec::new() });
        tree.packages = vec![tarn];
        tree.tarn = Some(TarnCommands::parse(TARN));
        check(&tree).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn existing_names_are_silent() {
        for text in [
            "`cargo xtask ci --skip-tests` and `cargo xtask tidy`",
            "```sh\n$ tarn bench smallbank --seed 7 --json | head # --none\n```\n",
            "```sh\ncargo run --release -p tarn-cli -- lock serve --port=1\n```\n",
            "`./target/release/tarn bench [--seed N]`, `tarn --version`, `tarn`",
            "`RUST_LOG=x cargo test -p tarn-cli` and `cargo run --example bank -- --none`",
            "`tarn::Database` and `tarn → engine` and `cargo install --path crates/cli`",
            "`tarn sim kvs --ms 3` and `tarn sim nic --profile x`",
            "The word tarn nonsense --none in prose.",
        ] {
            assert_eq!(problems(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn missing_names_are_found() {
        for (text, expected) in [
            ("`cargo xtask polish`", "`cargo xtask polish` does not exist"),
            ("`cargo xtask ci --fast`", "`cargo xtask ci` has no flag `--fast`"),
            ("`cargo frobnicate`", "`cargo frobnicate` is no command that documents use"),
            ("`cargo test -p none`", "package `none` does not exist"),
            ("`cargo run --example none`", "example `none` does not exist"),
            ("`tarn polish`", "`tarn polish` does not exist"),
            ("`tarn lock steal`", "`tarn lock steal` does not exist"),
            ("`tarn sim kvs --profile x`", "`tarn sim` has no flag `--profile`"),
            ("`tarn --none`", "`tarn` has no flag `--none`"),
            ("```\ntarn bench x \\\n  --seeds 7\n```\n", "`tarn bench` has no flag `--seeds`"),
            ("`X=1 tarn lock serve --none=1`", "`tarn lock serve` has no flag `--none`"),
            ("`cargo run -- bench --none`", "`tarn bench` has no flag `--none`"),
            ("`tarn bench x && tarn polish`", "`tarn polish` does not exist"),
        ] {
            assert_eq!(problems(text), [expected], "{text}");
        }
    }

    #[test]
    fn without_the_program_its_commands_are_counted() {
        let fixture = Fixture::new(&[("README.md", "`tarn bench` and `tarn lock`")]);
        let found = check(&fixture.tree());
        assert_eq!(found.len(), 1);
        assert!(found[0].text.starts_with("2 `tarn` commands"), "{found:?}");
    }
}
