//! The code for `#[derive(Row)]`: the implementation of the trait, and a trait with one method for each index.
//!
//! Invariant: the fields of the key make the primary key, in the order in which `key(...)` names them. All other
//! fields are columns, in the order of the struct. The index of an ordered table over its key is the first index.

use crate::attribute::{Index, RowAttribute};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Data, DeriveInput, Error, Field, Fields, Result, Type};

/// The greatest number of fields of a key, or of an index. The library implements tuples up to this size.
const PARTS_MAX: usize = 6;
/// The greatest number of columns of a table (`COLUMNS_MAX` of the schema).
const COLUMNS_MAX: usize = 64;

/// The struct of a row, with its fields divided into key and columns.
struct Described<'a> {
    name: &'a Ident,
    attribute: RowAttribute,
    key: Vec<&'a Field>,
    columns: Vec<&'a Field>,
}

/// Writes the code for one struct.
pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let row = Described::of(input)?;
    let name = row.name;
    let key_types: Vec<&Type> = row.key.iter().map(|field| &field.ty).collect();
    let key_type = match key_types.as_slice() {
        [one] => quote!(#one),
        more => quote!((#(#more),*)),
    };
    let (checks, columns) = (row.checks(), row.columns());
    let (load, store) = (row.load(), row.store());
    let key_names = row.key.iter().map(|field| &field.ident);
    let key = match row.key.as_slice() {
        [_] => quote!(#(self.#key_names)*),
        _ => quote!((#(self.#key_names),*)),
    };
    let indexes = row.indexes()?;
    let (table, methods) = (&row.attribute.table, row.methods(&input.vis));
    let ordered = row.attribute.is_ordered.then(|| {
        quote! {
            #[automatically_derived]
            impl ::tarn::OrderedRow for #name {
                type Parts = (#(#key_types,)*);
            }
        }
    });
    Ok(quote! {
        #checks
        #[automatically_derived]
        impl ::tarn::Row for #name {
            type Key = #key_type;
            const TABLE: &'static str = #table;
            const COLUMNS: &'static [::tarn::__private::Column] = &[#columns];
            const INDEXES: &'static [::tarn::__private::IndexDefinition] = &[#indexes];

            #[inline]
            fn key(&self) -> Self::Key {
                #key
            }

            #[inline]
            fn load(key: Self::Key, payload: &[u8]) -> Self {
                #load
            }

            #[inline]
            fn store(&self, payload: &mut [u8]) {
                #store
            }
        }
        #ordered
        #methods
    })
}

impl<'a> Described<'a> {
    fn of(input: &'a DeriveInput) -> Result<Described<'a>> {
        let name = &input.ident;
        let fields = match &input.data {
            Data::Struct(data) => &data.fields,
            _ => return Err(Error::new(name.span(), "a Row is a struct with named fields")),
        };
        let Fields::Named(fields) = fields else {
            return Err(Error::new(name.span(), "a Row is a struct with named fields"));
        };
        if !input.generics.params.is_empty() {
            let text = "a Row has no generic parameters, because a table has one type of rows";
            return Err(Error::new(input.generics.span(), text));
        }
        let attribute = RowAttribute::parse(&input.attrs, name)?;
        let fields: Vec<&Field> = fields.named.iter().collect();
        let key = named(name, &fields, &attribute.key)?;
        let is_key =
            |field: &&&Field| attribute.key.iter().any(|it| Some(it) == field.ident.as_ref());
        let columns: Vec<&Field> = fields.iter().filter(|it| !is_key(it)).copied().collect();
        if let Some(more) = columns.get(COLUMNS_MAX) {
            let text = format!("a row has at most {COLUMNS_MAX} columns beside its key");
            return Err(Error::new(more.span(), text));
        }
        for (at, index) in attribute.indexes.iter().enumerate() {
            named(name, &fields, &index.fields)?;
            if attribute.indexes[..at].iter().any(|other| other.name == index.name) {
                let text = format!("another index of `{name}` has the name `{}`", index.name);
                return Err(Error::new(index.name.span(), text));
            }
        }
        Ok(Described { name, attribute, key, columns })
    }

    /// Assertions that point at the type of a field, or at the name of an index.
    fn checks(&self) -> TokenStream {
        let mut checks = TokenStream::new();
        let indexes = &self.attribute.indexes;
        let indexed = indexes.iter().flat_map(|index| &index.fields);
        let mut seen: Vec<&Ident> = Vec::new();
        for field in self.attribute.key.iter().chain(indexed) {
            if seen.contains(&field) {
                continue;
            }
            seen.push(field);
            let ty = self.type_of(field);
            checks.extend(quote_spanned! { ty.span()=>
                const _: () = ::tarn::__private::ordered::<#ty>();
            });
        }
        let name = self.name;
        let span = self.attribute.key[0].span();
        checks.extend(quote_spanned! { span=>
            const _: () = ::tarn::__private::check_key::<#name>();
        });
        for (number, index) in indexes.iter().enumerate() {
            let number = number + usize::from(self.attribute.is_ordered);
            checks.extend(quote_spanned! { index.name.span()=>
                const _: () = ::tarn::__private::check_index::<#name>(#number);
            });
        }
        checks
    }

    fn columns(&self) -> TokenStream {
        let columns = self.columns.iter().map(|field| {
            let (ty, name) = (&field.ty, text_of(field));
            quote_spanned! { ty.span()=> ::tarn::__private::Column::of::<#ty>(#name) }
        });
        match self.columns.is_empty() {
            // A table has at least one column.
            true => quote!(::tarn::__private::Column::of::<u8>("present")),
            false => quote!(#(#columns),*),
        }
    }

    fn load(&self) -> TokenStream {
        let from = Ident::new("__from", Span::mixed_site());
        let key_names: Vec<_> = self.key.iter().map(|field| &field.ident).collect();
        let names: Vec<_> = self.columns.iter().map(|field| &field.ident).collect();
        let reads = self.columns.iter().map(|field| {
            let (ty, name) = (&field.ty, &field.ident);
            quote_spanned! { ty.span()=> let #name = #from.take::<#ty>(); }
        });
        let pattern = match key_names.as_slice() {
            [one] => quote!(#one),
            more => quote!((#(#more),*)),
        };
        let begin = match self.columns.is_empty() {
            true => quote!(let _ = payload;),
            false => quote!(let mut #from = ::tarn::__private::Take::new::<Self>(payload);),
        };
        quote! {
            #begin
            let #pattern = key;
            #(#reads)*
            Self { #(#key_names,)* #(#names),* }
        }
    }

    fn store(&self) -> TokenStream {
        let to = Ident::new("__to", Span::mixed_site());
        if self.columns.is_empty() {
            return quote!(payload.fill(1););
        }
        let names = self.columns.iter().map(|field| &field.ident);
        quote! {
            let mut #to = ::tarn::__private::Give::new::<Self>(payload);
            #(#to.give(&self.#names);)*
        }
    }

    fn indexes(&self) -> Result<TokenStream> {
        let mut indexes = TokenStream::new();
        if self.attribute.is_ordered {
            indexes.extend(self.index("by_key", &self.attribute.key, true));
        }
        for Index { name, fields, is_unique } in &self.attribute.indexes {
            if self.attribute.is_ordered && name == "by_key" {
                let text = "`by_key` is the index of an ordered table over its key";
                return Err(Error::new(name.span(), text));
            }
            indexes.extend(self.index(&name.to_string(), fields, *is_unique));
        }
        Ok(indexes)
    }

    fn index(&self, name: &str, fields: &[Ident], is_unique: bool) -> TokenStream {
        let parts = fields.iter().map(|field| self.part(field));
        quote! {
            ::tarn::__private::IndexDefinition {
                name: #name,
                parts: &[#(#parts),*],
                is_unique: #is_unique,
            },
        }
    }

    /// The part of an index key that one field makes.
    fn part(&self, name: &Ident) -> TokenStream {
        let is_it = |field: &&Field| field.ident.as_ref() == Some(name);
        let ty = self.type_of(name);
        if let Some(column) = self.columns.iter().position(is_it) {
            let column = column as u8;
            return quote!(::tarn::__private::Part::column::<#ty>(#column));
        }
        let before = self.key.iter().take_while(|field| !is_it(field)).map(|field| &field.ty);
        quote! {
            ::tarn::__private::Part::Key {
                at: 0 #(+ <#before as ::tarn::Field>::BYTES)*,
                bytes: <#ty as ::tarn::Field>::BYTES,
            }
        }
    }

    /// A trait with a method for each index, because a macro cannot add methods to the library's table.
    fn methods(&self, visibility: &syn::Visibility) -> TokenStream {
        if self.attribute.indexes.is_empty() {
            return TokenStream::new();
        }
        let (name, first) = (self.name, usize::from(self.attribute.is_ordered));
        let its = format_ident!("{name}Indexes", span = name.span());
        let doc = format!("The indexes of the table of [`{name}`], as methods of the table.");
        let methods = self.attribute.indexes.iter().enumerate().map(|(at, index)| {
            let (method, number) = (&index.name, (first + at) as u16);
            let types = index.fields.iter().map(|field| self.type_of(field));
            let returned = quote!(::tarn::Index<#name, (#(#types,)*)>);
            (method, returned, number)
        });
        let methods: Vec<_> = methods.collect();
        let declared = self.attribute.indexes.iter().zip(&methods).map(|(index, it)| {
            let (method, returned, _) = it;
            let fields: Vec<String> = index.fields.iter().map(|it| format!("`{it}`")).collect();
            let doc = format!("The index over {}.", fields.join(", "));
            quote! { #[doc = #doc] fn #method(&self) -> #returned; }
        });
        let written = methods.iter().map(|(method, returned, number)| {
            quote! {
                #[inline]
                fn #method(&self) -> #returned { ::tarn::__private::index(self, #number) }
            }
        });
        quote! {
            #[doc = #doc]
            #visibility trait #its { #(#declared)* }
            #[automatically_derived]
            impl #its for ::tarn::Table<#name> { #(#written)* }
        }
    }

    fn type_of(&self, name: &Ident) -> &'a Type {
        let mut all = self.key.iter().chain(&self.columns);
        let field = all.find(|field| field.ident.as_ref() == Some(name));
        &field.expect("the names of fields were checked").ty
    }
}

/// Returns the fields with these names.
fn named<'a>(row: &Ident, fields: &[&'a Field], names: &[Ident]) -> Result<Vec<&'a Field>> {
    let mut found = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let Some(field) = fields.iter().find(|field| field.ident.as_ref() == Some(name)) else {
            let all: Vec<String> = fields.iter().map(|field| text_of(field)).collect();
            let text = format!("`{row}` has no field `{name}`; its fields: {}", all.join(", "));
            return Err(Error::new(name.span(), text));
        };
        if names[..at].contains(name) {
            return Err(Error::new(name.span(), format!("`{name}` is named twice")));
        }
        if at == PARTS_MAX {
            return Err(Error::new(name.span(), format!("at most {PARTS_MAX} fields")));
        }
        found.push(*field);
    }
    Ok(found)
}

fn text_of(field: &Field) -> String {
    field.ident.as_ref().map(ToString::to_string).unwrap_or_default()
}
