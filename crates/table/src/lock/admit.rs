//! What a request must be like before anything else is asked about it. Nothing here depends on who
//! holds what, except the counts of the bounds.

use std::collections::BTreeSet;

use crate::board::resources::Spot;
use crate::board::slab::NONE;
use crate::error::{Error, What};
use crate::{Acquire, Field, Mode, Part, RequestId, Resource, Table, rules};

impl Table {
    pub(crate) fn admit_id(&self, id: &RequestId) -> Result<(), Error> {
        match id.text_len() {
            0 => Err(Error::Empty(What::Id)),
            length => long(What::Id, length, self.settings.id_bytes),
        }
    }

    /// Everything about a new request that does not depend on other requests.
    pub(crate) fn admit_content(&self, ask: &Acquire) -> Result<(), Error> {
        let settings = &self.settings;
        let count = 1 + ask.also.len();
        if count as u64 > settings.resources {
            return Err(Error::TooMany(What::Resources, settings.resources));
        }
        self.admit_resource(&ask.part.resource)?;
        for part in &ask.also {
            self.admit_resource(&part.resource)?;
        }
        self.admit_party(&ask.party)?;
        long_ms(What::Wait, ask.wait_ms, settings.wait_ms)?;
        long_ms(What::Lease, ask.lease_ms, settings.lease_ms)?;
        let extra = &ask.extra;
        if !extra.is_none() {
            long_ms(What::MaxHold, extra.max_hold_ms(), settings.lease_ms)?;
            let most = settings.meta_bytes;
            long(What::Meta, extra.meta().map_or(0, str::len), most)?;
            long(What::Value, extra.value().map_or(0, <[u8]>::len), most)?;
            if extra.alias() == Some("") {
                return Err(Error::Empty(What::Alias));
            }
            long(What::Alias, extra.alias().map_or(0, str::len), most)?;
        }
        if !ask.also.is_empty() {
            admit_several(&ask.parts().collect::<Vec<_>>())?;
        }
        if ask.detect && !ask.party.explicit {
            return Err(Error::DetectNeedsOwner);
        }
        Ok(())
    }

    /// The alias and the bounds on how many requests there are, where those `before` it in the same
    /// command count as if they were live.
    pub(crate) fn admit_count(
        &self,
        ask: &Acquire,
        owner: u32,
        before: &[Acquire],
    ) -> Result<(), Error> {
        let taken = |alias| {
            self.board.aliases.contains_key(alias)
                || before.iter().any(|b| b.extra.alias() == Some(alias))
        };
        if ask.extra.alias().is_some_and(taken) {
            return Err(Error::AliasInUse);
        }
        let room = |what, count: usize, most: u64| match (count as u64) < most {
            true => Ok(()),
            false => Err(Error::TooMany(what, most)),
        };
        let settings = &self.settings;
        room(What::Requests, self.board.requests.len() + before.len(), settings.requests)?;
        if ask.party.explicit {
            let live = match owner {
                NONE => 0,
                _ => self.board.parties.owner(owner).requests as usize,
            };
            let count = live + before.iter().filter(|other| ask.same_owner(other)).count();
            room(What::RequestsOfOwner, count, settings.requests_of_owner)?;
        }
        if settings.requests_of_name == 0 {
            return Ok(());
        }
        ask.parts().try_for_each(|part| {
            let name = part.resource.name();
            let has_name = |b: &&Acquire| b.parts().any(|part| part.resource.name() == name);
            let count = self.requests_of_name(name) + before.iter().filter(has_name).count();
            room(What::RequestsOfName, count, settings.requests_of_name)
        })
    }

    /// Whether one more may wait on each of its resources; `spot` is that of its only one, if that is plain.
    pub(crate) fn admit_wait(&self, ask: &Acquire, spot: Option<Spot>) -> Result<(), Error> {
        let full = |part: &Part| {
            let resources = &self.board.resources;
            let at = match spot {
                Some(Spot::Taken(at)) => Some(at),
                _ => resources.find(part.resource.as_bytes()),
            };
            let crowd = at.map_or(NONE, |at| resources.get(at).crowd);
            let len = if crowd == NONE { 0 } else { self.board.crowds[crowd].len };
            u64::from(len) >= self.settings.waiters
        };
        if ask.parts().any(full) {
            return Err(Error::TooMany(What::Waiters, self.settings.waiters));
        }
        Ok(())
    }

    pub(crate) fn admit_party(&self, party: &crate::Party) -> Result<(), Error> {
        let most = self.settings.owner_bytes;
        if party.explicit && party.owner.is_empty() {
            return Err(Error::Empty(What::Owner));
        }
        long(What::Owner, party.owner.len(), most)?;
        long(What::Principal, party.principal.as_ref().map_or(0, |text| text.len()), most)
    }

    pub(crate) fn admit_resource(&self, resource: &Resource) -> Result<(), Error> {
        let settings = &self.settings;
        long(What::Name, resource.name_len(), settings.name_bytes)?;
        if resource.is_plain() {
            return Ok(());
        }
        resource.fields().try_for_each(|field| match field {
            Field::Text(text) | Field::Number(text) => {
                long(What::Field, text.len(), settings.field_bytes)
            }
            Field::Any | Field::Bool(_) => Ok(()),
        })
    }

    /// How many requests have a part on `name`, with any number of fields. Walks the name: the
    /// bound is meant for record stores, whose names are small.
    fn requests_of_name(&self, name: &str) -> usize {
        let board = &self.board;
        let mut requests = BTreeSet::new();
        for fields in 0..=Resource::FIELDS {
            board.resources.of_name_and_arity(name, fields, |at| {
                let node = board.resources.get(at);
                let crowd = if node.crowd == NONE { NONE } else { board.crowds[node.crowd].head };
                let parts = board.list(node.holders).chain(board.list(crowd));
                requests.extend(parts.map(|part| board.part(part).request));
            });
        }
        requests.len()
    }
}

/// Resources of one request: all optimistic or none, and no two that overlap.
fn admit_several(parts: &[&Part]) -> Result<(), Error> {
    let optimistic = parts.iter().filter(|part| part.mode == Mode::Optimistic).count();
    if optimistic != 0 && optimistic != parts.len() {
        return Err(Error::MixedOptimistic);
    }
    let pairs =
        parts.iter().enumerate().flat_map(|(at, a)| parts[..at].iter().map(move |b| (a, b)));
    for (a, b) in pairs {
        if rules::overlap(&a.resource, &b.resource) {
            return Err(Error::PartsOverlap);
        }
    }
    Ok(())
}

pub(crate) fn long(what: What, length: usize, most: u64) -> Result<(), Error> {
    long_ms(what, length as u64, most)
}

pub(crate) fn long_ms(what: What, length: u64, most: u64) -> Result<(), Error> {
    if length > most { Err(Error::TooLong(what, most)) } else { Ok(()) }
}
