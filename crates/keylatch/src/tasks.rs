//! Tasks: records that workers claim, one worker a record.
//!
//! How a task meets the code: `create` (it is made) -> `ask` (a worker asks for one) -> `claim` (it has
//! it; `keep` renews it, and `later` knows when that begins) -> `change` (updated, done, put back). `task` is what lists show.

mod ask;
mod change;
mod claim;
mod create;
mod keep;
mod later;
mod task;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use keylatch_table::{Checked, PoolCounts, RequestId, TaskAction, TaskCommand, TaskReply, Text};

use crate::ask::{Futures, new_id};
use crate::clock::Moment;
use crate::error::{ChangeError, ListError, TaskError};
use crate::event::Watch;
use crate::locks::Inner;
pub use ask::ClaimTask;
pub use change::{Back, PutBackTask, UpdateTask, Updated};
pub use claim::{Claim, NextClaim};
pub use create::CreateTask;
pub(crate) use create::many as create_many;
#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis", feature = "sqlite"))]
pub(crate) use keep::GIVEN_BACK_MS;
pub use keep::LostClaim;
pub(crate) use later::Later;
pub use task::{ListTasks, Task};

/// A command whose answer was lost is repeated for so long, under the same id.
const REPEAT: Duration = Duration::from_secs(5);
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(50);

