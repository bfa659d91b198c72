//! Keyed locks with leases and fencing tokens: the same API and the same rules whether they live in
//! this process or on a lock server.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use keylatch::{ANY, Locks, resource};
//!
//! let locks = Locks::connect("memory:").await?; // or "keylatch://localhost:5625", or Locks::open()
//! let guard = locks.lock("user:42").wait(Duration::from_secs(5)).await?;
//! println!("token {}", guard.token()); // larger than that of every earlier grant
//! guard.release().await;
//!
//! // Everything that is a computer, shared, and only if it is free now.
//! let computers = locks.lock(resource("product", ["Computer".into(), ANY])).shared().try_now().await?;
//! drop(computers); // releases too
//!
//! // Things to do, each by one of many workers.
//! let emails = locks.tasks("emails");
//! emails.create("welcome-42").body("ann@example.org").await?;
//! let claim = emails.claim().wait(Duration::from_secs(5)).await?.expect("there is one");
//! claim.done().await?;
//! # Ok(())
//! # }
//! ```
//!
//! How a request meets the code: `ask` (what is asked) -> `locks` -> `strategy/` (who decides) ->
//! `guard` (what is held) -> `keeper` (renewed until it is released or lost). `tasks/` has the same path
//! for tasks.

mod ask;
pub mod blocking;
mod capabilities;
mod carried;
mod clock;
#[cfg(feature = "cluster")]
pub mod cluster;
mod error;
mod event;
mod fence;
mod guard;
mod keeper;
mod key;
mod locks;
pub mod place;
mod releasing;
mod strategy;
mod tasks;

pub use ask::{Ask, Futures};
pub use capabilities::{Capabilities, Durable};
pub use error::{
    ChangeError, ClaimError, ConnectError, ListError, LockError, PromoteError, RenewError,
    RunError, TaskError,
};
pub use event::{ClaimEvent, Event, Subject, TaskEvent, Watch};
pub use fence::{Fence, Stale};
pub use guard::{Guard, Lost, Released};
pub use key::{IntoKey, resource};
pub use keylatch_table::rules::overlap;
pub use keylatch_table::{
    ANY, Blocker, Body, Cause, Deadlock, Entry, Field, LocksQuery, Mode, PoolCounts, RequestId,
    Resource, ResourceError, State, TaskState,
};
pub use locks::Locks;
pub use tasks::{
    Back, Claim, ClaimTask, CreateTask, ListTasks, LostClaim, NextClaim, PutBackTask, Task, Tasks,
    UpdateTask, Updated,
};
