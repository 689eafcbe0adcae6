//! The attribute `#[row(...)]`: the table's name, its key, and its indexes.
//!
//! Invariant: a parsed attribute names a table and a key. Whether the named fields exist is decided in `row`.

use proc_macro2::Ident;
use syn::meta::ParseNestedMeta;
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, LitStr, Result, Token, parenthesized};

/// The texts that an attribute may have, for error messages.
const ALLOWED: &str = "allowed: table = \"NAME\", key(FIELD, ...), ordered, index(NAME(FIELD, ...)), \
                       unique(NAME(FIELD, ...))";

/// One ordered index of a table.
pub(crate) struct Index {
    pub(crate) name: Ident,
    pub(crate) fields: Vec<Ident>,
    pub(crate) is_unique: bool,
}

/// The parsed attributes of one struct.
pub(crate) struct RowAttribute {
    pub(crate) table: LitStr,
    pub(crate) key: Vec<Ident>,
    pub(crate) is_ordered: bool,
    pub(crate) indexes: Vec<Index>,
}

/// The attributes of a struct that were read so far.
#[derive(Default)]
struct Partial {
    table: Option<LitStr>,
    key: Vec<Ident>,
    is_ordered: bool,
    indexes: Vec<Index>,
}

impl RowAttribute {
    /// Reads all attributes `#[row(...)]` of the struct `name`.
    pub(crate) fn parse(attributes: &[Attribute], name: &Ident) -> Result<RowAttribute> {
        let mut partial = Partial::default();
        for attribute in attributes.iter().filter(|it| it.path().is_ident("row")) {
            attribute.parse_nested_meta(|meta| partial.read(&meta))?;
        }
        let Partial { table, key, is_ordered, indexes } = partial;
        let Some(table) = table else {
            let text = format!("`{name}` names no table: add #[row(table = \"NAME\", key(FIELD))]");
            return Err(Error::new(name.span(), text));
        };
        if key.is_empty() {
            let text = format!("`{name}` names no key: add key(FIELD) to #[row(...)]");
            return Err(Error::new(name.span(), text));
        }
        Ok(RowAttribute { table, key, is_ordered, indexes })
    }
}

impl Partial {
    /// Reads one part of an attribute.
    fn read(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let is = |name: &str| meta.path.is_ident(name);
        if is("table") {
            self.table = Some(meta.value()?.parse()?);
        } else if is("key") {
            self.key = fields(meta)?;
        } else if is("ordered") {
            self.is_ordered = true;
        } else if is("index") || is("unique") {
            let content;
            parenthesized!(content in meta.input);
            let name: Ident = content.parse()?;
            let inner;
            parenthesized!(inner in content);
            let fields = Punctuated::<Ident, Token![,]>::parse_terminated(&inner)?;
            let fields: Vec<Ident> = fields.into_iter().collect();
            if fields.is_empty() {
                return Err(Error::new(name.span(), format!("index `{name}` has no field")));
            }
            if let Some(more) = content.parse::<Option<Ident>>()? {
                return Err(Error::new(more.span(), "one index for each index(...)"));
            }
            self.indexes.push(Index { name, fields, is_unique: is("unique") });
        } else {
            return Err(meta.error(ALLOWED));
        }
        Ok(())
    }
}

/// Reads a list of fields in parentheses.
fn fields(meta: &ParseNestedMeta<'_>) -> Result<Vec<Ident>> {
    let content;
    parenthesized!(content in meta.input);
    let fields = Punctuated::<Ident, Token![,]>::parse_terminated(&content)?;
    Ok(fields.into_iter().collect())
}
