//! What a principal may see of what it did not do itself: names on which it has some right, its own
//! requests, and ids only of those and of what it administers.

use keylatch_table::{Answer, Entry, Event, LocksQuery, Query, RequestId, Target, TaskEvent, Text};

use super::admit::Lookup;
use super::principal::{Principal, Right};

/// Whether an entry may be shown; if so, its id is emptied unless that may be shown too.
#[must_use]
pub fn visible(principal: &Principal, entry: &mut Entry) -> bool {
    let own = is_own(principal, entry.principal.as_ref());
    let name = entry.resource.name();
    if !own && !principal.may_see(name) {
        return false;
    }
    if !own && !principal.may(Right::Admin, name) {
        entry.id = RequestId::new("");
    }
    true
}

/// The requests that `principal` may see, as many as it asked for: those that it may not see do not
/// count, so a page that is not full is the last one. `find` asks the table.
pub fn visible_locks(
    principal: &Principal,
    query: &LocksQuery,
    find: impl Fn(&LocksQuery) -> Vec<Entry>,
) -> Vec<Entry> {
    if query.limit == 0 || principal.is_admin() {
        return seen(principal, find(query)).collect();
    }
    let wanted = query.limit;
    // Not one at a time for somebody who may see one in a million.
    let mut query = LocksQuery { limit: wanted.max(PAGE), ..query.clone() };
    let (mut shown, mut requests) = (Vec::<Entry>::new(), 0);
    loop {
        let page = find(&query);
        let Some(last) = page.last() else { return shown };
        query.cursor = last.seq;
        for entry in seen(principal, page) {
            if shown.last().is_none_or(|before| before.seq != entry.seq) {
                if requests == wanted {
                    return shown;
                }
                requests += 1;
            }
            shown.push(entry);
        }
    }
}

/// Requests looked at together.
const PAGE: usize = 256;

fn seen(principal: &Principal, entries: Vec<Entry>) -> impl Iterator<Item = Entry> {
    entries.into_iter().filter_map(|mut entry| visible(principal, &mut entry).then_some(entry))
}

/// Leaves out of an answer what may not be seen. Of [`Query::Locks`] with a limit, use
/// [`visible_locks`]; [`super::admit_query`] comes before.
pub fn visible_answer(principal: &Principal, query: &Query, answer: &mut Answer) {
    match (query, answer) {
        (Query::Locks(_), Answer::Entries(entries)) => {
            entries.retain_mut(|entry| visible(principal, entry));
        }
        // Somebody else's id is not known.
        (Query::Request(id), Answer::Entries(entries)) => {
            entries.retain_mut(|entry| visible(principal, entry) && entry.id == *id);
        }
        // Whoever knows the value can be taken for the holder, so observing is not enough.
        (Query::Key(key), Answer::Key(Some(holder)))
            if !principal.may(Right::Exclusive, key.name()) =>
        {
            holder.value = None;
        }
        (Query::Pools, Answer::Pools(pools)) => {
            pools.retain(|counts| principal.may(Right::Observe, &counts.pool));
        }
        _ => {}
    }
}

/// Whether an event may be shown to `principal` as one who listens to everything; if so, what it
/// may not see of it is taken out. Those whom it concerns are told otherwise.
#[must_use]
pub fn visible_event(principal: &Principal, event: &mut Event, lookup: &impl Lookup) -> bool {
    if principal.is_admin() {
        return true;
    }
    match event {
        Event::Granted { id, .. } => {
            // It does not say what was granted; the request that has just been granted does.
            let found = lookup.request(&Target::Id(id.clone()));
            let own = |entry: &Entry| is_own(principal, entry.principal.as_ref());
            let may = |right, entry: &Entry| principal.may(right, entry.resource.name());
            if !found.iter().all(|entry| own(entry) || may(Right::Admin, entry)) {
                *id = RequestId::new("");
            }
            found.iter().any(|entry| own(entry) || principal.may_see(entry.resource.name()))
        }
        Event::TimedOut { id, about, .. }
        | Event::Deadlocked { id, about, .. }
        | Event::Withdrawn { id, about }
        | Event::Lost { id, about, .. } => {
            if is_own(principal, about.principal.as_ref()) {
                return true;
            }
            let administers = |name: &str| principal.may(Right::Admin, name);
            if !about.parts.iter().all(|part| administers(part.resource.name())) {
                *id = RequestId::new("");
            }
            about.parts.retain(|part| principal.may_see(part.resource.name()));
            !about.parts.is_empty()
        }
        Event::Task(event) => visible_task_event(principal, event),
    }
}

fn visible_task_event(principal: &Principal, event: &mut TaskEvent) -> bool {
    let (TaskEvent::Claimed(id, pool, _)
    | TaskEvent::TimedOut(id, pool)
    | TaskEvent::Refused(id, pool, _)
    | TaskEvent::Withdrawn(id, pool)
    | TaskEvent::Lapsed { id, pool, .. }) = event;
    if !principal.may(Right::Observe, pool) {
        return false;
    }
    if !principal.may(Right::Admin, pool) {
        *id = RequestId::new("");
    }
    true
}

fn is_own(principal: &Principal, of: Option<&Text>) -> bool {
    of.is_some_and(|name| *name == principal.name)
}
