//! Tasks: records that workers claim, one worker a record.
//!
//! How a task meets the code: `create` (it is made) -> `ask` (a worker asks for one) -> `claim` (it has
//! it; `keep` renews it) -> `change` (updated, done, put back). `task` is what lists show.

mod task;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use keylatch_table::{PoolCounts, TaskAction, TaskCommand, TaskReply, Text};

use crate::ask::{Futures, new_id};
use crate::clock::Moment;
use crate::error::{ListError, TaskError};
use crate::locks::Inner;
pub use task::{ListTasks, Task};

/// A command whose answer was lost is repeated for so long, under the same id.
const REPEAT: Duration = Duration::from_secs(5);
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(50);

/// The tasks of one pool. Clones share everything.
///
/// All methods that change something may be dropped at any time: what was asked for then happens or
/// does not, and nothing is half done.
pub struct Tasks<For = Futures> {
    pub(crate) locks: Arc<Inner>,
    pub(crate) pool: Text,
    /// Who asks: the options are the same for all of them.
    asks: PhantomData<fn() -> For>,
}

impl<For> Clone for Tasks<For> {
    fn clone(&self) -> Self {
        Tasks::new(Arc::clone(&self.locks), self.pool.clone())
    }
}

impl<For> std::fmt::Debug for Tasks<For> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").field("pool", &self.pool).finish_non_exhaustive()
    }
}

impl<For> Tasks<For> {
    pub(crate) fn new(locks: Arc<Inner>, pool: Text) -> Self {
        Tasks { locks, pool, asks: PhantomData }
    }

    /// The name of the pool.
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// The tasks of the pool, in the order in which they were created.
    pub fn list(&self) -> ListTasks<For> {
        ListTasks::new(self.clone())
    }

    /// Under an id of its own. If the answer is lost it is asked for again, under the same id.
    pub(crate) async fn carry_out(&self, action: TaskAction) -> Result<TaskReply, TaskError> {
        let command = TaskCommand { id: new_id(), pool: self.pool.clone(), action };
        let until = Moment::now().after(REPEAT);
        loop {
            let again = command.clone();
            match self.locks.submit_task(|tasks| tasks.task(again)).await {
                Err(TaskError::Unknown(_)) if !until.has_passed() => {
                    tokio::time::sleep(PAUSE).await;
                }
                reply => return reply,
            }
        }
    }

    pub(crate) async fn get_one(&self, key: &str) -> Result<Option<Task>, ListError> {
        self.locks.submit_task(|tasks| tasks.task_entry(&self.pool, key)).await
    }

    pub(crate) async fn count(&self) -> Result<PoolCounts, ListError> {
        let pools = self.locks.submit_task(|tasks| tasks.pools(Some(&self.pool))).await?;
        let none = || PoolCounts { pool: self.pool.clone(), ..PoolCounts::default() };
        Ok(pools.into_iter().next().unwrap_or_else(none))
    }

    /// Frees failed tasks again.
    pub(crate) async fn retry_failed(&self, key: Option<&str>) -> Result<u64, TaskError> {
        match self.carry_out(TaskAction::Retry(key.map(Into::into))).await? {
            TaskReply::Retried(count) => Ok(count),
            other => Err(strange(&other)),
        }
    }
}

impl Tasks {
    /// One task; `None` if there is none.
    pub async fn get(&self, key: &str) -> Result<Option<Task>, ListError> {
        self.get_one(key).await
    }

    /// How many tasks there are in each state, and how many claims wait.
    pub async fn counts(&self) -> Result<PoolCounts, ListError> {
        self.count().await
    }

    /// Frees a failed task again, with its attempts at 0. Whether there was one.
    pub async fn retry(&self, key: &str) -> Result<bool, TaskError> {
        Ok(self.retry_failed(Some(key)).await? > 0)
    }

    /// Frees all failed tasks of the pool again, with their attempts at 0. How many.
    pub async fn retry_all(&self) -> Result<u64, TaskError> {
        self.retry_failed(None).await
    }
}

/// An answer to another question than was asked.
pub(crate) fn strange(reply: &TaskReply) -> TaskError {
    TaskError::Unknown(format!("this is not an answer to it: {reply:?}"))
}
