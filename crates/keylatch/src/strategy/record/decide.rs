//! From what was read to what is to be written. No I/O: the table decides, and this translates.

use std::collections::{BTreeMap, BTreeSet};

use keylatch_table::{
    Applied, Cause, Command, Counters, Event, Reply, RequestId, Settings, Standing, Table,
};

use super::format::{self, FRESH, Holders, Note};
use super::store::{Append, Change, Expect, Name, NameChange, View, Write};

/// How long a waiter lives without a sign of life. It gives three, and a grant that it does not
/// confirm lasts as long.
pub(super) const LIVE_MS: u64 = 3_000;
/// Records are kept a little longer than they count.
const MARGIN_MS: u64 = 60_000;
/// How long a note that a lock was lost is kept.
const NOTE_MS: u64 = 10_000;

/// What was read, understood.
pub(super) struct Scene {
    view: View,
    holders: BTreeMap<Name, Holders>,
    standings: BTreeMap<RequestId, Standing>,
}

/// What is to be done, and what is to be answered once it is.
pub(super) struct Decision {
    pub(super) reply: Reply,
    /// Nothing, if nothing is to be written.
    pub(super) change: Option<Change>,
}

/// Records that make no sense.
#[derive(Debug)]
pub(super) struct Nonsense(pub(super) String);

pub(super) fn names(standing: &Standing) -> impl Iterator<Item = Name> {
    standing.parts.iter().map(|part| part.resource.name().into())
}

impl Scene {
    pub(super) fn new(view: View) -> Result<Scene, Nonsense> {
        let mut holders = BTreeMap::new();
        let mut standings = BTreeMap::new();
        for (name, record) in &view.names {
            let nonsense =
                || Nonsense(format!("the record of '{name}' was not written by this version"));
            let here = match &record.head {
                Some(head) => format::decode(head).ok_or_else(nonsense)?,
                None => Holders::default(),
            };
            for waiter in &record.queue {
                let standing = format::decode_waiter(waiter, LIVE_MS).ok_or_else(nonsense)?;
                standings.insert(standing.id.clone(), standing);
            }
            for standing in &here.standings {
                standings.insert(standing.id.clone(), standing.clone());
            }
            holders.insert(name.clone(), here);
        }
        Ok(Scene { view, holders, standings })
    }

