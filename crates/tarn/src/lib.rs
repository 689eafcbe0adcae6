//! Tarn: serializable transactions on a pool of remote memory.

#![forbid(unsafe_code)]

pub mod bench;
pub mod cluster;
pub mod machine;
