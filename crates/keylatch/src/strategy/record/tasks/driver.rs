//! The strategy of tasks over any record store: lets the table decide on what is known, and writes.

use std::sync::Arc;
use std::time::Duration;

use keylatch_table::{
    Answer, Checked, PoolCounts, Query, TaskAction, TaskCommand, TaskReply, TaskState, TasksQuery,
    Text,
};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::super::store::StoreError;
use super::decide::{self, Decision, Nonsense};
use super::format::real;
use super::known::Known;
use super::store::{
    Change, Page, Put, Ready, Seen, Stamp, Taken, TaskRecord, TaskStore, Write, Written,
};
use super::wait::Waits;
use crate::carried::Carried;
use crate::error::{ListError, TaskError};
use crate::strategy::Pending;
use crate::tasks::{GIVEN_BACK_MS, Task};

/// How long a store may be away before its answer is not waited for any more.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries.
const RETRY: Duration = Duration::from_millis(100);
/// So many tasks are read at once for a list.
const PAGE: usize = 500;
/// So many failed tasks are freed at once.
const TOGETHER: usize = 16;

pub(crate) struct Tasks(Arc<Shared>);

pub(super) struct Shared {
    pub(super) store: Arc<dyn TaskStore>,
    known: Mutex<Known>,
    pub(super) waits: Mutex<Waits>,
    /// Claims are dropped anywhere.
    pub(super) runtime: Handle,
}

/// Why there is no reply.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    Store(StoreError),
    Nonsense(String),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::Store(error)
    }
}

impl From<Nonsense> for Failure {
    fn from(Nonsense(text): Nonsense) -> Failure {
        Failure::Nonsense(text)
    }
}

impl From<Failure> for TaskError {
    fn from(failure: Failure) -> TaskError {
        match failure {
            Failure::Store(StoreError { text, unknown: true }) => TaskError::Unknown(text),
            Failure::Store(StoreError { text, unknown: false }) => TaskError::Unreachable(text),
            Failure::Nonsense(text) => TaskError::Invalid(text),
        }
    }
}

impl From<Failure> for ListError {
    fn from(failure: Failure) -> ListError {
        match failure {
            Failure::Store(error) => ListError::Unreachable(error.text),
            Failure::Nonsense(text) => ListError::Refused(text),
        }
    }
}

pub(super) fn invalid(error: keylatch_table::Error) -> TaskError {
    TaskError::Invalid(error.to_string())
}

fn ended<E: From<Failure>>() -> E {
    let text = "the runtime has ended".into();
    Failure::Store(StoreError { text, unknown: true }).into()
}

impl Tasks {
    pub(crate) fn new(store: Arc<dyn TaskStore>) -> Tasks {
        let told = store.told();
        let shared = Arc::new(Shared {
            store,
            known: Mutex::default(),
            waits: Mutex::default(),
            runtime: Handle::current(),
        });
        tokio::spawn(super::wait::hear(Arc::downgrade(&shared), told));
        Tasks(shared)
    }

