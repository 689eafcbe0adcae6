//! The comparison of an entry's words with a sought key.
//!
//! Invariant: a word is interpreted as a key or as an address only under the promise of the caller (`Probe`). Words of
//! slots that may hold anything are only compared with the word of the sought key.

use std::borrow::Borrow;
use std::marker::PhantomData;

use crate::bin::Word;
use crate::look::Probe;
use crate::word::{Form, hash_word};

/// Compares entries with a key that the caller has borrowed.
pub(crate) struct KeyProbe<'a, K, V, Q: ?Sized> {
    hash: u64,
    key: &'a Q,
    types: PhantomData<(K, V)>,
}

impl<'a, K, V, Q: ?Sized> KeyProbe<'a, K, V, Q> {
    #[inline(always)]
    pub(crate) fn new(hash: u64, key: &'a Q) -> Self {
        Self { hash, key, types: PhantomData }
    }
}

impl<K: Borrow<Q>, V, Q: Eq + ?Sized> Probe for KeyProbe<'_, K, V, Q> {
    #[inline(always)]
    fn word(&self) -> Option<Word> {
        if Form::<K, V>::key_fits() {
            Form::<K, V>::word_of(self.key)
        } else {
            Some(hash_word(self.hash))
        }
    }

    #[inline(always)]
    unsafe fn may_be(&self, key: Word) -> bool {
        if Form::<K, V>::key_fits() {
            // SAFETY: the word was made from a key, by the caller's promise. If the key fits, no box is needed.
            unsafe {
                Form::<K, V>::with_key(key, std::ptr::null_mut(), |key| key.borrow() == self.key)
            }
        } else {
            key == hash_word(self.hash)
        }
    }

    #[inline(always)]
    unsafe fn is(&self, value: Word) -> bool {
        Form::<K, V>::key_fits()
            // SAFETY: the box is live, by the caller's promise.
            || unsafe {
                Form::<K, V>::with_key(std::ptr::null_mut(), value, |key| key.borrow() == self.key)
            }
    }
}

/// Compares entries with a key that was turned into words already.
pub(crate) struct WordProbe<K, V> {
    key: Word,
    value: Word,
    types: PhantomData<(K, V)>,
}

impl<K, V> WordProbe<K, V> {
    #[inline(always)]
    pub(crate) fn new(key: Word, value: Word) -> Self {
        Self { key, value, types: PhantomData }
    }
}

impl<K: Eq, V> Probe for WordProbe<K, V> {
    #[inline(always)]
    fn word(&self) -> Option<Word> {
        Some(self.key)
    }

    #[inline(always)]
    unsafe fn may_be(&self, key: Word) -> bool {
        if !Form::<K, V>::key_fits() {
            return key == self.key;
        }
        // SAFETY: both words were made from keys.
        unsafe {
            Form::<K, V>::with_key(key, self.value, |theirs| {
                Form::<K, V>::with_key(self.key, self.value, |ours| theirs == ours)
            })
        }
    }

    #[inline(always)]
    unsafe fn is(&self, value: Word) -> bool {
        Form::<K, V>::key_fits()
            // SAFETY: the box of the entry is live, by the caller's promise, and the own box is not in the table yet.
            || unsafe {
                Form::<K, V>::with_key(self.key, value, |theirs| {
                    Form::<K, V>::with_key(self.key, self.value, |ours| theirs == ours)
                })
            }
    }
}
