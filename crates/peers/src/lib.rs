//! Keylatch beside other libraries.

pub mod local;
pub mod strategies;
pub mod tasks;
