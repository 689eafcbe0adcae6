//! Operations of one thread against a model, through many growths.
//!
//! Invariant: after each operation the table gives the same answer as the standard library's map.

use std::collections::BTreeMap;

use crate::Table;

#[test]
fn a_table_grows_and_shrinks_like_a_map() {
    let table = Table::new();
    let count = if cfg!(miri) { 120 } else { 100_000 };
    for key in 0..count {
        assert_eq!(table.insert(key, key + 1), Ok(()), "{key}");
    }
    for key in 0..count {
        assert_eq!(table.get(&key), Some(key + 1), "{key}");
        assert!(table.insert(key, 0).is_err());
    }
    for key in 0..count {
        assert_eq!(table.remove(&key), Some(key + 1));
        assert_eq!(table.get(&key), None);
    }
}

#[test]
fn boxed_keys_and_values() {
    let table = Table::new();
    let mut model = BTreeMap::new();
    for round in 0..if cfg!(miri) { 200_u64 } else { 20_000 } {
        let key = format!("key {}", round * 7919 % 1000);
        match round % 3 {
            0 => assert_eq!(
                table.insert(key.clone(), format!("{round}")).is_ok(),
                !model.contains_key(&key)
            ),
            1 => assert_eq!(
                table.insert_or_replace(key.clone(), format!("{round}")).unwrap(),
                model.get(&key).cloned()
            ),
            _ => assert_eq!(table.remove(&key), model.remove(&key)),
        }
        if round % 3 != 2 && (round % 3 == 1 || !model.contains_key(&key)) {
            model.insert(key.clone(), format!("{round}"));
        }
        assert_eq!(table.get(&key), model.get(&key).cloned());
    }
}
