//! Strategies of `keylatch` beside what people use on the same database, in one run.

pub mod etcd;
pub mod files;
pub mod measure;
pub mod postgres;
pub mod redis;
pub mod servers;
