//! From what was read to what is to be written. No I/O: the table decides, and this translates.

use std::collections::{BTreeMap, BTreeSet};

use keylatch_table::{
    Acquire, Applied, Cause, Command, Counters, Event, Extras, Grant, Reply, RequestId, Settings,
    Standing, StandingPart, Table, Target,
};

use super::format::{self, FRESH, Holders, Note};
use super::relay::{NEXT, Pass, Plan};
use super::store::{Append, Change, Expect, Name, NameChange, Put, Record, Stand, View, Write};
use crate::guard::Lost;

/// How long a waiter lives without a sign of life. It gives three, and a grant that it does not
/// confirm lasts as long.
pub(super) const LIVE_MS: u64 = 3_000;
/// How many may wait for one key: every decision reads all of them.
const WAITERS: u64 = 1_000;
/// Records are kept a little longer than they count.
const MARGIN_MS: u64 = 60_000;
/// How long a note that a lock was lost is kept.
const NOTE_MS: u64 = 10_000;

/// Whether it stands where it stood.
fn waits_still(stand: &Stand, after: &BTreeMap<RequestId, Standing>) -> bool {
    after.get(&stand.id).is_some_and(|after| after.token == 0 && after.seq == stand.seq)
}

/// The request that a command names.
fn about(command: &Command) -> Option<&RequestId> {
    match command {
        Command::Acquire(ask) => Some(&ask.id),
        Command::Release(Target::Id(id))
        | Command::Renew(Target::Id(id), _)
        | Command::Promote(Target::Id(id)) => Some(id),
        _ => None,
    }
}

/// Why one leaves its queues; those that come first leave first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Leaves {
    /// A command is about it, or it was ended by one.
    Must,
    Granted,
    /// It is dead, or holds already.
    Idle,
}

/// What was read, understood.
pub(super) struct Scene {
    pub(super) view: View,
    holders: BTreeMap<Name, Holders>,
    /// Who stands where.
    queues: BTreeMap<Name, Vec<Stand>>,
    standings: BTreeMap<RequestId, Standing>,
    /// Those of this process who have passed something on, or were passed it.
    passed: BTreeSet<RequestId>,
}

/// What is to be done, and what is to be answered once it is.
pub(super) struct Decision {
    /// One for each command.
    pub(super) replies: Vec<Reply>,
    /// Waiters of this process that hold by this.
    pub(super) granted: Vec<(RequestId, Grant)>,
    /// Holders that do not hold any more.
    pub(super) lost: Vec<(RequestId, Lost)>,
    /// Some replies say how long a lease lasts that was not set by this: that must have been read.
    pub(super) measures: bool,
    /// Some whom the rules free, or who are dead, wait for another change: this one was full.
    pub(super) more: bool,
    /// Nothing, if nothing is to be written.
    pub(super) change: Option<Change>,
    /// How it goes on from there; tokens are counted from the version, or are the version and more.
    pub(super) plan: Option<Plan>,
}

/// Records that make no sense.
#[derive(Clone, Debug)]
pub(super) struct Nonsense(pub(super) String);

pub(super) fn names(standing: &Standing) -> impl Iterator<Item = Name> {
    standing.parts.iter().map(|part| part.resource.name().into())
}

fn is_on(standing: &Standing, name: &str) -> bool {
    standing.parts.iter().any(|part| part.resource.name() == name)
}

/// A head with these holders, where those held before.
pub(super) fn put(holders: Holders, before: &[Standing], now: u64) -> Put {
    let keep_ms = keep_ms(&holders, now);
    let (bytes, holders) = format::encode(holders, before, now);
    Put { bytes, keep_ms, holders }
}

/// Until nothing in it counts any more.
fn keep_ms(holders: &Holders, now: u64) -> Option<u64> {
    let mut last = now + NOTE_MS;
    for standing in &holders.standings {
        last = last.max(standing.deadline?);
    }
    Some(last - now + MARGIN_MS)
}

/// Of the tables that decide.
pub(super) fn settings() -> Settings {
    Settings { waiters: WAITERS, ..Settings::default() }
}

