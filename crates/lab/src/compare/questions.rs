//! Everything that can be asked about a state: all filters, all pages, what exists and what does not.

use keylatch_table::{LocksQuery, Query, RequestId, Resource, TasksQuery, Text, task::TaskState};

use crate::model::Model;

const STATES: [Option<TaskState>; 5] = [
    None,
    Some(TaskState::Free),
    Some(TaskState::Claimed),
    Some(TaskState::Done),
    Some(TaskState::Failed),
];

/// The questions, in a fixed order.
pub(super) fn about(model: &Model) -> Vec<Query> {
    let mut queries = vec![Query::Stats, Query::Pools];
    queries.extend([1, 3, 100].map(Query::TopOwners));
    queries.extend(locks(model));
    queries.extend(requests(model));
    queries.extend(tasks(model));
    queries
}

fn distinct(texts: impl Iterator<Item = Text>) -> Vec<Text> {
    let mut all = texts.collect::<Vec<_>>();
    all.sort();
    all.dedup();
    all
}

fn locks(model: &Model) -> Vec<Query> {
    let parts = model.requests.iter().flat_map(|request| &request.parts);
    let names = distinct(parts.map(|part| part.resource.name().into()));
    let owners = distinct(model.requests.iter().map(|request| request.asked.party.owner.clone()));
    let optional = |texts: Vec<Text>| {
        let mut all = vec![None, Some("nobody".into())];
        all.extend(texts.into_iter().map(Some));
        all
    };
    let mut queries = Vec::new();
    for name in optional(names) {
        for owner in optional(owners.clone()) {
            for waiters in [false, true] {
                let (name, owner) = (name.clone(), owner.clone());
                queries.push(LocksQuery { name, owner, waiters, limit: 0, cursor: 0 });
            }
        }
    }
    let pages = queries.iter().take(12).cloned().collect::<Vec<_>>();
    for request in model.requests.iter().step_by(3) {
        for (at, page) in pages.iter().enumerate() {
            queries.push(LocksQuery { limit: 1 + at % 4, cursor: request.seq, ..page.clone() });
        }
    }
    queries.extend(pages.into_iter().map(|page| LocksQuery { limit: 2, ..page }));
    queries.into_iter().map(Query::Locks).collect()
}

fn requests(model: &Model) -> Vec<Query> {
    let parts = model.requests.iter().flat_map(|request| &request.parts);
    let mut keys = distinct(parts.map(|part| part.resource.name().into()));
    keys.push("nobody".into());
    let live = model.requests.iter().map(|request| request.asked.id.clone());
    let ended = model.ended.iter().take(3).map(|ended| ended.id.clone());
    live.chain(ended)
        .chain([RequestId::new("nobody")])
        .map(Query::Request)
        .chain(keys.iter().map(|key| Query::Key(Resource::plain(key).expect("a name in use"))))
        .collect()
}

fn tasks(model: &Model) -> Vec<Query> {
    let all = &model.tasks.all;
    let mut queries = Vec::new();
    let mut pools = distinct(all.iter().map(|task| task.pool.clone()));
    pools.push("nobody".into());
    for pool in pools {
        let cursors = all.iter().filter(|task| task.pool == pool).map(|task| task.number);
        let cursors = std::iter::once(0).chain(cursors).collect::<Vec<_>>();
        for (at, state) in STATES.iter().enumerate() {
            for prefix in [None, Some("k3".into()), Some("".into())] {
                queries.extend(cursors.iter().map(|cursor| {
                    let (pool, prefix) = (pool.clone(), prefix.clone());
                    Query::Tasks(TasksQuery {
                        pool,
                        state: *state,
                        prefix,
                        limit: at % 3,
                        cursor: *cursor,
                    })
                }));
            }
        }
        queries.push(Query::Task(pool.clone(), "nobody".into()));
    }
    queries.extend(all.iter().map(|task| Query::Task(task.pool.clone(), task.key.clone())));
    queries
}
