//! Commands and tables as bytes: they read back as they were written, and whatever else is read is
//! refused without a panic.

#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod commands;
mod damage;
mod rich;
mod snapshots;
