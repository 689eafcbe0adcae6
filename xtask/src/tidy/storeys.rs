//! Checks the layers inside a crate, which are called storeys. A file may use only files of its own
//! storey or of lower storeys. The check also refuses large cycles of files that use each other.
//!
//! Invariant: if a crate in the table has storeys, every file of the crate belongs to one. The paths
//! in a file lead to the file's own storey or to a lower storey. The check reads paths as written,
//! after `crate::` and `super::`, outside of code for tests.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::source::{NamePath, Source};
use super::tree::Tree;

/// The largest allowed number of files in a cycle of files that use each other. A reader must
/// understand the files of a cycle together, which is too hard for more files.
const CIRCLE: usize = 8;

/// A crate for which the rule is checked.
struct Crate {
    /// The folder of the crate's manifest.
    folder: &'static str,
    /// The storeys of the crate from the lowest to the highest. If the crate has no storeys, the
    /// check checks only cycles.
    storeys: &'static [Storey],
    /// The largest allowed number of files in a cycle. The number is [`CIRCLE`], or a larger number
    /// for a crate with an old cycle, which must not grow.
    circle: usize,
}

/// Modules of one storey. The modules of a storey may use each other and all modules of lower storeys.
struct Storey {
    name: &'static str,
    /// The paths of the modules (`index`, `index::btree`). The path of a module includes all modules
    /// inside this module. If several of these paths include a module, the longest path counts.
    modules: &'static [&'static str],
}

/// The crates for which the rule is checked. A crate that has not been divided into storeys yet has no
/// line.
const TABLE: &[Crate] = &[
    Crate { folder: "crates/check", storeys: &[], circle: CIRCLE },
    Crate {
        folder: "crates/engine",
        storeys: &[
            Storey { name: "cluster", modules: &["cluster"] },
            Storey { name: "services", modules: &["services"] },
            Storey { name: "transaction", modules: &["transaction"] },
            Storey { name: "site", modules: &["site"] },
            Storey { name: "requests", modules: &["requests"] },
            Storey { name: "steps", modules: &["steps"] },
            Storey { name: "protocol", modules: &["protocol"] },
            Storey { name: "recovery", modules: &["recovery"] },
            Storey { name: "session", modules: &["session"] },
            Storey { name: "admin", modules: &["admin"] },
        ],
        circle: CIRCLE,
    },
    Crate { folder: "crates/fabric", storeys: &[], circle: CIRCLE },
    Crate { folder: "crates/cli", storeys: &[], circle: CIRCLE },
    Crate { folder: "crates/lab", storeys: &[], circle: CIRCLE },
    Crate {
        folder: "crates/store",
        storeys: &[
            Storey { name: "ids", modules: &["ids"] },
            Storey { name: "schema", modules: &["schema"] },
            Storey { name: "layout", modules: &["layout"] },
            Storey { name: "placement", modules: &["placement"] },
            Storey { name: "index", modules: &["index"] },
            Storey { name: "log", modules: &["log"] },
            Storey { name: "memory", modules: &["memory"] },
            Storey { name: "history", modules: &["history"] },
        ],
        circle: CIRCLE,
    },
    Crate { folder: "crates/tarn", storeys: &[], circle: CIRCLE },
    Crate { folder: "crates/sim", storeys: &[], circle: 13 },
    Crate {
        folder: "crates/workloads",
        storeys: &[
            Storey {
                name: "parts",
                modules: &["distribution", "field", "routes", "untold", "workload"],
            },
            Storey {
                name: "workloads",
                modules: &["kvs", "smallbank", "taobench", "tatp", "tpcc", "ycsb"],
            },
        ],
        circle: CIRCLE,
    },
    Crate { folder: "xtask", storeys: &[], circle: CIRCLE },
];

/// Returns one failure for each path that leads to a higher storey, for each file without a storey,
/// and for each cycle that is too large.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    TABLE.iter().flat_map(|each| judge(tree, each)).collect()
}

fn judge(tree: &Tree, rules: &Crate) -> Vec<Finding> {
    let modules = Modules::of(tree, rules.folder);
    let arrows = modules.arrows();
    let mut findings = climbs(&modules, &arrows, rules.storeys);
    findings.extend(circles(&modules, &arrows, rules.circle));
    findings
}

/// A use of one file by another file, and the line of the path that shows this use.
struct Arrow<'a> {
    from: &'a str,
    to: &'a str,
    line: usize,
}

/// The files in a crate's `src`, by the path of their module. Files that only tests compile are not
/// included.
struct Modules<'a>(BTreeMap<String, &'a Source>);

impl<'a> Modules<'a> {
    fn of(tree: &'a Tree, folder: &str) -> Self {
        let inside = format!("{folder}/src/");
        let mut files = BTreeMap::new();
        let mut tests = Vec::new();
        for source in &tree.sources {
            let Some(path) = source.path.strip_prefix(&inside) else { continue };
            let module = module_of(path);
            tests.extend(test_modules(source).map(|name| joined(&module, &name)));
            files.insert(module, source);
        }
        let is_test = |module: &str| {
            module.ends_with("tests") || tests.iter().any(|test| is_inside(module, test))
        };
        files.retain(|module, _| !is_test(module));
        Self(files)
    }

