//! Keys and values as words of 8 bytes: the value itself, or a box.
//!
//! | key | value | key word | value word |
//! |---|---|---|---|
//! | fits | fits | the key | the value |
//! | fits | does not fit | the key | a box with the value |
//! | does not fit | any | the hash | a box with key and value |
//!
//! Invariant: a type fits if it is one of `fits`'s list and has at most 8 bytes. All these types are `Copy`, have no
//! padding, and are the standard library's. So the bits of a word are a value of their own, and no code of the table's
//! user ever runs on a copy of a value that has no right to be copied. A value with a `Cell` or a `&mut` inside lies in
//! a box, and all threads see the one value.
//!
//! A list is needed because a generic function cannot ask whether its type is `Copy`. The compiler evaluates the list
//! for each pair of types, so that a program has no comparison of it.

use std::any::TypeId;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop, size_of};
use std::num::{
    NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroIsize, NonZeroU8, NonZeroU16, NonZeroU32,
    NonZeroU64, NonZeroUsize,
};

use seize::{Guard, LocalGuard, reclaim};

use crate::bin::Word;

/// Returns the identity of a type, in which every lifetime is taken for `'static`.
#[inline(always)]
fn id_of<T: ?Sized>() -> TypeId {
    trait Identified {
        fn id(&self) -> TypeId
        where
            Self: 'static;
    }
    impl<T: ?Sized> Identified for PhantomData<T> {
        #[inline(always)]
        fn id(&self) -> TypeId
        where
            Self: 'static,
        {
            TypeId::of::<T>()
        }
    }
    let named: &dyn Identified = &PhantomData::<T>;
    // SAFETY: only the bound on lifetimes changes. `id` reads nothing through the reference, and keeps nothing.
    let named = unsafe { mem::transmute::<&dyn Identified, &(dyn Identified + 'static)>(named) };
    named.id()
}

/// Returns whether a type is one of a list.
macro_rules! is_one_of {
    ($type:ty: $($one:ty),* $(,)?) => {{
        let id = id_of::<$type>();
        false $(|| id == TypeId::of::<$one>())*
    }};
}

/// Returns whether values of a type are kept in a slot. The types of the list have no lifetime, so that the erased
/// lifetimes of `id_of` make no other type equal to one of them.
#[inline(always)]
fn fits<T>() -> bool {
    if size_of::<T>() > size_of::<Word>() {
        return false;
    }
    is_one_of!(T: u64, i64, u32, i32, u16, i16, u8, i8, usize, isize, f64, f32, bool, char, ())
        || is_one_of!(T: [u8; 0], [u8; 1], [u8; 2], [u8; 3], [u8; 4], [u8; 5], [u8; 6], [u8; 7], [u8; 8])
        || is_one_of!(T: [u16; 1], [u16; 2], [u16; 3], [u16; 4], [u32; 1], [u32; 2], [u64; 1])
        || is_one_of!(T: (u8, u8), (u16, u16), (u32, u32), (i32, i32), (u16, u16, u16, u16))
        || is_one_of!(T: NonZeroU64, NonZeroU32, NonZeroU16, NonZeroU8, NonZeroUsize)
        || is_one_of!(T: NonZeroI64, NonZeroI32, NonZeroI16, NonZeroI8, NonZeroIsize)
        || is_one_of!(T: Option<NonZeroU64>, Option<NonZeroU32>, Option<NonZeroU16>, Option<NonZeroU8>)
        || is_one_of!(T: Option<NonZeroI64>, Option<NonZeroI32>, Option<NonZeroI16>, Option<NonZeroI8>)
        || is_one_of!(T: Option<NonZeroUsize>, Option<NonZeroIsize>)
}

/// A key with its value in one box.
pub(crate) struct Entry<K, V> {
    pub(crate) key: K,
    /// Empty in the lock of a key.
    pub(crate) value: Option<V>,
}

/// The way in which pairs of two types are kept.
pub(crate) struct Form<K, V>(PhantomData<(K, V)>);

impl<K, V> Form<K, V> {
    /// Returns whether the key word is the key.
    #[inline(always)]
    pub(crate) fn key_fits() -> bool {
        fits::<K>()
    }

    /// Returns whether the value word is the value.
    #[inline(always)]
    pub(crate) fn value_fits() -> bool {
        Self::key_fits() && fits::<V>()
    }

    /// Returns whether a value word is an address, so that a reader must announce itself.
    #[inline(always)]
    pub(crate) fn is_boxed() -> bool {
        !Self::value_fits()
    }

    /// Turns a pair into words.
    #[inline(always)]
    pub(crate) fn encode(hash: u64, key: K, value: V) -> (Word, Word) {
        if !Self::key_fits() {
            let entry = Box::new(Entry { key, value: Some(value) });
            (hash_word(hash), Box::into_raw(entry).cast())
        } else if !Self::value_fits() {
            (to_word(key), Box::into_raw(Box::new(value)).cast())
        } else {
            (to_word(key), to_word(value))
        }
    }

    /// Returns the word of a key that fits, if the caller's type is the table's key type. Two keys of such a type are equal
    /// exactly if their words are: the types of the list have no padding, and a word's other bytes are zero.
    #[inline(always)]
    pub(crate) fn word_of<Q: ?Sized>(key: &Q) -> Option<Word> {
        // SAFETY: both types are the same, and a type that fits is `Copy`.
        (Self::key_fits() && id_of::<Q>() == id_of::<K>())
            .then(|| to_word(unsafe { std::ptr::from_ref(key).cast::<K>().read() }))
    }

    /// Turns a locked key into words.
    pub(crate) fn encode_lock(hash: u64, key: K) -> (Word, Word) {
        if Self::key_fits() {
            (to_word(key), std::ptr::null_mut())
        } else {
            let entry = Box::new(Entry::<K, V> { key, value: None });
            (hash_word(hash), Box::into_raw(entry).cast())
        }
    }

    /// Calls `f` with the key of an entry.
    ///
    /// # Safety
    ///
    /// The words come from `encode` or `encode_lock`, and a box is not freed during the call.
    #[inline(always)]
    pub(crate) unsafe fn with_key<T>(key: Word, value: Word, f: impl FnOnce(&K) -> T) -> T {
        if Self::key_fits() {
            // SAFETY: the word was made from a key, by the caller's promise.
            let key = unsafe { from_word::<K>(key) };
            f(&key)
        } else {
            // SAFETY: the value word is the address of a live box, by the caller's promise.
            f(unsafe { &(*value.cast::<Entry<K, V>>()).key })
        }
    }

    /// Calls `f` with the value of an entry. If the value fits, `f` gets a copy.
    ///
    /// # Safety
    ///
    /// The word is the second result of `encode`, and a box is not freed during the call.
    #[inline(always)]
    pub(crate) unsafe fn with_value<T>(value: Word, f: impl FnOnce(&V) -> T) -> T {
        if !Self::key_fits() {
            // SAFETY: the word is the address of a live box, by the caller's promise.
            let entry = unsafe { &*value.cast::<Entry<K, V>>() };
            f(entry.value.as_ref().expect("reads do not see the lock of a key"))
        } else if !Self::value_fits() {
            // SAFETY: as above.
            f(unsafe { &*value.cast::<V>() })
        } else {
            // SAFETY: the word was made from a value, by the caller's promise.
            let value = unsafe { from_word::<V>(value) };
            f(&value)
        }
    }

    /// Takes the pair back that `encode` was given. If the key fits, the caller has another copy of it.
    ///
    /// # Safety
    ///
    /// The word is the second result of `encode`, no slot shows it, and no other thread has seen it.
    pub(crate) unsafe fn take_value(value: Word) -> V {
        if !Self::key_fits() {
            // SAFETY: the box has one owner, by the caller's promise.
            let entry = unsafe { Box::from_raw(value.cast::<Entry<K, V>>()) };
            entry.value.expect("the word is not a lock's")
        } else if !Self::value_fits() {
            // SAFETY: as above.
            *unsafe { Box::from_raw(value.cast::<V>()) }
        } else {
            // SAFETY: the word was made from a value. Values that fit need no `drop`.
            ManuallyDrop::into_inner(unsafe { from_word::<V>(value) })
        }
    }

    /// Frees the box of an entry that has left the table, after all present readers have ended.
    ///
    /// # Safety
    ///
    /// The words come from `encode` or `encode_lock`, no slot shows them any more, and they are retired once.
    #[inline(always)]
    pub(crate) unsafe fn retire(guard: Option<&LocalGuard<'_>>, value: Word) {
        let Some(guard) = guard else { return };
        if !Self::key_fits() {
            // SAFETY: no new reader finds the box, by the caller's promise.
            unsafe { guard.defer_retire(value.cast::<Entry<K, V>>(), reclaim::boxed) };
        } else if !Self::value_fits() && !value.is_null() {
            // SAFETY: as above.
            unsafe { guard.defer_retire(value.cast::<V>(), reclaim::boxed) };
        }
    }

    /// Frees the box of an entry at once.
    ///
    /// # Safety
    ///
    /// As for `retire`, and no other thread can have read the word.
    pub(crate) unsafe fn free(value: Word) {
        if !Self::key_fits() {
            // SAFETY: the box has one owner, by the caller's promise.
            drop(unsafe { Box::from_raw(value.cast::<Entry<K, V>>()) });
        } else if !Self::value_fits() && !value.is_null() {
            // SAFETY: as above.
            drop(unsafe { Box::from_raw(value.cast::<V>()) });
        }
    }
}

/// Returns a hash as the word that stands for a boxed key.
#[inline(always)]
pub(crate) fn hash_word(hash: u64) -> Word {
    std::ptr::without_provenance_mut(hash as usize)
}

/// Copies a value that fits into a word.
#[inline(always)]
fn to_word<T>(value: T) -> Word {
    debug_assert!(fits::<T>());
    let mut word: Word = std::ptr::null_mut();
    // SAFETY: a type that fits is not longer than a word, needs no stronger alignment, and has no padding. So all bytes
    // of the word have a value, and a pointer without the right to any memory may have each value.
    unsafe { (&raw mut word).cast::<T>().write(value) };
    word
}

/// Copies a value back out of a word.
///
/// # Safety
///
/// The word comes from `to_word` with the same type.
#[inline(always)]
unsafe fn from_word<T>(word: Word) -> ManuallyDrop<T> {
    debug_assert!(fits::<T>());
    // SAFETY: the word begins with the bytes of a value, by the caller's promise.
    unsafe { (&raw const word).cast::<ManuallyDrop<T>>().read() }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn listed_types_fit() {
        assert!(fits::<u64>() && fits::<i8>() && fits::<char>() && fits::<bool>() && fits::<()>());
        assert!(fits::<[u8; 3]>() && fits::<[u8; 8]>() && fits::<(u32, u32)>() && fits::<f64>());
        assert!(fits::<NonZeroU32>() && fits::<Option<NonZeroU64>>());
        assert!(Form::<u64, u64>::value_fits() && !Form::<u64, u64>::is_boxed());
        assert!(!fits::<u128>() && !fits::<String>() && !fits::<Box<u8>>() && !fits::<[u8; 9]>());
    }

    #[test]
    fn types_that_may_not_be_copied_do_not_fit() {
        #[expect(dead_code, reason = "only the type is of interest")]
        struct Own(u64);
        assert!(!fits::<Cell<u32>>() && !fits::<&mut u64>() && !fits::<Own>());
        assert!(!fits::<Option<&Cell<u8>>>() && !fits::<std::sync::atomic::AtomicU64>());
        assert!(Form::<u64, Cell<u32>>::is_boxed() && Form::<u64, Cell<u32>>::key_fits());
    }

    #[test]
    fn every_bit_pattern_survives() {
        for value in [0, 1, u64::MAX, 1 << 63, 0x5555_5555_5555_5555] {
            // SAFETY: the word comes from `to_word` with the same type.
            assert_eq!(*unsafe { from_word::<u64>(to_word(value)) }, value);
        }
        // SAFETY: as above.
        unsafe {
            assert_eq!(*from_word::<[u8; 3]>(to_word([1_u8, 2, 3])), [1, 2, 3]);
            assert_eq!(*from_word::<(u32, u32)>(to_word((7_u32, 9_u32))), (7, 9));
            assert_eq!(*from_word::<Option<NonZeroU8>>(to_word(NonZeroU8::new(0))), None);
        }
    }
}