    /// It goes on, whatever becomes of what is returned.
    fn go<T, E>(
        &self,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Pending<Result<T, E>>
    where
        T: Send + 'static,
        E: From<Failure> + Send + 'static,
    {
        let work = Carried::new(&self.0.runtime, Box::pin(work));
        Box::pin(async move { work.await.unwrap_or_else(|| Err(ended())) })
    }

    pub(crate) fn task(&self, command: TaskCommand) -> Pending<Result<TaskReply, TaskError>> {
        let shared = Arc::clone(&self.0);
        match &command.action {
            TaskAction::Cancel => {
                let was = shared.cancel(&command.id);
                Box::pin(std::future::ready(Ok(TaskReply::Cancelled(was))))
            }
            TaskAction::Claim(claim) => {
                if let Some(error) = decide::refusal(&command) {
                    return Box::pin(std::future::ready(Err(invalid(error))));
                }
                match claim.wait_ms > 0 || shared.waits.lock().has(&command.id) {
                    true => shared.wait(command),
                    false => self.go(async move { shared.claim(&command).await }),
                }
            }
            TaskAction::Retry(None) => self.go(async move { shared.retry(&command).await }),
            TaskAction::Create(_)
            | TaskAction::Update(..)
            | TaskAction::Finish(_)
            | TaskAction::PutBack(..)
            | TaskAction::Delete(..)
            | TaskAction::Retry(Some(_)) => {
                self.go(async move { shared.patiently(&command).await })
            }
        }
    }

    pub(crate) fn hold(&self) -> Option<Box<dyn Send>> {
        self.0.store.hold()
    }

    pub(crate) fn tasks(&self, query: TasksQuery) -> Pending<Result<Vec<Task>, ListError>> {
        let shared = Arc::clone(&self.0);
        self.go(async move { Ok(shared.list(query).await?) })
    }

    pub(crate) fn task_entry(
        &self,
        pool: &str,
        key: &str,
    ) -> Pending<Result<Option<Task>, ListError>> {
        let (shared, pool, key): (_, Text, Text) = (Arc::clone(&self.0), pool.into(), key.into());
        self.go(async move { Ok(shared.entry(pool, key).await?) })
    }

    pub(crate) fn pools(&self, pool: Option<&str>) -> Pending<Result<Vec<PoolCounts>, ListError>> {
        let (shared, pool) = (Arc::clone(&self.0), pool.map(Text::from));
        self.go(async move {
            let counts = shared.store.counts(pool.clone()).await.map_err(Failure::from)?;
            Ok(shared.waits.lock().add_to(counts, pool.as_deref()))
        })
    }
}

/// The key of a command that is about one task.
fn key_of(action: &TaskAction) -> Option<&Text> {
    match action {
        TaskAction::Create(create) => Some(&create.key),
        TaskAction::Update(Checked { key, .. }, ..)
        | TaskAction::Finish(Checked { key, .. })
        | TaskAction::PutBack(Checked { key, .. }, _)
        | TaskAction::Delete(key, _)
        | TaskAction::Retry(Some(key)) => Some(key),
        TaskAction::Claim(_) | TaskAction::Retry(None) | TaskAction::Cancel => None,
    }
}

impl Shared {
    /// A command about one task. It may be repeated, since it carries its id: so a store that does not answer
    /// is asked again for a while, also if what was asked may have happened.
    async fn patiently(&self, command: &TaskCommand) -> Result<TaskReply, TaskError> {
        let since = Instant::now();
        let mut repeated = false;
        loop {
            match self.act(command, repeated).await {
                Err(Failure::Store(error)) if since.elapsed() < PATIENCE => {
                    tracing::debug!(error.text, "the store is asked again");
                    repeated |= error.unknown;
                    tokio::time::sleep(RETRY).await;
                }
                // Nothing of it is left to know it by.
                Ok(TaskReply::NotFound)
                    if repeated && matches!(command.action, TaskAction::Delete(..)) =>
                {
                    return Ok(TaskReply::Deleted);
                }
                Ok(TaskReply::Error(error)) => return Err(invalid(error)),
                outcome => return Ok(outcome?),
            }
        }
    }

    /// Lets the table decide, and writes what follows, until nobody got in between.
    async fn act(&self, command: &TaskCommand, repeated: bool) -> Result<TaskReply, Failure> {
        let pool = &command.pool;
        let key = key_of(&command.action).expect("it is about one task");
        let known = match &command.action {
            // That there is none is worth a try.
            TaskAction::Create(_) => Some(Seen { now: 0, record: None }),
            TaskAction::Update(checked, ..)
            | TaskAction::Finish(checked)
            | TaskAction::PutBack(checked, _) => self.known.lock().at(pool, key, checked.version),
            _ => None,
        };
        let (mut seen, mut fresh) = match known {
            Some(known) if !repeated => (known, false),
            _ => (self.store.task(pool, key).await?, true),
        };
        loop {
            let Decision { reply, write } = decide::decide(&seen, key, command)?;
            if matches!(reply, TaskReply::Error(_)) {
                return Ok(reply);
            }
            let Some(write) = write else {
                // What is answered without a write must not rest on what may be out of date.
                if fresh {
                    return Ok(reply);
                }
                (seen, fresh) = (self.store.task(pool, key).await?, true);
                continue;
            };
            let expect = seen.record.as_ref().map(|record| record.last.version);
            let change = Change { pool: pool.clone(), key: key.clone(), expect, write };
            match self.store.change(change.clone()).await? {
                Written::Done(stamp) => {
                    self.wrote(&seen, change, stamp);
                    return Ok(real(reply, stamp.version));
                }
                Written::Other(other) => (seen, fresh) = (other, true),
            }
        }
    }

    /// What is claimed will be written again.
    fn wrote(&self, seen: &Seen, change: Change, stamp: Stamp) {
        let Change { pool, key, write, .. } = change;
        let Write::Put(Put { state: TaskState::Claimed, priority, ready, bytes, claim }) = write
        else {
            return self.known.lock().forget(&pool, &key);
        };
        let number = seen.record.as_ref().map_or(stamp.version, |record| record.number);
        let ready = match ready {
            Ready::At(time) => Some(time),
            Ready::After(ms) => Some(stamp.time + ms),
            Ready::Never => None,
        };
        let (last, written, state) = (stamp, stamp, TaskState::Claimed);
        let alive = seen.record.as_ref().and_then(|record| record.alive).map(|_| true);
        let record = TaskRecord {
            pool,
            key,
            last,
            written,
            number,
            state,
            priority,
            ready,
            alive,
            bytes,
            claim,
        };
        self.known.lock().keep(stamp.time, record);
    }

