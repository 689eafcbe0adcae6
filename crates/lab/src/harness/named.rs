//! Enums whose values have names.
//!
//! Invariant: each name stands only once in the source, beside the enum's value.

/// Defines an enum: `ALL` lists its values in order, and `name` returns the text of a value.
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
            /// All values of the enum, in order.
            pub const ALL: [$enum; [$($name),+].len()] = [$($enum::$value),+];

            /// Returns the name of this value of the enum.
            pub fn name(self) -> &'static str {
                match self { $($enum::$value => $name),+ }
            }
        }
    };
}
pub(crate) use named;
