//! Reading tasks.

use super::TaskState;
use super::store::{Task, Tasks};
use crate::lock::left;
use crate::{PoolCounts, TaskEntry, TasksQuery};

impl Tasks {
    pub(crate) fn list(&self, now: u64, query: &TasksQuery) -> Vec<TaskEntry> {
        let limit = if query.limit == 0 { usize::MAX } else { query.limit };
        let Some(pool) = self.pool(&query.pool) else { return Vec::new() };
        pool.tasks
            .range(query.cursor.saturating_add(1)..)
            .map(|(_, at)| self.task(*at))
            .filter(|task| query.state.is_none_or(|state| state == task.state))
            .filter(|task| query.prefix.as_ref().is_none_or(|start| task.key.starts_with(&**start)))
            .take(limit)
            .map(|task| entry(now, task))
            .collect()
    }

    pub(crate) fn entry_of(&self, now: u64, pool: &str, key: &str) -> Option<Box<TaskEntry>> {
        self.find(pool, key).map(|at| Box::new(entry(now, self.task(at))))
    }

    pub(crate) fn pools(&self) -> Vec<PoolCounts> {
        let counts = self.pools.iter().map(|(name, pool)| {
            let (tasks, ready) = (pool.tasks.len() as u64, pool.ready.len() as u64);
            let failed = pool.failed.len() as u64;
            PoolCounts {
                pool: name.clone(),
                ready,
                delayed: tasks - ready - pool.claimed - pool.done - failed,
                claimed: pool.claimed,
                done: pool.done,
                failed,
                waiting: pool.waiting,
            }
        });
        counts.collect()
    }
}

fn entry(now: u64, task: &Task) -> TaskEntry {
    let claim = task.claim.as_ref();
    let live = claim.filter(|_| task.state == TaskState::Claimed);
    TaskEntry {
        number: task.number,
        key: task.key.clone(),
        body: task.body.clone(),
        state: task.state,
        version: task.version,
        owner: claim.map(|claim| claim.owner.clone()),
        token: claim.map_or(0, |claim| claim.token),
        created: task.created,
        claimed: claim.map(|claim| claim.at),
        priority: task.priority,
        attempts: task.attempts,
        due: task.ready,
        lease_ms: live.and_then(|claim| left(claim.end, now)),
        error: task.error.clone(),
    }
}