impl Scene {
    pub(super) fn new(view: View) -> Result<Scene, Nonsense> {
        let mut scene = Scene {
            holders: BTreeMap::new(),
            queues: BTreeMap::new(),
            standings: BTreeMap::new(),
            passed: BTreeSet::new(),
            view,
        };
        for (name, record) in &scene.view.names {
            let nonsense =
                || Nonsense(format!("the record of '{name}' was not written by this version"));
            let here = match &record.head {
                Some(head) => format::decode(head, scene.view.now).ok_or_else(nonsense)?,
                None => Holders::default(),
            };
            let mut queue = Vec::with_capacity(record.queue.len());
            for waiter in &record.queue {
                let standing = format::decode_waiter(waiter, LIVE_MS).ok_or_else(nonsense)?;
                queue.push(Stand { id: standing.id.clone(), seq: waiter.seq });
                scene.standings.entry(standing.id.clone()).or_insert(standing);
            }
            // A waiter that holds stands in the queue by an append that came late.
            for standing in &here.standings {
                scene.standings.insert(standing.id.clone(), standing.clone());
            }
            scene.queues.insert(name.clone(), queue);
            scene.holders.insert(name.clone(), here);
        }
        // So does one that another name says holds.
        for standing in scene.holders.values().flat_map(|holders| &holders.standings) {
            scene.standings.insert(standing.id.clone(), standing.clone());
        }
        Ok(scene)
    }

    /// As if there were nothing of these names.
    pub(super) fn absent(names: &[Name]) -> Scene {
        let nothing = |name: &Name| (name.clone(), Record::default());
        Scene {
            view: View { now: 0, names: names.iter().map(nothing).collect() },
            holders: names.iter().map(|name| (name.clone(), Holders::default())).collect(),
            queues: names.iter().map(|name| (name.clone(), Vec::new())).collect(),
            standings: BTreeMap::new(),
            passed: BTreeSet::new(),
        }
    }

    /// What was passed on since, if it was not written. Whoever gave it up stands nowhere any more, and
    /// whoever has it holds it under the token it was told, from this write on.
    pub(super) fn pass(&mut self, pass: &Pass) {
        let Pass { from, from_token, ask, seq, token } = pass;
        if self.standings.get(from).is_none_or(|standing| standing.token != *from_token) {
            return;
        }
        self.standings.remove(from);
        let now = self.view.now;
        let waited =
            self.standings.get(&ask.id).map_or(0, |standing| now - standing.since.min(now));
        let standing = Standing {
            id: ask.id.clone(),
            seq: *seq,
            token: *token,
            since: now,
            deadline: (ask.lease_ms > 0).then(|| now + ask.lease_ms),
            waited_ms: waited,
            lease_ms: ask.lease_ms,
            party: ask.party.clone(),
            detect: false,
            detached: false,
            parts: vec![StandingPart {
                resource: ask.part.resource.clone(),
                mode: ask.part.mode,
                asked: ask.part.mode,
            }],
            extra: Extras::default(),
            wait_ms: 0,
            wait: None,
        };
        self.standings.insert(ask.id.clone(), standing);
        self.passed.extend([from.clone(), ask.id.clone()]);
    }

    /// Names that requests here are on, and that were not read.
    pub(super) fn missing(&self) -> Vec<Name> {
        let missing = self.standings.values().flat_map(|standing| &standing.parts);
        let missing = missing.map(|part| part.resource.name());
        let missing = missing.filter(|name| !self.view.names.contains_key(*name));
        missing.collect::<BTreeSet<_>>().into_iter().map(Into::into).collect()
    }

    pub(super) fn all_names(&self) -> impl Iterator<Item = &Name> {
        self.view.names.keys()
    }

    /// Whether a request here is on several names.
    pub(super) fn spans(&self) -> bool {
        let spans = |standing: &Standing| {
            let mut names = standing.parts.iter().map(|part| part.resource.name());
            let first = names.next();
            names.any(|name| Some(name) != first)
        };
        self.standings.values().any(spans)
    }

    pub(super) fn holds(&self, id: &RequestId) -> Option<&Standing> {
        self.standings.get(id).filter(|standing| standing.token > 0)
    }

    /// The seq of one that waits.
    pub(super) fn waits(&self, id: &RequestId) -> Option<u64> {
        let waits = |standing: &&Standing| standing.token == 0 && !self.is_dead(standing);
        self.standings.get(id).filter(waits).map(|standing| standing.seq)
    }

    pub(super) fn holder_of(&self, token: u64) -> Option<&Standing> {
        self.standings.values().find(|standing| standing.token == token)
    }

    pub(super) fn note(&self, id: &RequestId) -> Option<&Note> {
        self.holders.values().flat_map(|holders| &holders.notes).find(|note| note.id == *id)
    }

    /// How long until something on this name ends by itself. Nothing, if the store ends it.
    pub(super) fn next_end_ms(&self, name: &str) -> Option<u64> {
        let told = |record: &Record| record.head.as_ref().is_some_and(|head| head.alive.is_some());
        if self.view.names.get(name).is_some_and(told) {
            return None;
        }
        let here = self.standings.values().filter(|standing| is_on(standing, name));
        let end = here.filter_map(|standing| standing.deadline).min();
        end.map(|end| end.saturating_sub(self.view.now))
    }

