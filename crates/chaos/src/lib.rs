//! A cluster of real processes in trouble, under load, and a judge of what its clients were told:
//! `scripts/chaos cluster`. The short version is a test of `keylatch-cli`, which has the binary.
//!
//! ```text
//! fault.rs     what can go wrong, and a plan of it from a seed
//! wires.rs     the network between members: a proxy that cuts and slows links, one way or both
//! disk.rs      a small disk that can be full
//! member.rs    one process: started, killed, stopped, with a wall clock of its own
//! world.rs     all members, and what a fault does to them
//! client.rs    a client that goes from member to member until it is answered
//! load.rs      what clients do all the time
//! judge.rs     what they were told, and whether it can be
//! run.rs       all of it together; report.rs what came of it
//! ```
//!
//! What is promised, and judged: nobody holds what another holds; tokens grow; what was granted is there until it
//! is released or its lease has ended, and no lease ends early; who has waited longer is served first; in the
//! end nothing is left over and all members have the same table. And that it goes on: after each fault
//! somebody is granted something again. How long that takes is reported, not judged.

pub mod fault;
pub mod judge;
pub mod member;
pub mod report;
pub mod wires;

mod client;
mod disk;
mod load;
mod random;
mod run;
mod world;

pub use member::kill_all;
pub use run::{Length, Options, Plant, run};

/// Why there is no verdict, or a bad one.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// This machine cannot do what is asked.
    #[error("{0}")]
    Setup(String),
    /// It does not go on.
    #[error("{0}")]
    Stuck(String),
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Trouble {
        Trouble::Setup(error.to_string())
    }
}