    /// Names that requests here are on, and that were not read.
    pub(super) fn missing(&self) -> Vec<Name> {
        let all = self.standings.values().flat_map(names);
        let missing = all.filter(|name| !self.view.names.contains_key(name));
        missing.collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub(super) fn all_names(&self) -> impl Iterator<Item = &Name> {
        self.view.names.keys()
    }

    pub(super) fn holds(&self, id: &RequestId) -> Option<&Standing> {
        self.standings.get(id).filter(|standing| standing.token > 0)
    }

    pub(super) fn waits(&self, id: &RequestId) -> bool {
        self.standings.get(id).is_some_and(|standing| standing.token == 0)
    }

    pub(super) fn holder_of(&self, token: u64) -> Option<&Standing> {
        self.standings.values().find(|standing| standing.token == token)
    }

    pub(super) fn note(&self, id: &RequestId) -> Option<&Note> {
        self.holders.values().flat_map(|holders| &holders.notes).find(|note| note.id == *id)
    }

    /// How long until something here ends by itself.
    pub(super) fn next_end_ms(&self) -> Option<u64> {
        let ends = self.standings.values().filter_map(|standing| standing.deadline);
        ends.min().map(|end| end.saturating_sub(self.view.now))
    }

    pub(super) fn table(&self) -> Result<Table, Nonsense> {
        let mut standings: Vec<Standing> = self.standings.values().cloned().collect();
        standings.sort_by_key(|standing| standing.seq);
        let counters = Counters { now: self.view.now, token: FRESH, seq: FRESH };
        Table::from_standings(Settings::default(), counters, 0, standings)
            .map_err(|error| Nonsense(format!("records that contradict each other: {error}")))
    }

    pub(super) fn decide(&self, command: Command) -> Result<Decision, Nonsense> {
        let mut table = self.table()?;
        let Applied { reply, events } = table.apply(self.view.now, command);
        let after: BTreeMap<RequestId, Standing> =
            table.standings().map(|standing| (standing.id.clone(), standing)).collect();
        let change = self.change(&after, &events);
        Ok(Decision { reply, change })
    }

    fn change(&self, after: &BTreeMap<RequestId, Standing>, events: &[Event]) -> Option<Change> {
        let mut change = Change::default();
        for (name, before) in &self.holders {
            if let Some(one) = self.name_change(name, before, after, events) {
                change.names.insert(name.clone(), one);
            }
        }
        change.numbers = after.values().filter(|standing| standing.token > FRESH).count() as u64;
        let new = |standing: &&Standing| {
            standing.token == 0 && !self.standings.contains_key(&standing.id)
        };
        if let Some(standing) = after.values().find(new) {
            let to: Vec<Name> = names(standing).collect::<BTreeSet<_>>().into_iter().collect();
            for name in &to {
                // Contenders do not get in each other's way: any head will do, but one there must be.
                change.names.entry(name.clone()).or_insert_with(|| self.nothing(name));
            }
            change.append = Some(Append { to, bytes: standing.encode(), live_ms: LIVE_MS });
        }
        (!change.names.is_empty()).then_some(change)
    }

    /// No change, but that there is a head for those who queue (1).
    fn nothing(&self, name: &Name) -> NameChange {
        let (expect, head) = if self.view.names[name].head.is_some() {
            (Expect::There, Write::Keep)
        } else {
            let bytes = format::encode(&Holders::default(), self.view.now);
            (Expect::Absent, Write::Put { bytes, keep_ms: Some(LIVE_MS + MARGIN_MS) })
        };
        NameChange { expect, last_seq: None, head, remove: Vec::new() }
    }

    fn name_change(
        &self,
        name: &Name,
        before: &Holders,
        after: &BTreeMap<RequestId, Standing>,
        events: &[Event],
    ) -> Option<NameChange> {
        let record = &self.view.names[name];
        let is_here = |standing: &&Standing| {
            standing.token > 0 && names(standing).any(|other| other == *name)
        };
        let standings: Vec<Standing> = after.values().filter(is_here).cloned().collect();
        let waits_still =
            |standing: &Standing| after.get(&standing.id).is_some_and(|after| after.token == 0);
        let gone = |seq: u64| {
            !self.standings.values().any(|standing| standing.seq == seq && waits_still(standing))
        };
        let remove: Vec<u64> =
            record.queue.iter().map(|waiter| waiter.seq).filter(|seq| gone(*seq)).collect();
        let mut same: Vec<&Standing> = before.standings.iter().collect();
        same.sort_by_key(|standing| &standing.id);
        let is_same = same.into_iter().eq(&standings);
        if is_same && remove.is_empty() {
            return None;
        }
        let mut notes: Vec<Note> =
            before.notes.iter().filter(|note| note.until > self.view.now).cloned().collect();
        notes.extend(events.iter().filter_map(|event| self.note_of(event, name)));
        let queue_left = record.queue.len() > remove.len();
        let holders = Holders { standings, notes };
        let empty = holders.standings.is_empty() && holders.notes.is_empty() && !queue_left;
        // Somebody who did not stand in the queue is granted: nobody may have come in between (2).
        let passes = holders.standings.iter().any(|standing| standing.seq > FRESH);
        let last_seq = record.queue.last().map_or(0, |waiter| waiter.seq);
        Some(NameChange {
            expect: record
                .head
                .as_ref()
                .map_or(Expect::Absent, |head| Expect::Version(head.version)),
            last_seq: (empty || passes).then_some(last_seq),
            head: if empty {
                Write::Delete
            } else {
                let bytes = format::encode(&holders, self.view.now);
                Write::Put { bytes, keep_ms: self.keep_ms(&holders) }
            },
            remove,
        })
    }

    /// Until nothing in it counts any more.
    fn keep_ms(&self, holders: &Holders) -> Option<u64> {
        let mut last = self.view.now + NOTE_MS;
        for standing in &holders.standings {
            last = last.max(standing.deadline?);
        }
        Some(last - self.view.now + MARGIN_MS)
    }

    fn note_of(&self, event: &Event, name: &Name) -> Option<Note> {
        let Event::Lost { id, cause, reason, about, .. } = event else { return None };
        let here = about.parts.iter().any(|part| part.resource.name() == &**name);
        let told = matches!(cause, Cause::Superseded | Cause::Revoked);
        (here && told).then(|| Note {
            id: id.clone(),
            cause: *cause,
            detail: reason.as_deref().map(Into::into),
            until: self.view.now + NOTE_MS,
        })
    }
}