    /// How many stand before the first of these on this name.
    pub(super) fn position(&self, name: &str, is_ours: impl Fn(&RequestId) -> bool) -> usize {
        let queue = self.queues.get(name);
        queue.and_then(|queue| queue.iter().position(|stand| is_ours(&stand.id))).unwrap_or(0)
    }

    /// Whether it stands in a queue and is dead.
    pub(super) fn has_lapsed(&self, id: &RequestId) -> bool {
        self.standings.get(id).is_some_and(|standing| self.is_dead(standing))
    }

    fn is_dead(&self, standing: &Standing) -> bool {
        standing.token == 0 && standing.deadline.is_some_and(|end| end <= self.view.now)
    }

    /// Without the dead, who have no say any more.
    pub(super) fn table(&self) -> Result<Table, Nonsense> {
        let alive = self.standings.values().filter(|standing| !self.is_dead(standing));
        self.seated(alive.cloned().collect())
    }

    /// As it is shown. Whoever's lease is over holds nothing, though its record stands until somebody writes the name
    /// or sweeps; whoever waits has done so since it came, also where no clock can be read.
    pub(super) fn shown(&self) -> Result<Table, Nonsense> {
        let now = self.view.now;
        let over = |standing: &Standing| standing.deadline.is_some_and(|end| end <= now);
        let here = self.standings.values().filter(|standing| !over(standing));
        let mut here: BTreeMap<&RequestId, Standing> =
            here.map(|standing| (&standing.id, standing.clone())).collect();
        for (name, record) in &self.view.names {
            for (waiter, stand) in record.queue.iter().zip(&self.queues[name]) {
                if let (Some(came), Some(waits)) = (waiter.came, here.get_mut(&stand.id))
                    && waits.token == 0
                {
                    waits.since = came.min(now);
                }
            }
        }
        self.seated(here.into_values().collect())
    }

    fn seated(&self, mut standings: Vec<Standing>) -> Result<Table, Nonsense> {
        standings.sort_by_key(|standing| standing.seq);
        let counters = Counters { now: self.view.now, token: FRESH, seq: FRESH };
        Table::from_standings(settings(), counters, 0, standings)
            .map_err(|error| Nonsense(format!("records that contradict each other: {error}")))
    }

    /// Applies these commands in turn. `ours` is what a waiter of this process asked for, which then
    /// need not confirm what it is granted here. At most so many leave their queues, but for those whom
    /// the commands are about.
    pub(super) fn decide(
        &self,
        commands: &[Command],
        ours: impl Fn(&RequestId) -> Option<Acquire>,
        most: usize,
    ) -> Result<Decision, Nonsense> {
        let mut table = self.table()?;
        let now = self.view.now;
        let mut events = Vec::new();
        let mut replies: Vec<Reply> = commands
            .iter()
            .map(|command| {
                let applied = table.apply(now, command.clone());
                events.extend(applied.events);
                applied.reply
            })
            .collect();
        let asked = |id: &RequestId| {
            commands
                .iter()
                .position(|command| matches!(command, Command::Acquire(ask) if ask.id == *id))
        };
        let mut granted = Vec::new();
        for at in 0..events.len() {
            let Event::Granted { id, .. } = &events[at] else { continue };
            let by_command = asked(id);
            let ask = match by_command.map(|at| &commands[at]) {
                Some(Command::Acquire(ask)) => Some(ask.clone()),
                _ => ours(id),
            };
            let (Some(ask), id) = (ask, id.clone()) else { continue };
            let Applied { reply, events: more } = table.apply(now, Command::Acquire(ask));
            events.extend(more);
            let Reply::Granted(grant) = &reply else { continue };
            granted.push((id, grant.clone()));
            if let Some(at) = by_command.filter(|at| matches!(replies[*at], Reply::Waiting(_))) {
                replies[at] = reply;
            }
        }
        let mut after: BTreeMap<RequestId, Standing> =
            table.standings().map(|standing| (standing.id.clone(), standing)).collect();
        let stay = self.stay(&mut after, commands, most);
        granted.retain(|(id, _)| after.get(id).is_some_and(|standing| standing.token > 0));
        let lost = events.iter().filter_map(|event| match event {
            Event::Lost { id, cause, reason, .. } if *cause != Cause::Released => {
                Some((id.clone(), Lost::from_cause(*cause, reason.clone())))
            }
            _ => None,
        });
        let lost = lost.collect();
        let tokens = replies.iter().filter_map(|reply| match reply {
            Reply::Granted(grant) | Reply::Promoted(grant) => Some(grant.token),
            _ => None,
        });
        let last = tokens.chain(after.values().map(|standing| standing.token)).max().unwrap_or(0);
        let strict = replies.iter().any(|reply| !matches!(reply, Reply::Waiting(_)));
        let mut change = self.change((&after, &stay), &events, last.saturating_sub(FRESH), strict);
        for (name, one) in change.iter_mut().flat_map(|change| &mut change.names) {
            let queue = &self.queues[name];
            let is_ours = |id: &RequestId| self.passed.contains(id) || ours(id).is_some();
            let all_ours = queue.iter().all(|stand| is_ours(&stand.id));
            one.own_up_to = queue.last().filter(|_| all_ours).map(|stand| stand.seq);
        }
        let is_ours = |id: &RequestId| asked(id).is_some() || ours(id).is_some();
        let plan = change.as_mut().and_then(|change| self.plan(&after, change, is_ours));
        let puts = change.iter().flat_map(|change| change.names.values());
        let holders = puts.filter_map(|one| match &one.head {
            Write::Put(put) => Some(&put.holders),
            Write::Keep | Write::Delete => None,
        });
        let leased: BTreeSet<&RequestId> =
            holders.flatten().filter(|holder| holder.leased).map(|holder| &holder.id).collect();
        let measures =
            commands.iter().zip(&replies).any(|(command, reply)| match (command, reply) {
                (Command::Acquire(ask), Reply::Granted(_)) => !leased.contains(&ask.id),
                (Command::Renew(Target::Id(id), _), Reply::Renewed(_)) => !leased.contains(id),
                _ => false,
            });
        Ok(Decision { replies, granted, lost, measures, more: !stay.is_empty(), change, plan })
    }

