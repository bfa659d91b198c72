//! Reading locks: listings in the order of arrival, and single ones.

use super::blockers::left;
use crate::{Entry, KeyHolder, LocksQuery, Resource, State, Table, Text};

impl Table {
    pub(crate) fn list(&self, now: u64, query: &LocksQuery) -> Vec<Entry> {
        let mut entries = Vec::new();
        let limit = if query.limit == 0 { usize::MAX } else { query.limit };
        let mut requests = 0;
        for at in self.board.after(query.cursor) {
            let request = &self.board.requests[at];
            let owner = &self.board.parties.party(request.party).owner;
            if (request.waiting() && !query.waiters)
                || query.owner.as_ref().is_some_and(|wanted| wanted != owner)
            {
                continue;
            }
            let before = entries.len();
            entries.extend(self.entries(now, at).filter(|entry| {
                query.name.as_ref().is_none_or(|name| **name == *entry.resource.name())
            }));
            requests += usize::from(entries.len() > before);
            if requests == limit {
                break;
            }
        }
        entries
    }

    /// One entry for each resource of a request.
    pub(crate) fn entries(&self, now: u64, at: u32) -> impl Iterator<Item = Entry> {
        let request = &self.board.requests[at];
        let party = self.board.parties.party(request.party);
        let more = request.more.as_deref();
        self.board.parts_of(at).map(move |part| {
            let part = self.board.part(part);
            Entry {
                seq: request.seq,
                token: request.token,
                id: request.id.clone(),
                resource: self.board.resources.get(part.resource).key.clone(),
                mode: part.mode,
                owner: party.owner.clone(),
                explicit: party.explicit,
                principal: party.principal.clone(),
                state: if request.waiting() { State::Waiting } else { State::Held },
                held_ms: now - request.since,
                lease_ms: left(request.deadline, now),
                arrived: request.since - u64::from(request.waited_ms),
                wait_ms: more.map_or(0, |more| more.wait_ms),
                lease_asked_ms: u64::from(request.lease_ms),
                meta: request.extra.meta().map(Into::into),
                alias: request.extra.alias().map(Into::into),
            }
        })
    }

    pub(crate) fn key(&self, now: u64, key: &Resource) -> Option<KeyHolder> {
        let at = self.key_holder(key)?;
        let request = &self.board.requests[at];
        Some(KeyHolder {
            token: request.token,
            lease_ms: left(request.deadline, now),
            value: self.value_of(at).map(Into::into),
        })
    }

    pub(crate) fn top_owners(&self, most: usize) -> Vec<(Text, u64)> {
        let owners = self.board.parties.owners();
        let mut top: Vec<(Text, u64)> =
            owners.map(|owner| (owner.name.clone(), u64::from(owner.requests))).collect();
        top.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        top.truncate(most);
        top
    }
}
