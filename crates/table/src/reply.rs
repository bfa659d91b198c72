//! What applying a command gives: one reply to whoever sent it, and events for everyone else whom
//! it concerns. Both are values; delivering them is the driver's work.

use crate::{Mode, Part, RequestId, command::Text, error::Error, task::TaskEvent, task::TaskReply};

/// The outcome of one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// For the sender of the command.
    pub reply: Reply,
    /// For other requests, in the order in which things happened.
    pub events: Vec<Event>,
}

/// The answer to a command. A refusal is an answer, not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The request holds its locks.
    Granted(Grant),
    /// [`crate::Command::AcquireEach`]: one grant a request, in their order.
    GrantedEach(Vec<Grant>),
    /// Not free, and the request does not wait.
    Busy(Blocker),
    /// Queued; an event will tell the outcome.
    Waiting(Blocker),
    /// Waiting would have closed a cycle of owners.
    Deadlock(Deadlock),
    /// The id was granted before and has ended; it is not granted again.
    Ended(Cause),
    /// Released, now or by an earlier command with the same id; or a waiter was ended.
    Released,
    /// Nothing to release.
    NotHeld,
    /// Whether a waiting request was cancelled.
    Cancelled(bool),
    /// The lease now has this long left; `None` is no lease.
    Renewed(Option<u64>),
    /// Held as E under this token now.
    Promoted(Grant),
    /// Not held, and why if that is still known.
    Lost(Option<Loss>),
    /// Whether a grant had this token.
    Revoked(bool),
    /// How many keys were acted on, how many were held otherwise, how many were not held.
    Keyed(KeyedCount),
    /// The answer to a task command, its errors included.
    Task(TaskReply),
    /// Nothing to say: ticks, settings, detaching.
    Done,
    /// The command was not carried out. Time has passed all the same, so there may be events.
    Error(Error),
}

/// A grant, as its holder sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The fencing token and public handle.
    pub token: u64,
    /// How long the lease has left; `None` is no lease.
    pub lease_ms: Option<u64>,
    /// How long the request waited in the queue since it was last asked for. A client counts its
    /// lease from sending plus this, so the answer to a repeat says 0.
    pub waited_ms: u64,
}

/// Who is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// What it shows as its owner.
    pub owner: Text,
    /// Whether it named that owner itself.
    pub explicit: bool,
    /// The mode of its first resource that conflicts.
    pub mode: Mode,
    /// Whether it holds or waits.
    pub state: State,
    /// The token of a holder, 0 of a waiter.
    pub token: u64,
    /// How long it has held, or waited.
    pub held_ms: u64,
    /// How long its lease, or its wait, has left; `None` is no lease.
    pub lease_ms: Option<u64>,
}

/// Whether a request holds or waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// It holds all of its resources.
    Held,
    /// It holds none of them and stands in the queue of each.
    Waiting,
}

/// A refused cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// The first in the way, as in any refusal.
    pub blocker: Blocker,
    /// The owners: each waits for the next, the last for the first, who is the one refused.
    pub cycle: Vec<Text>,
}

/// Why a grant ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Its holder released it.
    Released,
    /// Its lease or its longest hold ran out.
    Expired,
    /// An overlapping optimistic lock was promoted.
    Superseded,
    /// An administrator ended it.
    Revoked,
}

/// Why something is not held any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// What ended it.
    pub cause: Cause,
    /// The owner who did, where there is one (superseded).
    pub by: Option<Text>,
}

/// The result of a [`crate::Keyed`] command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyedCount {
    /// Keys that matched; they were acted on (with `all`, only if every key matched).
    pub matched: u32,
    /// Keys with another value, or held by a lock without a value.
    pub other: u32,
    /// Keys that nobody holds.
    pub absent: u32,
}

/// What happened to a request other than the command's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A waiting request now holds its locks.
    Granted {
        /// Whose.
        id: RequestId,
        /// What it got. If its connection is gone the lease is the grace.
        grant: Grant,
    },
    /// A waiting request was not granted in time.
    TimedOut {
        /// Whose.
        id: RequestId,
        /// Who was in the way.
        blocker: Blocker,
        /// What it was.
        about: Box<About>,
    },
    /// A waiting request now stands in a cycle and left the queue.
    Deadlocked {
        /// Whose.
        id: RequestId,
        /// The cycle.
        deadlock: Deadlock,
        /// What it was.
        about: Box<About>,
    },
    /// A waiting request left the queue because it was told to, or its connection stayed away.
    Withdrawn {
        /// Whose.
        id: RequestId,
        /// What it was.
        about: Box<About>,
    },
    /// A holder lost its locks otherwise than by its own release.
    Lost {
        /// Whose.
        id: RequestId,
        /// Under which token it held them.
        token: u64,
        /// Why: expired, superseded or revoked.
        cause: Cause,
        /// The administrator's reason, or the owner who superseded.
        reason: Option<Text>,
        /// What it was.
        about: Box<About>,
    },
    /// What happened to a task or a waiting claim.
    Task(TaskEvent),
}

/// What is known of a request that has just left the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Its arrival number.
    pub seq: u64,
    /// Its resources, as they were held or asked for at the end.
    pub parts: Vec<Part>,
    /// What it showed as its owner.
    pub owner: Text,
    /// Its principal.
    pub principal: Option<Text>,
}
