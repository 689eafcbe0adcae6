//! Describes mistakes of the library's callers with the names of the library's interface.
//!
//! Invariant: an error names a thing that the caller wrote: a method of [`crate::Builder`] with its argument, a
//! table, or a column. Only this module translates the names that the engine and the fabric use.

use crate::cluster::OpenError;
use crate::error::Error;
use std::fmt;
use tarn_store::ids::UsageError;
use tarn_store::schema::{Column, ColumnType, IndexSchema, KeyWidth, TableSchema};

/// Pairs of names for one value: the name in the engine or the fabric, and the name in [`crate::Builder`].
const BUILDERS_NAMES: [(&str, &str); 5] = [
    ("coordinators_max", "sessions_max"),
    ("groups", "memory_nodes"),
    ("records", "table (expected_records)"),
    ("address_cache_entries", "address_cache"),
    ("version_cache_entries", "version_cache"),
];

/// Returns an error of opening a database, with the field's name replaced by its name in [`crate::Builder`].
pub(crate) fn in_builders_words(error: OpenError) -> Error {
    let OpenError::Usage(UsageError { field, value, allowed }) = error else { return error.into() };
    let its = BUILDERS_NAMES.iter().find(|(name, _)| *name == field);
    let field = its.map_or(field, |(_, builders)| (*builders).to_owned());
    UsageError { field, value, allowed }.into()
}

/// Returns the first difference between declared rows and a table of the database: the key, a column or an index.
pub(crate) fn difference(table: &TableSchema, declared: &TableSchema) -> Option<UsageError> {
    const HOLDER: &str = "as the database has it";
    let index = |table: &TableSchema, at| {
        let index: Option<&IndexSchema> = table.indexes.get(at);
        let kind = |it: &IndexSchema| if it.unique { "unique" } else { "not unique" };
        index.map_or("none".into(), |it| format!("{} over {:?}, {}", it.name, it.parts, kind(it)))
    };
    row_difference(table, declared, HOLDER).or_else(|| {
        let count = table.indexes.len().max(declared.indexes.len());
        let at = (0..count).find(|at| table.indexes.get(*at) != declared.indexes.get(*at))?;
        let field = format!("table {}: index {}", table.name, at + 1);
        let allowed = format!("{}, {HOLDER}", index(table, at));
        Some(UsageError { field, value: index(declared, at), allowed })
    })
}

/// Returns the first difference between declared rows and rows that exist. The difference is the key, a column's name
/// or type, or the number of columns. `holder` says in the error where the rows exist.
pub(crate) fn row_difference(
    table: &TableSchema,
    declared: &TableSchema,
    holder: &str,
) -> Option<UsageError> {
    let error = |part: String, value: String, allowed: String| {
        let field = format!("table {}: {part}", table.name);
        Some(UsageError { field, value, allowed: format!("{allowed}, {holder}") })
    };
    if table.key != declared.key {
        return error("key".into(), Shown(declared.key).to_string(), Shown(table.key).to_string());
    }
    for at in 0..table.columns.len().max(declared.columns.len()) {
        let (ours, theirs) = (table.columns.get(at), declared.columns.get(at));
        if ours == theirs {
            continue;
        }
        let number = format!("column {}", at + 1);
        return match (ours, theirs) {
            (Some(ours), Some(theirs)) if ours.name == theirs.name => {
                let [value, allowed] = [theirs, ours].map(|it| Shown(it.column_type).to_string());
                error(format!("column {}", ours.name), value, allowed)
            }
            _ => error(number, whole(theirs), whole(ours)),
        };
    }
    None
}

/// Returns a column's name with its type, or "none" if there is no column.
fn whole(column: Option<&Column>) -> String {
    column.map_or("none".into(), |it| format!("{}: {}", it.name, Shown(it.column_type)))
}

/// A column type, printed as the type of a field.
struct Shown<T>(T);

impl fmt::Display for Shown<ColumnType> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ColumnType::U8 => f.write_str("u8"),
            ColumnType::U16 => f.write_str("u16"),
            ColumnType::U32 => f.write_str("u32"),
            ColumnType::U64 => f.write_str("u64"),
            ColumnType::I64 => f.write_str("i64"),
            ColumnType::Bytes(width) => write!(f, "[u8; {width}]"),
        }
    }
}

impl fmt::Display for Shown<KeyWidth> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            KeyWidth::Word => f.write_str("u64"),
            KeyWidth::Bytes(width) => write!(f, "[u8; {width}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(table: &TableSchema, declared: &TableSchema) -> String {
        difference(table, declared).map_or(String::new(), |error| error.to_string())
    }

    #[test]
    fn a_difference_names_the_column() {
        let of = |columns: &[(&str, ColumnType)]| {
            let start = TableSchema::new("t", 10);
            columns.iter().fold(start, |schema, (name, kind)| schema.column(name, *kind))
        };
        let (a, b) = (("a", ColumnType::U64), ("b", ColumnType::Bytes(3)));
        let table = of(&[a, b]);
        assert_eq!(said(&table, &of(&[a, b])), "");
        let cases = [
            (of(&[a, ("b", ColumnType::Bytes(4))]), "column b = [u8; 4]; allowed: [u8; 3]"),
            (of(&[("c", ColumnType::U64), b]), "column 1 = c: u64; allowed: a: u64"),
            (of(&[a]), "column 2 = none; allowed: b: [u8; 3]"),
            (of(&[a, b, ("d", ColumnType::I64)]), "column 3 = d: i64; allowed: none"),
            (of(&[("a", ColumnType::I64), b]), "column a = i64; allowed: u64"),
            (of(&[a, b]).key_bytes(20), "key = [u8; 20]; allowed: u64"),
            (of(&[a, b]).ordered("by_key"), "index 1 = by_key over [Key], unique; allowed: none"),
        ];
        for (declared, expected) in cases {
            let expected = format!("table t: {expected}, as the database has it");
            assert_eq!(said(&table, &declared), expected);
        }
    }
}