    /// To whom the one who holds after this change can pass it on: those next in the queue, as long as they
    /// are of this process and want the same. The change takes numbers for their tokens.
    fn plan(
        &self,
        after: &BTreeMap<RequestId, Standing>,
        change: &mut Change,
        is_ours: impl Fn(&RequestId) -> bool,
    ) -> Option<Plan> {
        let (name, 1) = (change.names.keys().next()?, self.view.names.len()) else { return None };
        let mut holders = after.values().filter(|standing| standing.token > 0);
        let (holder, None) = (holders.next()?, holders.next()) else { return None };
        let mut waiting: Vec<&Standing> =
            after.values().filter(|standing| standing.token == 0).collect();
        waiting.sort_unstable_by_key(|standing| standing.seq);
        let alike = |standing: &&&Standing| is_ours(&standing.id) && holder.is_alike(standing);
        let next: Vec<RequestId> =
            waiting.iter().take_while(alike).take(NEXT).map(|it| it.id.clone()).collect();
        if next.is_empty() {
            return None;
        }
        let leased = match &change.names[name].head {
            Write::Put(put) => put.holders.iter().any(|it| it.id == holder.id && it.leased),
            Write::Keep | Write::Delete => false,
        };
        let first = change.numbers.max(1);
        change.numbers = first + next.len() as u64;
        let (holder, token) = (holder.id.clone(), holder.token);
        Some(Plan { holder, token, leased, tokens: first..change.numbers, next })
    }

    /// The seqs of those who stay in their queues because more would leave them than can at once.
    /// Those who are granted now go together with each other and with all who hold, so any of them may
    /// as well be granted later, before all who come after them; the last ones are. The dead, and those
    /// who hold already, are in nobody's way.
    fn stay(
        &self,
        after: &mut BTreeMap<RequestId, Standing>,
        commands: &[Command],
        most: usize,
    ) -> BTreeSet<u64> {
        let asked: BTreeSet<&RequestId> = commands.iter().filter_map(about).collect();
        let mut leaving: BTreeMap<(Leaves, u64), (&RequestId, usize)> = BTreeMap::new();
        for stand in self.queues.values().flatten() {
            let (was, is) = (self.standings.get(&stand.id), after.get(&stand.id));
            let leaves = match (was, is) {
                _ if waits_still(stand, after) => continue,
                _ if asked.contains(&stand.id) => Leaves::Must,
                (Some(was), Some(is)) if is.token > 0 && was.token == 0 => Leaves::Granted,
                (Some(_), Some(is)) if is.token > 0 => Leaves::Idle,
                (Some(was), None) if self.is_dead(was) => Leaves::Idle,
                _ => Leaves::Must,
            };
            leaving.entry((leaves, stand.seq)).or_insert((&stand.id, 0)).1 += 1;
        }
        let (mut taken, mut stay) = (0, BTreeSet::new());
        for ((leaves, seq), (id, count)) in leaving {
            let fits = stay.is_empty() && (taken == 0 || taken + count <= most);
            if leaves == Leaves::Must || fits {
                taken += count;
                continue;
            }
            stay.insert(seq);
            if let (Leaves::Granted, Some(was)) = (leaves, self.standings.get(id)) {
                after.insert(id.clone(), was.clone());
            }
        }
        stay
    }

