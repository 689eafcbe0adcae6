//! Ordered indexes: B-link trees that are stored beside the tables. An ordered index maps index keys to primary keys.
//!
//! The trees follow Lehman and Yao, "Efficient locking for concurrent operations on B-trees", TODS 1981. Compute
//! nodes cache inner nodes. A walk never trusts cached nodes, because each leaf states by its fences which keys it
//! covers. The one-sided trees of Ziegler et al. (SIGMOD 2019) and Wang et al. (Sherman, SIGMOD 2022) use fences in
//! the same way. In Tarn, unlike in these trees, protocols treat an index node as a record with LOCK and VERSION. So
//! validation protects the readers of nodes, the undo log protects changes of nodes, and a split is a transaction.
//!
//! Invariant: at every level of a tree, the nodes that are alive cover all keys without gap or overlap, in the order
//! of NEXT. A separator in an inner node is, or was, the LOW fence of a node one level below. A walk that follows a
//! separator reaches a node that covers the key, or a node that states that it does not cover the key. The proof of
//! this invariant is in docs/design/0014-ordered-index.md.

pub mod build;
pub mod cache;
pub mod edit;
pub mod inner;
pub mod order;
pub mod scan;
pub mod seek;
pub mod work;
