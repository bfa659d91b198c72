//! Tasks: records that workers claim, one worker a record. Apart from the locks; they share time,
//! the token counter and the arrival numbers.
//!
//! ```text
//!            create                    claim                 finish
//! (nothing) --------> free --------------------> claimed ------------> done
//!                      ^ ^   lease ran out (no write) | |
//!                      | +----------------------------+ | put back, attempts left
//!                      +--------------------------------+
//!                      ^          retry                 | put back, last attempt
//!                      +------------------- failed <----+
//! ```
//!
//! A free task is *ready* once its time has come; before that it is *delayed*.

mod act;
pub(crate) mod bytes;
mod claim;
mod command;
mod list;
pub(crate) mod snapshot;
mod standing;
mod store;

pub use command::{
    Body, Checked, Claim, Claimed, Create, PutBack, TaskAction, TaskCommand, TaskEvent, TaskReply,
    TaskState,
};
pub use standing::{ClaimStanding, TaskAnswer, TaskStanding};
pub(crate) use store::{Answered, ClaimNode, Task, Tasks};
