//! Tasks, for threads.

use std::fmt;
use std::time::Duration;

use super::background::wait;
use super::{Locks, Threads, Watch};
use crate::error::{ChangeError, ClaimError, ListError, TaskError};
use crate::tasks::{self, Back, LostClaim, Task, Updated};
use crate::{Body, PoolCounts};

/// The tasks of one pool, for threads, with the options of [`crate::Tasks`].
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = keylatch::blocking::Locks::connect("memory:")?;
/// let emails = locks.tasks("emails");
/// emails.create("welcome-42").body("ann@example.org").send()?;
/// while let Some(claim) = emails.claim().try_now().take()? {
///     println!("{}: {:?}", claim.key(), claim.text());
///     claim.done()?;
/// }
/// # Ok(())
/// # }
/// ```
pub type Tasks = crate::Tasks<Threads>;
/// A new task, before [`CreateTask::send`].
pub type CreateTask = crate::CreateTask<Threads>;
/// A claim, before [`ClaimTask::take`].
pub type ClaimTask = crate::ClaimTask<Threads>;
/// A renewal by version, before [`UpdateTask::send`].
pub type UpdateTask = crate::UpdateTask<Threads>;
/// A task that is to be put back, before [`PutBackTask::send`].
pub type PutBackTask = crate::PutBackTask<Threads>;
/// A list, before [`ListTasks::fetch`].
pub type ListTasks = crate::ListTasks<Threads>;

impl Locks {
    /// The tasks of a pool, which needs not exist: it does as long as it has tasks.
    pub fn tasks(&self, pool: &str) -> Tasks {
        self.0.tasks_of(pool.into())
    }

    /// The pools that have tasks or waiting claims, with their counts.
    pub fn pools(&self) -> Result<Vec<PoolCounts>, ListError> {
        wait(self.0.pools())
    }
}

impl Tasks {
    /// One task; `None` if there is none.
    pub fn get(&self, key: &str) -> Result<Option<Task>, ListError> {
        wait(self.get_one(key))
    }

    /// Makes many tasks; see [`crate::Tasks::create_many`].
    pub fn create_many(
        &self,
        new: impl IntoIterator<Item = CreateTask>,
    ) -> Result<Vec<Option<u64>>, TaskError> {
        wait(tasks::create_many(new))
    }

    /// Marks a task done that is known by its version. Its version then.
    pub fn done(&self, key: &str, version: u64) -> Result<u64, ChangeError> {
        wait(self.finish(key, version))
    }

    /// Removes a task, whatever its state. Whether there was one.
    pub fn delete(&self, key: &str) -> Result<bool, TaskError> {
        wait(self.awaited().delete(key))
    }

    /// Removes a task if it still has this version.
    pub fn delete_version(&self, key: &str, version: u64) -> Result<(), ChangeError> {
        wait(self.remove(key, Some(version)))
    }

    /// What happens from now on to claims of this pool; see [`crate::Tasks::watch`].
    pub fn watch(&self) -> Result<Watch, ListError> {
        wait(self.watch_pool()).map(Watch::new)
    }

    /// How many tasks there are in each state, and how many claims wait.
    pub fn counts(&self) -> Result<PoolCounts, ListError> {
        wait(self.count())
    }

    /// Frees a failed task again, with its attempts at 0. Whether there was one.
    pub fn retry(&self, key: &str) -> Result<bool, TaskError> {
        wait(self.retry_failed(Some(key))).map(|count| count > 0)
    }

    /// Frees all failed tasks of the pool again, with their attempts at 0. How many.
    pub fn retry_all(&self) -> Result<u64, TaskError> {
        wait(self.retry_failed(None))
    }
}

impl CreateTask {
    /// Makes it: its version, or `None` if a task with this key exists.
    pub fn send(self) -> Result<Option<u64>, TaskError> {
        wait(self.ask())
    }
}

impl ClaimTask {
    /// Asks, and waits as long as was said. `None` if nothing became free in time.
    pub fn take(self) -> Result<Option<Claim>, ClaimError> {
        Ok(wait(self.ask())?.map(Claim))
    }
}

impl UpdateTask {
    /// Renews the claim.
    pub fn send(self) -> Result<Updated, ChangeError> {
        wait(self.ask())
    }
}

impl PutBackTask {
    /// Puts it back.
    pub fn send(self) -> Result<Back, ChangeError> {
        wait(self.ask())
    }
}

impl ListTasks {
    /// Asks for it.
    pub fn fetch(self) -> Result<Vec<Task>, ListError> {
        wait(self.ask())
    }
}

/// A task that this worker has claimed, renewed in the background; see [`crate::Claim`].
#[must_use = "a claim that is dropped is not renewed any more"]
pub struct Claim(crate::Claim);

impl Claim {
    /// The task's key.
    pub fn key(&self) -> &str {
        self.0.key()
    }

    /// What is to be done, as it was when it was claimed.
    pub fn body(&self) -> Option<&Body> {
        self.0.body()
    }

    /// The body's bytes; none is empty.
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// The body, if there is one and it is text.
    pub fn text(&self) -> Option<&str> {
        self.0.text()
    }

    /// The version as last heard; renewals change it.
    pub fn version(&self) -> u64 {
        self.0.version()
    }

    /// The fencing token: larger than that of every earlier claim of this task.
    pub fn token(&self) -> u64 {
        self.0.token()
    }

    /// How often the task was put back before.
    pub fn attempts(&self) -> u32 {
        self.0.attempts()
    }

    /// How long the lease has left as its worker sees it; see [`crate::Claim::ends`].
    pub fn ends(&self) -> Option<Duration> {
        self.0.ends()
    }

    /// Whether the claim has been lost, and why.
    pub fn is_lost(&self) -> Option<LostClaim> {
        self.0.is_lost()
    }

    /// Waits until the claim is lost, but not longer than that.
    pub fn lost_within(&self, time: Duration) -> Option<LostClaim> {
        wait(async { tokio::time::timeout(time, self.0.lost()).await.ok() })
    }

    /// Renews the claim now; see [`crate::Claim::renew`].
    pub fn renew(&self) -> Result<Updated, ChangeError> {
        wait(self.0.renew())
    }

    /// Renews the claim now, and replaces the body.
    pub fn update(&self, body: impl Into<Vec<u8>>) -> Result<Updated, ChangeError> {
        wait(self.0.update(body))
    }

    /// The same with text that is JSON.
    pub fn update_json(&self, body: impl Into<String>) -> Result<Updated, ChangeError> {
        wait(self.0.update_json(body))
    }

    /// The task is done, and is never claimed again. Its version then.
    pub fn done(self) -> Result<u64, ChangeError> {
        wait(self.0.done())
    }

    /// The task is done, and the next one is asked for at the same time; see [`crate::Claim::done_and`]. Waits for
    /// both.
    pub fn done_and(
        self,
        next: ClaimTask,
    ) -> (Result<u64, ChangeError>, Result<Option<Claim>, ClaimError>) {
        wait(async {
            let (done, next) = self.0.done_with(Box::pin(next.ask())).await;
            (done, next.await.map(|claim| claim.map(Claim)))
        })
    }

    /// Frees the task, for another try now or after a delay, and counts the attempt.
    pub fn put_back(self) -> PutBackTask {
        PutBackTask::of_claim(self.0)
    }

    /// Gives the task back unchanged; see [`crate::Claim::release`].
    pub fn release(self) -> Result<(), ChangeError> {
        wait(self.0.release())
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
