//! Ordered indexes: B-link trees beside the tables, from index keys to primary keys.
//!
//! After Lehman and Yao, "Efficient locking for concurrent operations on B-trees", TODS 1981. Compute nodes
//! cache inner nodes and trust none of them: a leaf says by its fences which keys it covers. The one-sided
//! trees of Ziegler et al. (SIGMOD 2019) and Wang et al. (Sherman, SIGMOD 2022) do the same. The difference
//! is that a node is a record to the protocol, with LOCK and VERSION. So validation protects readers, the
//! undo log protects changes, and splits are transactions.
//!
//! Invariants: at every level of a tree, the nodes that are alive cover all keys without gap or overlap, in
//! the order of NEXT. A separator in an inner node is, or was, the LOW fence of a node one level below. A
//! walk that follows it comes to a node that covers the key, or that says that it does not. The argument is
//! in docs/design/0014-ordered-index.md.

pub mod build;
pub mod cache;
pub mod edit;
pub mod inner;
pub mod order;
pub mod scan;
pub mod seek;
pub mod work;
