//! Reads the names in a Markdown document: links, inline code and lines of shell.
//!
//! Invariant: the checks never check prose outside of code and links. The checks also skip a block of
//! code in a language that is not a shell language, because its compiler checks the block.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A name in a document, and the line on which it occurs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) line: usize,
    pub(super) text: String,
}

/// The parts of a document that the checks can check.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) links: Vec<Named>,
    pub(super) inline: Vec<Named>,
    /// The lines of shell, with continuation lines joined and prompts removed.
    pub(super) shell: Vec<Named>,
}

/// The languages of code blocks that the checks read as shell. The empty language is a block without
/// a language.
const SHELL: [&str; 6] = ["", "sh", "bash", "shell", "console", "text"];

impl Document {
    /// Reads a document from its text.
    pub(super) fn parse(text: &str) -> Self {
        let mut document = Self::default();
        let mut block: Option<(usize, String)> = None;
        let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            let line = 1 + ends.partition_point(|&end| end < range.start);
            match event {
                Event::Code(code) => {
                    document.inline.push(Named { line, text: code.into_string() });
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    document.links.push(Named { line, text: dest_url.into_string() });
                }
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) if is_shell(&info) => {
                    block = Some((line + 1, String::new()));
                }
                Event::Text(code) => {
                    if let Some((_, collected)) = &mut block {
                        collected.push_str(&code);
                    }
                }
                Event::End(TagEnd::CodeBlock) => {
                    if let Some((first, code)) = block.take() {
                        document.shell.extend(shell_lines(first, &code));
                    }
                }
                _ => {}
            }
        }
        document
    }
}

fn is_shell(info: &str) -> bool {
    let language = info.split([',', ' ']).next().unwrap_or_default();
    SHELL.contains(&language)
}

/// Returns the commands of a code block. If the block shows prompts, only lines with a prompt are
/// commands.
fn shell_lines(first: usize, code: &str) -> Vec<Named> {
    let prompts = code.lines().any(|line| line.starts_with("$ "));
    let mut lines: Vec<Named> = Vec::new();
    let mut continued = false;
    for (index, raw) in code.lines().enumerate() {
        let (body, goes_on) = match raw.trim_end().strip_suffix('\\') {
            Some(body) => (body, true),
            None => (raw, false),
        };
        if continued && let Some(last) = lines.last_mut() {
            last.text.push(' ');
            last.text.push_str(body.trim());
            continued = goes_on;
            continue;
        }
        let command = if prompts { body.strip_prefix("$ ") } else { Some(body) };
        if let Some(command) = command.map(str::trim).filter(|command| !command.is_empty()) {
            lines.push(Named { line: first + index, text: command.to_owned() });
            continued = goes_on;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(line: usize, text: &str) -> Named {
        Named { line, text: text.to_owned() }
    }

    #[test]
    fn links_inline_code_and_shell() {
        let text = "See [the log](docs/log.md#end) and `crates/a`.\n\n```sh\ncargo a \\\n  --b\n\
                    cargo c\n```\n\n```rust\nlet x = 1;\n```\n";
        let document = Document::parse(text);
        assert_eq!(document.links, [named(1, "docs/log.md#end")]);
        assert_eq!(document.inline, [named(1, "crates/a")]);
        assert_eq!(document.shell, [named(4, "cargo a --b"), named(6, "cargo c")]);
    }

    #[test]
    fn prompts_mark_the_commands_among_output() {
        let document = Document::parse("```console\n$ tarn bench\ntarn did it\n```\n");
        assert_eq!(document.shell, [named(2, "tarn bench")]);
    }

    #[test]
    fn code_in_tables_is_inline_code() {
        let document = Document::parse("| a | b |\n|---|---|\n| `x/y` | z |\n");
        assert_eq!(document.inline, [named(3, "x/y")]);
    }
}
