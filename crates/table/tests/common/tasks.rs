//! Task commands from text. Each has an id of its own, so that repeats are said explicitly.

use keylatch_table::{
    Answer, Body, Checked, Claim, Command, Create, Party, PoolCounts, PutBack, Query, TaskAction,
    TaskCommand, TaskEntry, TasksQuery,
};

use super::Scene;

/// The pool of all tests that need only one.
pub(crate) const POOL: &str = "pool";

pub(crate) fn command(id: &str, pool: &str, action: TaskAction) -> Command {
    Command::Task(TaskCommand { id: id.into(), pool: pool.into(), action })
}

pub(crate) fn text_body(text: &str) -> Body {
    Body { json: false, bytes: text.as_bytes().into() }
}

pub(crate) fn checked(key: &str, version: u64) -> Checked {
    Checked { key: key.into(), version }
}

/// A task of priority 0, due at once, with the attempts of the settings.
pub(crate) fn new_task(key: &str) -> Create {
    Create { key: key.into(), body: None, priority: 0, delay_ms: 0, attempts: None }
}

/// A claim of any task, by a worker named as its id will be, with a lease of 60 s.
pub(crate) fn any(worker: &str) -> Claim {
    Claim { key: None, party: Party::client(worker), wait_ms: 0, lease_ms: 60_000 }
}

/// A claim of one task.
pub(crate) fn named(worker: &str, key: &str) -> Claim {
    Claim { key: Some(key.into()), ..any(worker) }
}

impl Scene {
    pub(crate) fn task(&mut self, id: &str, action: TaskAction) -> String {
        self.say(command(id, POOL, action))
    }

    /// Creates a task; the command's id is `create-KEY`.
    pub(crate) fn create(&mut self, key: &str) -> String {
        self.create_as(new_task(key))
    }

    pub(crate) fn create_as(&mut self, create: Create) -> String {
        self.task(&format!("create-{}", create.key), TaskAction::Create(create))
    }

    /// Claims any task without waiting; the worker's name is the command's id.
    pub(crate) fn claim(&mut self, worker: &str) -> String {
        self.claim_as(worker, any(worker))
    }

    pub(crate) fn claim_wait(&mut self, worker: &str, wait_ms: u64) -> String {
        self.claim_as(worker, Claim { wait_ms, ..any(worker) })
    }

    pub(crate) fn claim_as(&mut self, id: &str, claim: Claim) -> String {
        self.task(id, TaskAction::Claim(claim))
    }

    /// Renews; the ids of these commands are made of what they do, so a repeat is a repeat.
    pub(crate) fn update(&mut self, key: &str, version: u64) -> String {
        self.update_as(key, version, None, None)
    }

    pub(crate) fn update_as(
        &mut self,
        key: &str,
        version: u64,
        body: Option<&str>,
        lease_ms: Option<u64>,
    ) -> String {
        let action = TaskAction::Update(checked(key, version), body.map(text_body), lease_ms);
        self.task(&format!("update-{key}-{version}"), action)
    }

    pub(crate) fn finish(&mut self, key: &str, version: u64) -> String {
        self.task(&format!("finish-{key}-{version}"), TaskAction::Finish(checked(key, version)))
    }

    pub(crate) fn put_back(&mut self, key: &str, version: u64) -> String {
        self.put_back_as(key, version, PutBack::default())
    }

    pub(crate) fn put_back_as(&mut self, key: &str, version: u64, back: PutBack) -> String {
        let action = TaskAction::PutBack(checked(key, version), back);
        self.task(&format!("back-{key}-{version}"), action)
    }

    pub(crate) fn delete(&mut self, id: &str, key: &str, version: Option<u64>) -> String {
        self.task(id, TaskAction::Delete(key.into(), version))
    }

    pub(crate) fn retry(&mut self, id: &str, key: Option<&str>) -> String {
        self.task(id, TaskAction::Retry(key.map(Into::into)))
    }

    pub(crate) fn entry(&self, key: &str) -> TaskEntry {
        self.find_task(POOL, key).expect("the task exists")
    }

    pub(crate) fn find_task(&self, pool: &str, key: &str) -> Option<TaskEntry> {
        match self.query(&Query::Task(pool.into(), key.into())) {
            Answer::Task(task) => task.map(|task| *task),
            other => panic!("not a task: {other:?}"),
        }
    }

    pub(crate) fn list_tasks(&self, query: TasksQuery) -> Vec<TaskEntry> {
        match self.query(&Query::Tasks(query)) {
            Answer::Tasks(tasks) => tasks,
            other => panic!("not tasks: {other:?}"),
        }
    }

    pub(crate) fn pools(&self) -> Vec<PoolCounts> {
        match self.query(&Query::Pools) {
            Answer::Pools(pools) => pools,
            other => panic!("not pools: {other:?}"),
        }
    }

    /// The counts of the one pool.
    pub(crate) fn counts(&self) -> PoolCounts {
        self.pools().into_iter().find(|pool| &*pool.pool == POOL).unwrap_or_default()
    }
}