/// The tasks of one pool. Clones share everything.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = keylatch::Locks::connect("memory:").await?;
/// use std::time::Duration;
///
/// let emails = locks.tasks("emails");
/// emails.create("welcome-42").body("ann@example.org").await?;
///
/// while let Some(claim) = emails.claim().owner("worker-1").wait(Duration::ZERO).await? {
///     println!("{}: {:?}, token {}", claim.key(), claim.text(), claim.token());
///     claim.done().await?; // or claim.put_back().error("no such address").await?
/// }
/// # Ok(())
/// # }
/// ```
///
/// Every command carries an id of its own and is repeated under it if its answer was lost, so it
/// happens once. Cancel safety: a command is submitted at the first poll; if the future is dropped after
/// that, it happens or does not, and is never half done. Only a claim is withdrawn: see [`ClaimTask`].
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

    /// A new task. Nothing happens before it is awaited.
    pub fn create(&self, key: impl Into<Text>) -> CreateTask<For> {
        CreateTask::new(self.clone(), key.into())
    }

    /// Any free task: of those that are due the one with the highest priority, then the one that has
    /// waited longest. Nothing happens before it is awaited.
    pub fn claim(&self) -> ClaimTask<For> {
        ClaimTask::new(self.clone(), None)
    }

    /// This task and no other, also if it does not exist yet. Nothing happens before it is awaited.
    pub fn claim_key(&self, key: impl Into<Text>) -> ClaimTask<For> {
        ClaimTask::new(self.clone(), Some(key.into()))
    }

    /// Renews a claim that is known by its version, for instance to another process. Of one that this
    /// process holds, [`Claim::update`] knows the version.
    pub fn update(&self, key: impl Into<Text>, version: u64) -> UpdateTask<For> {
        UpdateTask::new(self.clone(), Checked { key: key.into(), version })
    }

    /// Frees a task that is known by its version; see [`Claim::put_back`].
    pub fn put_back(&self, key: impl Into<Text>, version: u64) -> PutBackTask<For> {
        PutBackTask::of_version(self.clone(), Checked { key: key.into(), version })
    }

    /// The same pool, for whoever awaits.
    pub(crate) fn awaited(&self) -> Tasks {
        Tasks::new(Arc::clone(&self.locks), self.pool.clone())
    }

    fn command(&self, id: RequestId, action: TaskAction) -> TaskCommand {
        TaskCommand { id, pool: self.pool.clone(), action }
    }

    /// Under an id of its own. If the answer is lost it is asked for again, under the same id.
    pub(crate) async fn carry_out(&self, action: TaskAction) -> Result<TaskReply, TaskError> {
        self.locks.carry_out(&self.command(new_id(), action)).await
    }

    /// A change of a task at a version.
    pub(crate) async fn change(&self, action: TaskAction) -> Result<TaskReply, ChangeError> {
        changed(self.carry_out(action).await?)
    }

    pub(crate) async fn finish(&self, key: &str, version: u64) -> Result<u64, ChangeError> {
        let checked = Checked { key: key.into(), version };
        match self.change(TaskAction::Finish(checked)).await? {
            TaskReply::Finished(version) => Ok(version),
            other => Err(strange(&other).into()),
        }
    }

    pub(crate) async fn remove(&self, key: &str, version: Option<u64>) -> Result<(), ChangeError> {
        match self.change(TaskAction::Delete(key.into(), version)).await? {
            TaskReply::Deleted => Ok(()),
            other => Err(strange(&other).into()),
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

    pub(crate) async fn watch_pool(&self) -> Result<Watch, ListError> {
        let events = self.locks.submit(|strategy| strategy.watch()).await?;
        Ok(Watch::new(events, Some(self.pool.clone())))
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

    /// Makes many tasks, some hundred at a time; they need not be of this pool. The versions of those that
    /// were made, in the order given, and `None` for keys that exist. They are made in that order too, but
    /// for a record store, where those under way at once come in any order. After an error the others have
    /// been made or not: to make them all again does no harm.
    pub async fn create_many(
        &self,
        new: impl IntoIterator<Item = CreateTask>,
    ) -> Result<Vec<Option<u64>>, TaskError> {
        create_many(new).await
    }

    /// Marks a task done that is known by its version; see [`Claim::done`]. Its version then.
    pub async fn done(&self, key: &str, version: u64) -> Result<u64, ChangeError> {
        self.finish(key, version).await
    }

    /// Removes a task, whatever its state; whoever has claimed it finds out when it renews or is done.
    /// Whether there was one.
    pub async fn delete(&self, key: &str) -> Result<bool, TaskError> {
        match self.remove(key, None).await {
            Ok(()) => Ok(true),
            Err(ChangeError::NotFound) => Ok(false),
            Err(ChangeError::Task(error)) => Err(error),
            Err(other) => Err(TaskError::Unknown(other.to_string())),
        }
    }

    /// Removes a task if it still has this version.
    pub async fn delete_version(&self, key: &str, version: u64) -> Result<(), ChangeError> {
        self.remove(key, Some(version)).await
    }

    /// What happens from now on to claims of this pool that wait, and to those whose lease runs out. What
    /// a command is told at once is not among it.
    pub async fn watch(&self) -> Result<Watch, ListError> {
        self.watch_pool().await
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

impl Inner {
    /// Repeated under the same id if its answer is lost.
    pub(crate) async fn carry_out(&self, command: &TaskCommand) -> Result<TaskReply, TaskError> {
        self.carry_out_for(command, REPEAT).await
    }

    /// The same, for at least so long.
    pub(crate) async fn carry_out_for(
        &self,
        command: &TaskCommand,
        least: Duration,
    ) -> Result<TaskReply, TaskError> {
        let until = Moment::now().after(least.max(REPEAT));
        loop {
            let again = command.clone();
            match self.submit_task(|tasks| tasks.task(again)).await {
                Err(TaskError::Unknown(_)) if !until.has_passed() => {
                    tokio::time::sleep(PAUSE).await;
                }
                // Nothing has happened, and there is time left for it.
                Err(TaskError::Unreachable(_)) if !until.has_passed() && least > REPEAT => {
                    tokio::time::sleep(PAUSE).await;
                }
                reply => return reply,
            }
        }
    }
}

/// What it means that nothing was changed.
fn changed(reply: TaskReply) -> Result<TaskReply, ChangeError> {
    match reply {
        TaskReply::Stale(version) => Err(ChangeError::Stale(version)),
        TaskReply::NotFound => Err(ChangeError::NotFound),
        TaskReply::Refused(state) => Err(ChangeError::Refused(state)),
        reply => Ok(reply),
    }
}

/// An answer to another question than was asked.
pub(crate) fn strange(reply: &TaskReply) -> TaskError {
    TaskError::Unknown(format!("this is not an answer to it: {reply:?}"))
}
