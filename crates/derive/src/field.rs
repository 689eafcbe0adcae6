//! The code for `#[derive(Field)]`.
//!
//! Invariant: the bytes of a value compare like the value under the derived order of Rust. An enum is the byte of its
//! discriminant. A struct is the bytes of its fields, one after the other.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Data, DataEnum, DeriveInput, Error, Fields, Result, Type};

/// Writes the implementations of `Field` and `Ordered`.
pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    if !input.generics.params.is_empty() {
        let text = "a Field has no generic parameters, because its number of bytes is fixed";
        return Err(Error::new(input.generics.span(), text));
    }
    let name = &input.ident;
    let code = match &input.data {
        Data::Enum(data) => of_enum(name, data)?,
        Data::Struct(data) => of_struct(name, &data.fields)?,
        Data::Union(data) => {
            let text = "a Field is an enum without data, or a struct";
            return Err(Error::new(data.union_token.span(), text));
        }
    };
    Ok(quote! {
        #code
        #[automatically_derived]
        impl ::tarn::Ordered for #name {}
    })
}

fn of_enum(name: &Ident, data: &DataEnum) -> Result<TokenStream> {
    let mut arms = TokenStream::new();
    let mut tests = TokenStream::new();
    let mut checks = TokenStream::new();
    for variant in &data.variants {
        let (its, span) = (&variant.ident, variant.ident.span());
        if !matches!(variant.fields, Fields::Unit) {
            let text = format!("variant `{its}` has data, so its number of bytes is not fixed");
            return Err(Error::new(variant.fields.span(), text));
        }
        arms.extend(quote! { #name::#its => #name::#its as u8, });
        tests.extend(quote! { if from[0] == #name::#its as u8 { return #name::#its; } });
        let text = format!("variant `{its}`: allowed discriminants: 0 to 255");
        checks.extend(quote_spanned! { span=>
            const _: () = assert!(#name::#its as i128 >= 0 && #name::#its as i128 <= 255, #text);
        });
    }
    if data.variants.is_empty() {
        return Err(Error::new(name.span(), "a Field has a value, and this enum has no variant"));
    }
    let unknown = format!("byte {{}} is no variant of {name}");
    Ok(quote! {
        #checks
        #[automatically_derived]
        impl ::tarn::Field for #name {
            const BYTES: usize = 1;
            const COLUMN_TYPE: ::tarn::ColumnType = ::tarn::ColumnType::U8;

            #[inline]
            fn encode(&self, to: &mut [u8]) {
                to[0] = match self { #arms };
            }

            #[inline]
            fn decode(from: &[u8]) -> Self {
                #tests
                panic!(#unknown, from[0])
            }
        }
    })
}

fn of_struct(name: &Ident, fields: &Fields) -> Result<TokenStream> {
    let types: Vec<&Type> = fields.iter().map(|field| &field.ty).collect();
    if types.is_empty() {
        return Err(Error::new(name.span(), "a Field has at least one byte, so give it a field"));
    }
    let at = Ident::new("__at", Span::mixed_site());
    let (mut encode, mut values) = (TokenStream::new(), TokenStream::new());
    for (position, field) in fields.iter().enumerate() {
        let (ty, number) = (&field.ty, syn::Index::from(position));
        let member = field.ident.as_ref().map_or(quote!(#number), |ident| quote!(#ident));
        let bytes = quote_spanned! { ty.span()=> <#ty as ::tarn::Field>::BYTES };
        encode.extend(quote! {
            ::tarn::Field::encode(&self.#member, &mut to[#at..#at + #bytes]);
            #at += #bytes;
        });
        let value = format_ident!("__field_{position}");
        values.extend(quote! {
            let #value = <#ty as ::tarn::Field>::decode(&from[#at..#at + #bytes]);
            #at += #bytes;
        });
    }
    let made = fields.iter().enumerate().map(|(position, field)| {
        let (value, number) = (format_ident!("__field_{position}"), syn::Index::from(position));
        let member = field.ident.as_ref().map_or(quote!(#number), |ident| quote!(#ident));
        quote! { #member: #value }
    });
    // A struct around one value is stored as that value.
    let column_type = match types.as_slice() {
        [one] => quote! {
            const COLUMN_TYPE: ::tarn::ColumnType = <#one as ::tarn::Field>::COLUMN_TYPE;
        },
        _ => TokenStream::new(),
    };
    Ok(quote! {
        #(const _: () = ::tarn::__private::ordered::<#types>();)*
        #[automatically_derived]
        impl ::tarn::Field for #name {
            const BYTES: usize = 0 #(+ <#types as ::tarn::Field>::BYTES)*;
            #column_type

            #[inline]
            fn encode(&self, to: &mut [u8]) {
                let mut #at = 0;
                #encode
                let _ = #at;
            }

            #[inline]
            fn decode(from: &[u8]) -> Self {
                let mut #at = 0;
                #values
                let _ = #at;
                #name { #(#made),* }
            }
        }
    })
}
