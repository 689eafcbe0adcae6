//! Enums whose values have names.
//!
//! Invariant: the list of the values says each name once, beside its value.

/// Defines an enum; `ALL` are its values in order, `name` is a value as it is written.
macro_rules! named {
    (
        $(#[$meta:meta])* pub enum $enum:ident {
            $($(#[$doc:meta])* $value:ident = $name:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum $enum { $($(#[$doc])* $value,)+ }

        impl $enum {
            /// Every value, in order.
            pub const ALL: [$enum; [$($name),+].len()] = [$($enum::$value),+];

            /// As it is written.
            pub fn name(self) -> &'static str {
                match self { $($enum::$value => $name),+ }
            }
        }
    };
}
pub(crate) use named;