    /// `strict`: what is answered depends on the heads as they were read. A waiter does not: it waits
    /// whoever holds, and looks again if that was not who it thought.
    fn change(
        &self,
        (after, stay): (&BTreeMap<RequestId, Standing>, &BTreeSet<u64>),
        events: &[Event],
        numbers: u64,
        strict: bool,
    ) -> Option<Change> {
        let mut change = Change { numbers, ..Change::default() };
        let new = |standing: &&Standing| standing.token == 0 && standing.seq > FRESH;
        let mut new: Vec<&Standing> = after.values().filter(new).collect();
        new.sort_by_key(|standing| standing.seq);
        for (name, before) in &self.holders {
            let grows = new.iter().any(|standing| is_on(standing, name));
            if let Some(one) = self.name_change(name, before, (after, stay, grows), events) {
                change.names.insert(name.clone(), Box::new(one));
            }
        }
        for standing in new {
            let to: Vec<Name> = names(standing).collect::<BTreeSet<_>>().into_iter().collect();
            for name in &to {
                let one = || self.nothing(name, strict);
                change.names.entry(name.clone()).or_insert_with(|| Box::new(one()));
            }
            change.appends.push(Append {
                id: standing.id.clone(),
                to,
                bytes: standing.encode(),
                live_ms: LIVE_MS,
            });
        }
        (!change.names.is_empty()).then_some(change)
    }

    /// No change, but that there is a head for those who queue (1).
    fn nothing(&self, name: &Name, strict: bool) -> NameChange {
        let (expect, head) = match &self.view.names[name].head {
            Some(head) if strict => (Expect::Version(head.version), Write::Keep),
            // Contenders do not get in each other's way: any head will do, but one there must be.
            Some(_) => (Expect::There, Write::Keep),
            None => {
                let (bytes, holders) = format::encode(Holders::default(), &[], self.view.now);
                let keep_ms = Some(LIVE_MS + MARGIN_MS);
                (Expect::Absent, Write::Put(Put { bytes, keep_ms, holders }))
            }
        };
        NameChange {
            expect,
            last_seq: None,
            head,
            remove: Vec::new(),
            tell: false,
            own_up_to: None,
        }
    }

    fn name_change(
        &self,
        name: &Name,
        before: &Holders,
        (after, stay, queue_grows): (&BTreeMap<RequestId, Standing>, &BTreeSet<u64>, bool),
        events: &[Event],
    ) -> Option<NameChange> {
        let record = &self.view.names[name];
        let queue = &self.queues[name];
        let is_here = |standing: &&Standing| standing.token > 0 && is_on(standing, name);
        let standings: Vec<Standing> = after.values().filter(is_here).cloned().collect();
        let leaves = |stand: &&Stand| !waits_still(stand, after) && !stay.contains(&stand.seq);
        let remove: Vec<Stand> = queue.iter().filter(leaves).cloned().collect();
        let mut same: Vec<&Standing> = before.standings.iter().collect();
        same.sort_by_key(|standing| &standing.id);
        let is_same = same.into_iter().eq(&standings);
        if is_same && remove.is_empty() {
            return None;
        }
        let mut notes: Vec<Note> =
            before.notes.iter().filter(|note| note.until > self.view.now).cloned().collect();
        let old_notes = notes.len();
        notes.extend(events.iter().filter_map(|event| self.note_of(event, name)));
        let tell = notes.len() > old_notes;
        let queue_left = queue_grows || queue.len() > remove.len();
        let holders = Holders { standings, notes };
        let empty = holders.standings.is_empty() && holders.notes.is_empty() && !queue_left;
        // Somebody who did not stand in the queue is granted: nobody may have come in between (2).
        let passes = holders.standings.iter().any(|standing| standing.seq > FRESH);
        let last_seq = queue.last().map_or(0, |stand| stand.seq);
        Some(NameChange {
            expect: record
                .head
                .as_ref()
                .map_or(Expect::Absent, |head| Expect::Version(head.version)),
            last_seq: (empty || passes).then_some(last_seq),
            head: if empty {
                Write::Delete
            } else {
                Write::Put(put(holders, &before.standings, self.view.now))
            },
            remove,
            tell,
            own_up_to: None,
        })
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
