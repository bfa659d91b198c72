//! Keylatch beside other libraries.

pub mod local;
