//! Keylatch beside other libraries.

/// Load for etcd.
pub mod etcd_load;
pub mod local;
pub mod strategies;
pub mod tasks;
