//! A Rust file in the form that the checks read: tokens with line numbers, paths and functions.
//!
//! Invariant: comments and doc comments are removed, because a rule about code must not complain about
//! prose. Code for tests is marked, and not removed.

use proc_macro2::{Delimiter, LexError, TokenStream, TokenTree};

/// A parsed file.
pub(super) struct Source {
    pub(super) path: String,
    pub(super) text: String,
    pub(super) tokens: Vec<Token>,
    pub(super) functions: Vec<Function>,
}

/// An identifier, a literal, `::`, a bracket or a punctuation mark.
#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) line: usize,
    pub(super) in_test: bool,
    pub(super) kind: Kind,
}

/// The kinds of tokens that the checks distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Identifier,
    Literal,
    Mark,
}

/// A path such as `a::b::c`. The file contains the path in this form, or in a `use` with braces.
#[derive(Debug)]
pub(super) struct NamePath {
    pub(super) segments: Vec<String>,
    pub(super) line: usize,
    pub(super) in_test: bool,
    pub(super) imported: bool,
}

/// A function with a body.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) lines: usize,
}

impl Source {
    /// Splits the text into tokens.
    pub(super) fn parse(path: &str, text: String) -> Result<Self, LexError> {
        let stream: TokenStream = text.parse()?;
        let trees: Vec<TokenTree> = stream.into_iter().collect();
        let mut source =
            Self { path: path.to_owned(), text, tokens: Vec::new(), functions: Vec::new() };
        let in_test = is_test_file(path);
        source.flatten(&trees, in_test);
        Ok(source)
    }

    /// Returns all paths in the file. Single identifiers are included.
    pub(super) fn paths(&self) -> Vec<NamePath> {
        let mut paths = Vec::new();
        let mut at = 0;
        while at < self.tokens.len() {
            let token = &self.tokens[at];
            if token.text == "use" && self.text_at(at + 1) != "<" {
                at = self.imports(at + 1, &mut Vec::new(), &mut paths);
            } else if token.kind == Kind::Identifier {
                at = self.path_from(at, &mut paths);
            } else {
                at += 1;
            }
        }
        paths
    }

    fn text_at(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| token.text.as_str())
    }

    fn path_from(&self, start: usize, paths: &mut Vec<NamePath>) -> usize {
        let mut segments = vec![self.tokens[start].text.clone()];
        let mut at = start + 1;
        while self.text_at(at) == "::"
            && self.tokens.get(at + 1).is_some_and(|next| next.kind == Kind::Identifier)
        {
            segments.push(self.tokens[at + 1].text.clone());
            at += 2;
        }
        let Token { line, in_test, .. } = self.tokens[start];
        paths.push(NamePath { segments, line, in_test, imported: false });
        at
    }

    /// Reads one tree of a `use`. The function stops before the token that ends the tree, which is
    /// `,`, `}` or `;`.
    fn imports(&self, from: usize, prefix: &mut Vec<String>, out: &mut Vec<NamePath>) -> usize {
        let depth = prefix.len();
        let mut at = from;
        let mut emit = true;
        while let Some(token) = self.tokens.get(at) {
            match token.text.as_str() {
                "," | "}" | ";" => break,
                "{" => {
                    emit = false;
                    at += 1;
                    while !matches!(self.text_at(at), "}" | ";" | "") {
                        at = self.imports(at, prefix, out);
                        at += usize::from(self.text_at(at) == ",");
                    }
                }
                "as" => at += 1,
                text if token.kind == Kind::Identifier => prefix.push(text.to_owned()),
                _ => {}
            }
            at += 1;
        }
        if emit && let Some(token) = self.tokens.get(from) {
            let (line, in_test) = (token.line, token.in_test);
            out.push(NamePath { segments: prefix.clone(), line, in_test, imported: true });
        }
        prefix.truncate(depth);
        at
    }

    fn flatten(&mut self, trees: &[TokenTree], inherited: bool) {
        let mut whole = inherited;
        let mut item = false;
        let mut at = 0;
        while at < trees.len() {
            if let Some(attribute) = Attribute::at(&trees[at..]) {
                match (attribute.is_test, attribute.inner) {
                    (true, true) => whole = true,
                    (true, false) => item = true,
                    _ => {}
                }
                if !attribute.is_doc {
                    self.push_trees(&trees[at..at + attribute.length], whole || item);
                }
                at += attribute.length;
                continue;
            }
            self.note_function(&trees[at..]);
            let length = if is_path_separator(&trees[at..]) { 2 } else { 1 };
            self.push_trees(&trees[at..at + length], whole || item);
            item &= !ends_item(&trees[at]);
            at += length;
        }
    }

    /// Adds token trees to the file's tokens. The function adds two colons as one token, the
    /// separator of a path.
    fn push_trees(&mut self, trees: &[TokenTree], in_test: bool) {
        if is_path_separator(trees) {
            self.push("::", trees[0].span().start().line, in_test, Kind::Mark);
            return;
        }
        for tree in trees {
            let line = tree.span().start().line;
            match tree {
                TokenTree::Group(group) => {
                    let (open, close) = brackets(group.delimiter());
                    self.push(open, line, in_test, Kind::Mark);
                    let inside: Vec<TokenTree> = group.stream().into_iter().collect();
                    self.flatten(&inside, in_test);
                    self.push(close, group.span_close().start().line, in_test, Kind::Mark);
                }
                TokenTree::Ident(name) => {
                    let text = name.to_string();
                    let text = text.strip_prefix("r#").unwrap_or(&text);
                    self.push(text, line, in_test, Kind::Identifier);
                }
                TokenTree::Literal(literal) => {
                    self.push(&literal.to_string(), line, in_test, Kind::Literal);
                }
                TokenTree::Punct(mark) => {
                    self.push(&mark.as_char().to_string(), line, in_test, Kind::Mark);
                }
            }
        }
    }

    fn push(&mut self, text: &str, line: usize, in_test: bool, kind: Kind) {
        if !text.is_empty() {
            self.tokens.push(Token { text: text.to_owned(), line, in_test, kind });
        }
    }

    fn note_function(&mut self, trees: &[TokenTree]) {
        let [TokenTree::Ident(keyword), TokenTree::Ident(name), rest @ ..] = trees else {
            return;
        };
        if keyword != "fn" {
            return;
        }
        let end = rest.iter().find(|tree| ends_item(tree));
        if let Some(TokenTree::Group(body)) = end {
            let line = keyword.span().start().line;
            let lines = body.span_close().end().line - line + 1;
            self.functions.push(Function { name: name.to_string(), line, lines });
        }
    }
}

