//! Ordered indexes: B-link trees beside the tables. Ordered indexes lead from index keys to primary keys.
//!
//! The trees follow Lehman and Yao, "Efficient locking for concurrent operations on B-trees", TODS 1981. Compute
//! nodes cache inner nodes and never trust them, because a leaf states by its fences which keys it covers. The
//! one-sided trees of Ziegler et al. (SIGMOD 2019) and Wang et al. (Sherman, SIGMOD 2022) use fences in the same
//! way. The difference is that protocols treat an index node as a record with LOCK and VERSION. So validation
//! protects readers, the undo log protects changes, and splits are transactions.
//!
//! Invariant: at every level of a tree, the nodes that are alive cover all keys without gap or overlap, in the
//! order of NEXT. A separator in an inner node is, or was, the LOW fence of a node one level below. A walk that
//! follows a separator reaches a node that covers the key, or a node that states that it does not cover the key.
//! The argument is in docs/design/0014-ordered-index.md.

pub mod build;
pub mod cache;
pub mod edit;
pub mod inner;
pub mod order;
pub mod scan;
pub mod seek;
pub mod work;
