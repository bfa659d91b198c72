//! A task as lists show it.

use std::pin::Pin;
use std::time::Duration;

use keylatch_table::{Body, TaskEntry, TaskState, TasksQuery, Text};

use super::Tasks;
use crate::ask::Futures;
use crate::error::ListError;

/// A task, with its times as seen now: how long ago, and how long until.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Task {
    /// Its number in the order of creation, and the cursor of lists.
    pub number: u64,
    /// Its key.
    pub key: Text,
    /// What is to be done.
    pub body: Option<Body>,
    /// Its state.
    pub state: TaskState,
    /// Its version: changes with every write and never repeats.
    pub version: u64,
    /// Who has claimed it, or did last.
    pub owner: Option<Text>,
    /// The fencing token of the last claim, 0 if it was never claimed.
    pub token: u64,
    /// How long ago it was created.
    pub age: Duration,
    /// How long ago it was last claimed.
    pub claimed: Option<Duration>,
    /// Higher is claimed first.
    pub priority: i32,
    /// How often it was put back.
    pub attempts: u32,
    /// How long until it can be claimed, while it is free; zero if that is now.
    pub due: Duration,
    /// What is left of the claim's lease; `None` is no lease, or not claimed.
    pub lease: Option<Duration>,
    /// What went wrong last.
    pub error: Option<Text>,
}

impl Task {
    /// As the table shows it at this time.
    pub(crate) fn at(now: u64, entry: TaskEntry) -> Task {
        let ago = |at: u64| Duration::from_millis(now.saturating_sub(at));
        let free = entry.state == TaskState::Free;
        Task {
            number: entry.number,
            key: entry.key,
            body: entry.body,
            state: entry.state,
            version: entry.version,
            owner: entry.owner,
            token: entry.token,
            age: ago(entry.created),
            claimed: entry.claimed.map(ago),
            priority: entry.priority,
            attempts: entry.attempts,
            due: Duration::from_millis(if free { entry.due.saturating_sub(now) } else { 0 }),
            lease: entry.lease_ms.map(Duration::from_millis),
            error: entry.error,
        }
    }
}

/// A list of tasks, before it is asked for. Awaiting it asks; in a thread, `fetch()` does.
#[must_use = "nothing is asked for before it is awaited (or, in a thread, fetched)"]
pub struct ListTasks<For = Futures> {
    tasks: Tasks<For>,
    query: TasksQuery,
}

impl<For> ListTasks<For> {
    pub(super) fn new(tasks: Tasks<For>) -> Self {
        let pool = tasks.pool.clone();
        let query = TasksQuery { pool, state: None, prefix: None, limit: 0, cursor: 0 };
        ListTasks { tasks, query }
    }

    /// Only those in this state.
    pub fn state(mut self, state: TaskState) -> Self {
        self.query.state = Some(state);
        self
    }

    /// Only those whose key begins so.
    pub fn prefix(mut self, prefix: impl Into<Text>) -> Self {
        self.query.prefix = Some(prefix.into());
        self
    }

    /// At most so many.
    pub fn limit(mut self, limit: usize) -> Self {
        self.query.limit = limit;
        self
    }

    /// Only those after this [`Task::number`], which was the last one of the list before.
    pub fn after(mut self, number: u64) -> Self {
        self.query.cursor = number;
        self
    }

    pub(crate) async fn ask(self) -> Result<Vec<Task>, ListError> {
        self.tasks.locks.submit_task(|tasks| tasks.tasks(self.query)).await
    }
}

impl IntoFuture for ListTasks {
    type Output = Result<Vec<Task>, ListError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.ask())
    }
}