/// An attribute: `#[...]` or `#![...]`.
struct Attribute {
    length: usize,
    inner: bool,
    is_doc: bool,
    is_test: bool,
}

impl Attribute {
    fn at(trees: &[TokenTree]) -> Option<Self> {
        let (TokenTree::Punct(hash), rest) = trees.split_first()? else {
            return None;
        };
        if hash.as_char() != '#' {
            return None;
        }
        let inner = matches!(rest.first(), Some(TokenTree::Punct(mark)) if mark.as_char() == '!');
        let Some(TokenTree::Group(group)) = rest.get(usize::from(inner)) else {
            return None;
        };
        let words: Vec<TokenTree> = group.stream().into_iter().collect();
        let first = words.first().map(ToString::to_string).unwrap_or_default();
        let is_test = match first.as_str() {
            "cfg" => words[1..].iter().any(asks_for_test),
            _ => words.last().is_some_and(|word| word.to_string() == "test"),
        };
        Some(Self { length: 2 + usize::from(inner), inner, is_doc: first == "doc", is_test })
    }
}

/// Returns whether a `cfg` predicate contains `test` outside of `not(...)`.
fn asks_for_test(tree: &TokenTree) -> bool {
    let TokenTree::Group(group) = tree else {
        return tree.to_string() == "test";
    };
    let inside: Vec<TokenTree> = group.stream().into_iter().collect();
    inside.iter().enumerate().any(|(at, each)| {
        let negated = at > 0 && inside[at - 1].to_string() == "not";
        !negated && asks_for_test(each)
    })
}

fn is_path_separator(trees: &[TokenTree]) -> bool {
    let colon = |tree: Option<&TokenTree>| matches!(tree, Some(TokenTree::Punct(mark)) if mark.as_char() == ':');
    let joint = matches!(trees.first(), Some(TokenTree::Punct(mark))
        if mark.spacing() == proc_macro2::Spacing::Joint);
    joint && colon(trees.first()) && colon(trees.get(1))
}

fn ends_item(tree: &TokenTree) -> bool {
    match tree {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(mark) => mark.as_char() == ';',
        _ => false,
    }
}

fn brackets(delimiter: Delimiter) -> (&'static str, &'static str) {
    match delimiter {
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::Brace => ("{", "}"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::None => ("", ""),
    }
}

/// Returns whether only tests compile a file. The function decides by the file's path.
fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.split('/').any(|folder| folder == "tests")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Source {
        Source::parse("crates/x/src/lib.rs", text.to_owned()).expect("Rust")
    }

    fn paths(text: &str) -> Vec<String> {
        parse(text).paths().iter().map(|path| path.segments.join("::")).collect()
    }

    #[test]
    fn imports_are_spelled_out() {
        let text = "use a::{b, c::{d, e as f}, g::*}; use h; pub use ::i::j as k;";
        assert_eq!(paths(text), ["a::b", "a::c::d", "a::c::e", "a::g", "h", "pub", "i::j"]);
    }

    #[test]
    fn paths_in_code_are_joined() {
        assert_eq!(paths("fn f() { x::y::z(); }"), ["fn", "f", "x::y::z"]);
        assert_eq!(paths("fn f() -> impl T + use<> {}").last().map(String::as_str), Some("use"));
    }

    #[test]
    fn comments_and_doc_comments_are_gone() {
        let source = parse("//! word\n/// word\nfn f() {} // word\n/* word */");
        assert!(source.tokens.iter().all(|token| !token.text.contains("word")));
    }

    #[test]
    fn items_that_only_tests_compile_are_marked() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() {} }\nfn c() {}\n\
                    #[cfg(not(test))]\nfn d() {}\n#[cfg(all(unix, test))]\nuse e;\nfn g() {}";
        let source = parse(text);
        let marked = |name: &str| source.tokens.iter().any(|t| t.text == name && t.in_test);
        assert!(marked("b") && marked("e"));
        assert!(!marked("a") && !marked("c") && !marked("d") && !marked("g"));
    }

    #[test]
    fn functions_are_measured_from_keyword_to_brace() {
        let source = parse("trait T { fn none(); }\nimpl U {\n    fn two(&self)\n    {}\n}\n");
        let found: Vec<_> =
            source.functions.iter().map(|f| (f.name.as_str(), f.line, f.lines)).collect();
        assert_eq!(found, [("two", 3, 2)]);
    }
}
