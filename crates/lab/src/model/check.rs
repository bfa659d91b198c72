//! What is refused before anything is looked at: lengths, counts, contradictions, bounds. Lengths
//! are collected, because the rules do not say which of several wrong ones is named.

use keylatch_table::{Acquire, Error, Field, Mode, Party, RequestId, Settings, What};

use super::{Model, conflict::overlap, request::Request};

/// The bounds of the settings themselves.
pub(crate) fn settings(settings: &Settings) -> Result<(), Error> {
    let long = u64::from(u32::MAX) - 1;
    let bounds = [
        (settings.id_bytes, 255, "id_bytes is at most 255"),
        (settings.name_bytes, 65_535, "name_bytes is at most 65,535"),
        (settings.field_bytes, 65_535, "field_bytes is at most 65,535"),
        (settings.resources, 255, "resources is at most 255"),
        (settings.wait_ms, long, "wait_ms is at most 4,294,967,294"),
        (settings.lease_ms, long, "lease_ms is at most 4,294,967,294"),
        (settings.requests, 1 << 30, "requests is at most 1,073,741,824"),
        (settings.ended, 1 << 30, "ended is at most 1,073,741,824"),
    ];
    match bounds.into_iter().find(|(value, most, _)| value > most) {
        Some((_, _, why)) => Err(Error::BadSetting(why)),
        None => Ok(()),
    }
}

/// Collects what is wrong with the lengths of one command.
#[derive(Default)]
pub(crate) struct Lengths(pub(crate) Vec<Error>);

impl Lengths {
    pub(crate) fn most(&mut self, what: What, length: usize, most: u64) {
        self.most_ms(what, length as u64, most);
    }

    pub(crate) fn most_ms(&mut self, what: What, length: u64, most: u64) {
        if length > most {
            self.0.push(Error::TooLong(what, most));
        }
    }

    pub(crate) fn some(&mut self, what: What, length: usize) {
        if length == 0 {
            self.0.push(Error::Empty(what));
        }
    }

    pub(crate) fn party(&mut self, party: &Party, settings: &Settings) {
        self.most(What::Owner, party.owner.len(), settings.owner_bytes);
        if party.explicit {
            self.some(What::Owner, party.owner.len());
        }
        let principal = party.principal.as_ref().map_or(0, |principal| principal.len());
        self.most(What::Principal, principal, settings.owner_bytes);
    }
}

impl Model {
    pub(crate) fn check_id(&self, id: &RequestId) -> Result<(), Error> {
        if id.text_len() == 0 {
            return Err(Error::Empty(What::Id));
        }
        if id.text_len() as u64 > self.settings.id_bytes {
            return Err(Error::TooLong(What::Id, self.settings.id_bytes));
        }
        Ok(())
    }

    /// The first of `lengths`, noting that the others would do as well.
    pub(crate) fn refuse_lengths(&mut self, lengths: Lengths) -> Result<(), Error> {
        self.as_right = lengths.0;
        self.as_right.first().map_or(Ok(()), |error| Err(*error))
    }

    pub(crate) fn check_lengths(&mut self, asked: &Acquire) -> Result<(), Error> {
        let bounds = &self.settings;
        let mut lengths = Lengths::default();
        if asked.parts().count() as u64 > bounds.resources {
            lengths.0.push(Error::TooMany(What::Resources, bounds.resources));
        }
        for part in asked.parts() {
            lengths.most(What::Name, part.resource.name().len(), bounds.name_bytes);
            for field in part.resource.fields() {
                if let Field::Text(text) | Field::Number(text) = field {
                    lengths.most(What::Field, text.len(), bounds.field_bytes);
                }
            }
        }
        lengths.party(&asked.party, bounds);
        lengths.most_ms(What::Wait, asked.wait_ms, bounds.wait_ms);
        lengths.most_ms(What::Lease, asked.lease_ms, bounds.lease_ms);
        let extra = &asked.extra;
        lengths.most_ms(What::MaxHold, extra.max_hold_ms(), bounds.lease_ms);
        lengths.most(What::Meta, extra.meta().map_or(0, str::len), bounds.meta_bytes);
        lengths.most(What::Value, extra.value().map_or(0, <[u8]>::len), bounds.meta_bytes);
        if let Some(alias) = extra.alias() {
            lengths.most(What::Alias, alias.len(), bounds.meta_bytes);
            lengths.some(What::Alias, alias.len());
        }
        self.refuse_lengths(lengths)
    }

    /// Contradictions within the request, then the alias, then the bounds on requests. `before` are
    /// requests of the same command that would be live by then.
    pub(crate) fn check_content(&self, asked: &Acquire, before: &[Request]) -> Result<(), Error> {
        let optimistic = asked.parts().filter(|part| part.mode == Mode::Optimistic).count();
        if optimistic > 0 && optimistic < asked.parts().count() {
            return Err(Error::MixedOptimistic);
        }
        let parts = asked.parts().collect::<Vec<_>>();
        let overlaps = parts.iter().enumerate().any(|(at, part)| {
            parts[..at].iter().any(|earlier| overlap(&earlier.resource, &part.resource))
        });
        if overlaps {
            return Err(Error::PartsOverlap);
        }
        if asked.detect && !asked.party.explicit {
            return Err(Error::DetectNeedsOwner);
        }
        let draft = Request::draft(asked, self.now);
        let live = || self.requests.iter().chain(before);
        if draft.alias().is_some() && live().any(|request| request.alias() == draft.alias()) {
            return Err(Error::AliasInUse);
        }
        self.check_counts(&draft, before)
    }

    fn check_counts(&self, draft: &Request, before: &[Request]) -> Result<(), Error> {
        let live = || self.requests.iter().chain(before);
        let room = |what: What, count: usize, most: u64| {
            if (count as u64) < most { Ok(()) } else { Err(Error::TooMany(what, most)) }
        };
        room(What::Requests, live().count(), self.settings.requests)?;
        if draft.owner().is_some() {
            let of_owner = live().filter(|request| request.owner() == draft.owner()).count();
            room(What::RequestsOfOwner, of_owner, self.settings.requests_of_owner)?;
        }
        if self.settings.requests_of_name > 0 {
            for part in &draft.parts {
                let name = part.resource.name();
                let of_name = live()
                    .filter(|other| other.parts.iter().any(|part| part.resource.name() == name))
                    .count();
                room(What::RequestsOfName, of_name, self.settings.requests_of_name)?;
            }
        }
        Ok(())
    }

    /// The bound on waiters, for a request that would have to queue.
    pub(crate) fn check_queue(&self, draft: &Request) -> Result<(), Error> {
        for part in &draft.parts {
            let waiting = self
                .waiters()
                .filter(|waiter| waiter.parts.iter().any(|other| other.resource == part.resource))
                .count();
            if waiting as u64 >= self.settings.waiters {
                return Err(Error::TooMany(What::Waiters, self.settings.waiters));
            }
        }
        Ok(())
    }
}