    /// A claim that does not wait.
    async fn claim(&self, command: &TaskCommand) -> Result<TaskReply, TaskError> {
        let since = Instant::now();
        loop {
            match self.try_claim(command, false).await {
                Err(Failure::Store(error)) if since.elapsed() < PATIENCE => {
                    tracing::debug!(error.text, "the store is asked again");
                    tokio::time::sleep(RETRY).await;
                }
                Ok(Tried::Answer(reply)) => return reply,
                Ok(Tried::Nothing(_)) => return Ok(TaskReply::Nothing),
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// One try to claim something.
    pub(super) async fn try_claim(
        &self,
        command: &TaskCommand,
        waits: bool,
    ) -> Result<Tried, Failure> {
        let TaskAction::Claim(claim) = &command.action else {
            unreachable!("it is a claim");
        };
        let take = decide::take(command, claim, waits, self.store.lease_unit_ms());
        match self.store.take(take).await? {
            Taken::Task { now, record } => {
                let reply = decide::taken(now, &record, command)?;
                self.known.lock().keep(now, record);
                Ok(Tried::answer(reply))
            }
            Taken::Nothing { now, record, next_ms } => {
                match decide::nothing(&Seen { now, record }, command)? {
                    TaskReply::Nothing => Ok(Tried::Nothing(next_ms)),
                    reply => Ok(Tried::answer(reply)),
                }
            }
        }
    }

    /// Frees what was claimed for somebody who does not want it any more, as far as the rules go: its lease
    /// ends at once. If that fails, the lease ends it.
    pub(super) async fn undo(&self, command: &TaskCommand, key: Text, version: u64) {
        let (checked, id) = (Checked { key, version }, format!("undo {version}"));
        let action = TaskAction::Update(checked, None, Some(GIVEN_BACK_MS));
        let end = TaskCommand { id: id.as_str().into(), pool: command.pool.clone(), action };
        drop(self.patiently(&end).await);
    }

    /// All that are failed, a few at once. What fails meanwhile may be among them or not.
    async fn retry(self: &Arc<Self>, command: &TaskCommand) -> Result<TaskReply, TaskError> {
        if let Some(error) = decide::refusal(command) {
            return Err(invalid(error));
        }
        let (pool, state) = (command.pool.clone(), Some(TaskState::Failed));
        let (mut after, mut count) = (0, 0);
        loop {
            let page = Page { pool: pool.clone(), state, after, limit: TOGETHER };
            let (_, page) = self.store.page(page).await.map_err(Failure::from)?;
            let Some(last) = page.last() else { return Ok(TaskReply::Retried(count)) };
            after = last.number;
            let one = |record: &TaskRecord| TaskCommand {
                action: TaskAction::Retry(Some(record.key.clone())),
                ..command.clone()
            };
            let mut under_way = JoinSet::new();
            for one in page.iter().map(one) {
                let shared = Arc::clone(self);
                under_way.spawn(async move { shared.patiently(&one).await });
            }
            while let Some(reply) = under_way.join_next().await {
                if let TaskReply::Retried(more) = reply.unwrap_or_else(|_| Err(ended()))? {
                    count += more;
                }
            }
        }
    }

    async fn list(&self, mut query: TasksQuery) -> Result<Vec<Task>, Failure> {
        let mut entries = Vec::new();
        // Among those that are free now are some that were last written as claimed.
        let state = query.state.filter(|state| *state != TaskState::Free);
        loop {
            let (pool, after) = (query.pool.clone(), query.cursor);
            let (now, page) = self.store.page(Page { pool, state, after, limit: PAGE }).await?;
            let Some(last) = page.last() else { return Ok(entries) };
            let next = last.number;
            match decide::ask(now, &page, &Query::Tasks(query.clone()))? {
                Answer::Tasks(some) => {
                    entries.extend(some.into_iter().map(|entry| Task::at(now, entry)));
                }
                other => unreachable!("tasks were asked for: {other:?}"),
            }
            if query.limit > 0 && entries.len() >= query.limit {
                entries.truncate(query.limit);
                return Ok(entries);
            }
            if page.len() < PAGE {
                return Ok(entries);
            }
            query.cursor = next;
        }
    }

    async fn entry(&self, pool: Text, key: Text) -> Result<Option<Task>, Failure> {
        let Seen { now, record } = self.store.task(&pool, &key).await?;
        match decide::ask(now, record.as_slice(), &Query::Task(pool, key))? {
            Answer::Task(entry) => Ok(entry.map(|entry| Task::at(now, *entry))),
            other => unreachable!("a task was asked for: {other:?}"),
        }
    }
}

/// What came of a try to claim something.
pub(super) enum Tried {
    Answer(Result<TaskReply, TaskError>),
    /// The next task is due so much later, if that is known.
    Nothing(Option<u64>),
}

impl Tried {
    fn answer(reply: TaskReply) -> Tried {
        Tried::Answer(match reply {
            TaskReply::Error(error) => Err(invalid(error)),
            reply => Ok(reply),
        })
    }
}
