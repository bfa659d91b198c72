//! Everything that can be read of a table. Reading changes nothing and may be done at any time; it
//! takes a time of its own, so that what is left of a lease can be shown between two commands.

use crate::{Mode, RequestId, Resource, State, Text, task::Body, task::TaskState};

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Requests in arrival order, one entry a resource.
    Locks(LocksQuery),
    /// The entries of one request.
    Request(RequestId),
    /// Who holds a plain key.
    Key(Resource),
    /// Tasks of a pool in the order in which they were created.
    Tasks(TasksQuery),
    /// One task, by its pool and key.
    Task(Text, Text),
    /// The pools that have tasks or waiting claims, with their counts, in the order of their names.
    Pools,
    /// The totals.
    Stats,
    /// The explicit owners with the most requests, most first, ties by name.
    TopOwners(usize),
}

/// Which requests to list. Filters that are given must all match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocksQuery {
    /// Only resources with this name.
    pub name: Option<Text>,
    /// Only this owner, as shown.
    pub owner: Option<Text>,
    /// Also those who wait.
    pub waiters: bool,
    /// The most requests (not entries); 0 is all.
    pub limit: usize,
    /// Only requests with a larger seq than this.
    pub cursor: u64,
}

/// Which tasks to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TasksQuery {
    /// The pool.
    pub pool: Text,
    /// Only this state.
    pub state: Option<TaskState>,
    /// Only keys that begin so.
    pub prefix: Option<Text>,
    /// The most tasks; 0 is all.
    pub limit: usize,
    /// Only tasks with a larger number than this.
    pub cursor: u64,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Query::Locks`] and [`Query::Request`].
    Entries(Vec<Entry>),
    /// To [`Query::Key`]: the holder with the lowest seq.
    Key(Option<KeyHolder>),
    /// To [`Query::Tasks`].
    Tasks(Vec<TaskEntry>),
    /// To [`Query::Task`].
    Task(Option<Box<TaskEntry>>),
    /// To [`Query::Pools`].
    Pools(Vec<PoolCounts>),
    /// To [`Query::Stats`].
    Stats(Stats),
    /// To [`Query::TopOwners`].
    Owners(Vec<(Text, u64)>),
}

/// One resource of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The request's arrival number.
    pub seq: u64,
    /// Its token; 0 of a waiter.
    pub token: u64,
    /// Its id: a secret, for its principal and administrators only.
    pub id: RequestId,
    /// The resource.
    pub resource: Resource,
    /// The mode.
    pub mode: Mode,
    /// What it shows as its owner.
    pub owner: Text,
    /// Whether it named that owner itself.
    pub explicit: bool,
    /// Whose id it is.
    pub principal: Option<Text>,
    /// Held or waiting.
    pub state: State,
    /// How long it has held, or waited.
    pub held_ms: u64,
    /// How long its lease, or its wait, has left; `None` is no lease.
    pub lease_ms: Option<u64>,
    /// When it arrived, in table time.
    pub arrived: u64,
    /// The wait it asked for. Of a holder it is known only if it has an alias.
    pub wait_ms: u64,
    /// The lease it asked for; 0 is none.
    pub lease_asked_ms: u64,
    /// Its meta.
    pub meta: Option<Box<str>>,
    /// Its alias.
    pub alias: Option<Box<str>>,
}

/// Who holds a plain key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHolder {
    /// The token.
    pub token: u64,
    /// What is left of the lease; `None` is no lease.
    pub lease_ms: Option<u64>,
    /// The value, if it was taken with one.
    pub value: Option<Box<[u8]>>,
}

/// A task in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskEntry {
    /// Its number, in the order of creation.
    pub number: u64,
    /// Its key.
    pub key: Text,
    /// Its body.
    pub body: Option<Body>,
    /// Its state.
    pub state: TaskState,
    /// Its version.
    pub version: u64,
    /// Who has claimed it, or did last.
    pub owner: Option<Text>,
    /// The token of the last claim, 0 if it was never claimed.
    pub token: u64,
    /// When it was created.
    pub created: u64,
    /// When it was last claimed.
    pub claimed: Option<u64>,
    /// Its priority.
    pub priority: i32,
    /// How often it was put back.
    pub attempts: u32,
    /// The earliest time it can be claimed, while it is free.
    pub due: u64,
    /// What is left of the claim's lease; `None` is no lease, or not claimed.
    pub lease_ms: Option<u64>,
    /// The last error.
    pub error: Option<Text>,
}

/// How many tasks a pool has in each state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// The pool.
    pub pool: Text,
    /// Free and due.
    pub ready: u64,
    /// Free and not due yet.
    pub delayed: u64,
    /// Claimed.
    pub claimed: u64,
    /// Done.
    pub done: u64,
    /// Failed.
    pub failed: u64,
    /// Claims that wait.
    pub waiting: u64,
}

/// The totals of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Table time.
    pub now: u64,
    /// The last token given out.
    pub token: u64,
    /// The last arrival number given out.
    pub seq: u64,
    /// Requests that hold.
    pub held: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// Distinct resources in use.
    pub resources: u64,
    /// Distinct explicit owners.
    pub owners: u64,
    /// Ended ids remembered.
    pub ended: u64,
    /// Tasks.
    pub tasks: u64,
    /// Their bytes.
    pub task_bytes: u64,
    /// Claims that wait.
    pub claims: u64,
}