    fn arrows(&self) -> Vec<Arrow<'_>> {
        let mut arrows = Vec::new();
        for (from, source) in &self.0 {
            for path in source.paths().iter().filter(|path| !path.in_test) {
                let to = absolute(from, path).and_then(|segments| self.named_by(&segments));
                arrows.extend(
                    to.filter(|to| *to != from && !to.is_empty() && !from.is_empty())
                        .map(|to| Arrow { from, to, line: path.line }),
                );
            }
        }
        arrows
    }

    /// Returns the file to which a path from the crate's root leads. The longest prefix of the path
    /// that is a file counts.
    fn named_by(&self, segments: &[String]) -> Option<&str> {
        (1..=segments.len()).rev().find_map(|length| {
            let (module, _) = self.0.get_key_value(&segments[..length].join("::"))?;
            Some(module.as_str())
        })
    }

    fn file(&self, module: &str) -> &str {
        self.0.get(module).map_or("", |source| source.path.as_str())
    }
}

/// Returns the path of a file's module: `a/b.rs` and `a/b/mod.rs` are `a::b`. The path of the crate's
/// root is empty.
fn module_of(path: &str) -> String {
    let path = path.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    match path {
        "lib" | "main" => String::new(),
        _ => path.replace('/', "::"),
    }
}

fn joined(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

fn is_inside(module: &str, outer: &str) -> bool {
    module.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Returns the names of modules that are declared by `#[cfg(test)] mod name;`.
fn test_modules(source: &Source) -> impl Iterator<Item = String> {
    source.tokens.windows(3).filter_map(|tokens| match tokens {
        [keyword, name, end] if keyword.text == "mod" && keyword.in_test && end.text == ";" => {
            Some(name.text.clone())
        }
        _ => None,
    })
}

/// Returns the segments of a path from the crate's root on, if the path begins at the root or at an
/// enclosing module.
fn absolute(from: &str, path: &NamePath) -> Option<Vec<String>> {
    let mut segments = path.segments.as_slice();
    let mut base: Vec<String> = Vec::new();
    match segments.first()?.as_str() {
        "crate" => segments = &segments[1..],
        "super" => {
            base = from.split("::").map(str::to_owned).collect();
            while let [first, rest @ ..] = segments
                && first == "super"
            {
                base.pop();
                segments = rest;
            }
        }
        _ => return None,
    }
    base.extend(segments.iter().cloned());
    Some(base)
}

/// Returns the rank of a module's storey, counted from the lowest storey. If several paths include
/// the module, the longest path counts.
fn rank(module: &str, storeys: &[Storey]) -> Option<usize> {
    let named = storeys.iter().enumerate().flat_map(|(rank, storey)| {
        storey
            .modules
            .iter()
            .filter(|outer| is_inside(module, outer))
            .map(move |it| (it.len(), rank))
    });
    named.max().map(|(_, rank)| rank)
}

/// Returns one failure for each path that lead to a higher storey, and for files without a storey.
fn climbs(modules: &Modules<'_>, arrows: &[Arrow<'_>], storeys: &[Storey]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if storeys.is_empty() {
        return findings;
    }
    let ranks: BTreeMap<&str, usize> = modules
        .0
        .keys()
        .filter_map(|module| Some((module.as_str(), rank(module, storeys)?)))
        .collect();
    for (module, source) in modules.0.iter().filter(|(module, _)| !module.is_empty()) {
        if !ranks.contains_key(module.as_str()) {
            let text = format!("module `{module}` has no storey (tidy/storeys.rs)");
            findings.push(Finding::failure(&source.path, 0, text));
        }
    }
    for Arrow { from, to, line } in arrows {
        let (Some(low), Some(high)) = (ranks.get(from), ranks.get(to)) else { continue };
        if low < high {
            let (low, high) = (storeys[*low].name, storeys[*high].name);
            let text = format!("`{from}` of storey `{low}` uses `{to}` of the later `{high}`");
            findings.push(Finding::failure(modules.file(from), *line, text));
        }
    }
    findings
}

/// Returns one failure for each cycle with too many files. In a cycle, each file reaches all other
/// files along uses.
fn circles(modules: &Modules<'_>, arrows: &[Arrow<'_>], most: usize) -> Vec<Finding> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for arrow in arrows {
        next.entry(arrow.from).or_default().insert(arrow.to);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        next.keys().map(|from| (*from, reach(from, &next))).collect();
    let mut seen = BTreeSet::new();
    let mut findings = Vec::new();
    for (module, others) in &reached {
        let back = |other: &&&str| reached.get(**other).is_some_and(|it| it.contains(module));
        let circle: BTreeSet<&str> = others.iter().filter(back).copied().collect();
        if circle.len() > most && seen.insert(circle.clone()) {
            let names: Vec<&str> = circle.iter().copied().collect();
            let text = format!(
                "{} files use each other in a circle, more than {most}: {}",
                circle.len(),
                names.join(", ")
            );
            findings.push(Finding::failure(modules.file(module), 0, text));
        }
    }
    findings
}

