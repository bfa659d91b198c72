//! Reading. What has a length is judged at the later of the reader's time and table time; nothing
//! expires through it.

use keylatch_table::{
    Answer, KeyHolder, LocksQuery, PoolCounts, Query, Resource, Stats, TaskEntry, TasksQuery, Text,
    task::TaskState,
};

use super::{Model, keyed::is_value_lock, tasks::Task};

fn task_entry(task: &Task, now: u64) -> TaskEntry {
    TaskEntry {
        number: task.number,
        key: task.key.clone(),
        body: task.body.clone(),
        state: task.state,
        version: task.version,
        owner: task.claim.as_ref().map(|claim| claim.owner.clone()),
        token: task.claim.as_ref().map_or(0, |claim| claim.token),
        created: task.created,
        claimed: task.claim.as_ref().map(|claim| claim.since),
        priority: task.priority,
        attempts: task.attempts,
        due: task.ready,
        lease_ms: task.left(now),
        error: task.error.clone(),
    }
}

fn up_to(limit: usize) -> usize {
    if limit == 0 { usize::MAX } else { limit }
}

impl Model {
    /// The answer to `query` for a reader whose time is `at`.
    pub fn query(&self, at: u64, query: &Query) -> Answer {
        let now = self.now.max(at);
        match query {
            Query::Locks(locks) => self.locks(locks, now),
            Query::Request(id) => Answer::Entries(
                self.position(id).map_or_else(Vec::new, |at| self.requests[at].entries(now)),
            ),
            Query::Key(key) => Answer::Key(self.key_holder(key, now)),
            Query::Tasks(tasks) => self.list_tasks(tasks, now),
            Query::Task(pool, key) => Answer::Task(
                self.tasks
                    .all
                    .iter()
                    .find(|task| task.pool == *pool && task.key == *key)
                    .map(|task| Box::new(task_entry(task, now))),
            ),
            Query::Pools => Answer::Pools(self.pools()),
            Query::Stats => Answer::Stats(self.stats()),
            Query::TopOwners(most) => {
                let mut owners = self.owners();
                owners.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
                owners.truncate(*most);
                Answer::Owners(owners)
            }
        }
    }

    fn locks(&self, query: &LocksQuery, now: u64) -> Answer {
        let named =
            |resource: &Resource| query.name.as_ref().is_none_or(|name| resource.name() == &**name);
        let entries = self
            .requests
            .iter()
            .filter(|request| query.waiters || request.hold().is_some())
            .filter(|request| request.seq > query.cursor)
            .filter(|request| {
                query.owner.as_ref().is_none_or(|owner| request.asked.party.owner == *owner)
            })
            .filter(|request| request.parts.iter().any(|part| named(&part.resource)))
            .take(up_to(query.limit))
            .flat_map(|request| request.entries(now))
            .filter(|entry| named(&entry.resource))
            .collect();
        Answer::Entries(entries)
    }

    fn key_holder(&self, key: &Resource, now: u64) -> Option<KeyHolder> {
        let holder = self.holders_of(key).next()?;
        Some(KeyHolder {
            token: holder.token(),
            lease_ms: holder.left(now),
            value: holder.value().filter(|_| is_value_lock(holder)).map(Into::into),
        })
    }

    fn list_tasks(&self, query: &TasksQuery, now: u64) -> Answer {
        let tasks = self
            .tasks
            .all
            .iter()
            .filter(|task| task.pool == query.pool && task.number > query.cursor)
            .filter(|task| query.state.is_none_or(|state| task.state == state))
            .filter(|task| query.prefix.as_ref().is_none_or(|begin| task.key.starts_with(&**begin)))
            .take(up_to(query.limit))
            .map(|task| task_entry(task, now))
            .collect();
        Answer::Tasks(tasks)
    }

    fn pools(&self) -> Vec<PoolCounts> {
        let of_tasks = self.tasks.all.iter().map(|task| task.pool.clone());
        let of_claims = self.tasks.claims.iter().map(|claim| claim.pool.clone());
        let mut names = of_tasks.chain(of_claims).collect::<Vec<_>>();
        names.sort();
        names.dedup();
        names.into_iter().map(|pool| self.pool_counts(&pool)).collect()
    }

    fn pool_counts(&self, pool: &Text) -> PoolCounts {
        let count = |wanted: &dyn Fn(&Task) -> bool| {
            self.tasks.all.iter().filter(|task| task.pool == *pool && wanted(task)).count() as u64
        };
        PoolCounts {
            ready: count(&|task| task.is_due(self.now)),
            delayed: count(&|task| task.state == TaskState::Free && !task.is_due(self.now)),
            claimed: count(&|task| task.state == TaskState::Claimed),
            done: count(&|task| task.state == TaskState::Done),
            failed: count(&|task| task.state == TaskState::Failed),
            waiting: self.tasks.claims.iter().filter(|claim| claim.pool == *pool).count() as u64,
            pool: pool.clone(),
        }
    }

    /// The explicit owners of live requests, with how many each has.
    fn owners(&self) -> Vec<(Text, u64)> {
        let mut owners: Vec<(Text, u64)> = Vec::new();
        for owner in self.requests.iter().filter_map(|request| request.owner()) {
            match owners.iter_mut().find(|(known, _)| known == owner) {
                Some((_, count)) => *count += 1,
                None => owners.push((owner.clone(), 1)),
            }
        }
        owners
    }

    fn stats(&self) -> Stats {
        let mut resources: Vec<&Resource> = Vec::new();
        for part in self.requests.iter().flat_map(|request| &request.parts) {
            if !resources.contains(&&part.resource) {
                resources.push(&part.resource);
            }
        }
        Stats {
            now: self.now,
            token: self.token,
            seq: self.seq,
            held: self.holders().count() as u64,
            waiting: self.waiters().count() as u64,
            resources: resources.len() as u64,
            owners: self.owners().len() as u64,
            ended: self.ended.len() as u64,
            tasks: self.tasks.all.len() as u64,
            task_bytes: self.task_bytes(),
            claims: self.tasks.claims.len() as u64,
        }
    }
}
