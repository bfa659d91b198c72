//! The lock rules of Keylatch, in one place: a deterministic state machine without I/O, clock,
//! thread or randomness. Every strategy and every server is to run this code.
//!
//! A [`Table`] has two entries. [`Table::apply`] carries out a [`Command`] at a time that the
//! caller gives, and returns the reply and the events that followed. [`Table::query`] answers a
//! question. `docs/semantics.md` says exactly what the commands do; the invariants that hold after
//! every step are numbered in `check.rs`, and [`Table::check`] checks them.
//!
//! ```
//! use keylatch_table::{Acquire, Command, Party, Reply, Resource, Settings, Table, Target};
//!
//! let mut table = Table::new(Settings::default(), 0, 42);
//! let user = Resource::plain("user:42")?;
//! let ask = Acquire::new("a-request-id".into(), user, Party::owner("ann"));
//! let granted = table.apply(1_000, Command::Acquire(ask));
//! assert!(matches!(granted.reply, Reply::Granted(grant) if grant.token == 1));
//!
//! let released = table.apply(1_500, Command::Release(Target::Id("a-request-id".into())));
//! assert_eq!(released.reply, Reply::Released);
//! # Ok::<(), keylatch_table::ResourceError>(())
//! ```
//!
//! How a request meets the code: `command` (what is asked) -> `table` (one step) -> `lock/` or
//! `task/` (the decision; `rules` are the rules) -> `board/` (who holds, who waits) -> `reply`.

mod board;
mod check;
mod codec;
mod command;
mod command_bytes;
mod error;
mod lock;
mod mode;
mod query;
mod reply;
mod request_id;
mod resource;
pub mod rules;
mod settings;
mod short;
mod snapshot;
mod standing;
mod standing_bytes;
mod table;
mod tally;
pub mod task;

pub use codec::CodecError;
pub use command::{
    Acquire, Command, Detach, Extra, Extras, Keyed, KeyedOp, Part, Party, Target, Text,
};
pub use error::{Error, What};
pub use lock::Alone;
pub use mode::Mode;
pub use query::{
    Answer, Entry, KeyHolder, LocksQuery, PoolCounts, Query, Stats, TaskEntry, TasksQuery,
};
pub use reply::{
    About, Applied, Blocker, Cause, Deadlock, Event, Grant, KeyedCount, Loss, Reply, State,
};
pub use request_id::RequestId;
pub use resource::{ANY, Field, Fields, Resource, ResourceError};
pub use settings::Settings;
pub use short::Value;
pub use snapshot::{Progress, SnapshotWriter};
pub use standing::{Counters, Standing, StandingPart, StandingWait};
pub use table::Table;
pub use tally::{ClaimOutcome, Long, Longest, Outcome, Tally, Times};
pub use task::{
    Body, Checked, Claim, ClaimStanding, Claimed, Create, PutBack, TaskAction, TaskAnswer,
    TaskCommand, TaskEvent, TaskReply, TaskStanding, TaskState,
};