fn reach<'a>(from: &'a str, next: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut ahead = vec![from];
    while let Some(module) = ahead.pop() {
        for to in next.get(module).into_iter().flatten() {
            if reached.insert(*to) {
                ahead.push(to);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::planted::Fixture;

    const HOUSE: Crate = Crate {
        folder: "crates/x",
        storeys: &[
            Storey { name: "ground", modules: &["layout", "index::hash"] },
            Storey { name: "first", modules: &["index"] },
            Storey { name: "second", modules: &["steps", "protocol"] },
        ],
        circle: CIRCLE,
    };

    fn texts(files: &[(&str, &str)]) -> Vec<String> {
        let fixture = Fixture::new(files);
        judge(&fixture.tree(), &HOUSE).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn paths_that_lead_down_or_stay_are_silent() {
        let files = [
            ("crates/x/src/lib.rs", "//! X.\nmod index;\nmod layout;\npub use crate::steps::go;\n"),
            ("crates/x/src/layout.rs", "//! X.\nuse crate::index::hash::H;\n"),
            ("crates/x/src/index/mod.rs", "//! X.\nuse crate::layout::L;\nuse self::hash::H;\n"),
            ("crates/x/src/index/hash.rs", "//! X.\nfn f() { crate::layout::g() }\n"),
            ("crates/x/src/steps.rs", "//! X.\nuse crate::{index::I, layout, protocol::P};\n"),
            ("crates/x/src/protocol.rs", "//! X.\nuse super::steps;\nuse crate::NAME;\n"),
        ];
        assert_eq!(texts(&files), Vec::<String>::new());
    }

    #[test]
    fn paths_that_lead_up_are_found() {
        let files = [
            ("crates/x/src/layout.rs", "//! X.\n\nuse crate::{index::I, layout::L};\n"),
            ("crates/x/src/index/mod.rs", "//! X.\nfn f() { crate::steps::go() }\n"),
            ("crates/x/src/index/hash.rs", "//! X.\nuse super::I;\nuse super::super::steps;\n"),
            ("crates/x/src/steps.rs", "//! X.\n"),
        ];
        let expected = [
            "crates/x/src/index/mod.rs:2: `index` of storey `first` uses `steps` of the later `second`",
            "crates/x/src/index/hash.rs:2: `index::hash` of storey `ground` uses `index` of the later `first`",
            "crates/x/src/index/hash.rs:3: `index::hash` of storey `ground` uses `steps` of the later `second`",
            "crates/x/src/layout.rs:3: `layout` of storey `ground` uses `index` of the later `first`",
        ];
        assert_eq!(texts(&files), expected);
    }

    #[test]
    fn tests_may_use_everything() {
        let files = [
            (
                "crates/x/src/layout.rs",
                "//! X.\n#[cfg(test)]\nmod scene;\n#[cfg(test)]\nuse crate::steps;\n",
            ),
            ("crates/x/src/layout/scene.rs", "//! X.\nuse crate::steps::go;\n"),
            ("crates/x/src/layout/byte_tests.rs", "//! X.\nuse crate::steps::go;\n"),
            ("crates/x/src/steps.rs", "//! X.\n"),
            ("crates/x/tests/all/main.rs", "//! X.\nuse crate::steps::go;\n"),
        ];
        assert_eq!(texts(&files), Vec::<String>::new());
    }

    #[test]
    fn a_file_without_a_storey_is_found() {
        let found = texts(&[("crates/x/src/extra.rs", "//! X.\n")]);
        assert_eq!(
            found,
            ["crates/x/src/extra.rs: module `extra` has no storey (tidy/storeys.rs)"]
        );
    }

    /// Creates a ring of files: `steps::a` uses `steps::b`, and so on, and the last file uses the
    /// first file.
    fn ring(files: usize) -> Vec<String> {
        let texts: Vec<(String, String)> = (0..files)
            .map(|at| {
                let path = format!("crates/x/src/steps/a{at}.rs");
                (path, format!("//! X.\nuse crate::steps::a{}::T;\n", (at + 1) % files))
            })
            .collect();
        let borrowed: Vec<(&str, &str)> =
            texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        self::texts(&borrowed)
    }

    #[test]
    fn circles_of_too_many_files_are_found_once() {
        assert_eq!(ring(CIRCLE), Vec::<String>::new());
        let found = ring(CIRCLE + 1);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("9 files use each other in a circle, more than 8"), "{found:?}");
        assert!(found[0].ends_with("steps::a7, steps::a8"), "{found:?}");
    }
}
