//! What is checked: the real table, or the real table behind a wrapper with a planted fault.
//!
//! The plants are the control of the experiment: each is a mistake that a lock table could well
//! have, made by changing what goes into the real one, or what comes out. They live here, so that
//! the crate under test has no switch for being wrong.

use keylatch_table::{
    Acquire, Answer, Applied, Cause, Command, Entry, Event, LocksQuery, Query, Reply, RequestId,
    Settings, State, Stats, Table, Target,
};

use super::plant::{self, Plant};

/// Any number will do: nothing the table says depends on it.
const HASH_SEED: u64 = 0x6b65_796c_6174_6368;

/// A lock table to be checked.
#[derive(Clone)]
pub(super) struct Subject {
    pub(super) table: Table,
    plant: Option<Plant>,
    /// Entries that are shown though the table has others, or none, of that id.
    stale: Vec<Entry>,
    /// What is shown instead of the table's own seq, where a plant uses that up.
    seqs: Vec<(u64, u64)>,
}

impl Subject {
    /// A new table.
    pub(super) fn new(settings: &Settings, plant: Option<Plant>) -> Subject {
        let mut settings = settings.clone();
        if plant == Some(Plant::RemembersNothing) {
            settings.ended = 0;
        }
        let table = Table::new(settings, 0, HASH_SEED);
        Subject { table, plant, stale: Vec::new(), seqs: Vec::new() }
    }

    /// A table around this one.
    pub(super) fn around(table: Table) -> Subject {
        Subject { table, plant: None, stale: Vec::new(), seqs: Vec::new() }
    }

    /// Carries out a command.
    pub(super) fn apply(&mut self, at: u64, command: Command) -> Applied {
        match self.plant {
            None => self.table.apply(at, command),
            Some(plant) => self.misapply(plant, at, command),
        }
    }

    /// All requests, in arrival order.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let query = LocksQuery { waiters: true, ..LocksQuery::default() };
        let Answer::Entries(mut entries) = self.table.query(0, &Query::Locks(query)) else {
            unreachable!("a listing is a listing");
        };
        if self.plant.is_some() {
            self.distort(&mut entries);
        }
        entries
    }

    /// The totals.
    pub(super) fn stats(&self) -> Stats {
        let Answer::Stats(mut stats) = self.table.query(0, &Query::Stats) else {
            unreachable!("totals are totals");
        };
        if let Some((_, shown)) = self.seqs.last() {
            stats.seq = *shown;
        }
        stats
    }

    fn distort(&self, entries: &mut Vec<Entry>) {
        entries.retain(|entry| entry.id != plant::leaked());
        for entry in &mut *entries {
            entry.resource = plant::wildcards_back(&entry.resource);
            entry.seq = self.shown_seq(entry.seq);
        }
        entries.retain(|entry| self.stale.iter().all(|stale| stale.id != entry.id));
        entries.extend(self.stale.iter().cloned());
        entries.sort_by_key(|entry| entry.seq);
    }

    fn shown_seq(&self, seq: u64) -> u64 {
        self.seqs.iter().find(|(real, _)| *real == seq).map_or(seq, |(_, shown)| *shown)
    }

    fn misapply(&mut self, plant: Plant, at: u64, command: Command) -> Applied {
        match (plant, command) {
            (Plant::WildcardIsText, Command::Acquire(ask)) => {
                self.table.apply(at, Command::Acquire(plant::wildcards_as_text(ask)))
            }
            (Plant::OwnersAreAlike, Command::Acquire(mut ask)) => {
                ask.party.owner = "everybody".into();
                self.table.apply(at, Command::Acquire(ask))
            }
            (Plant::BargesIn, Command::Acquire(ask)) => self.barge(at, ask),
            (Plant::ForgetsTheSecond, command) => self.forget_second(at, command),
            (Plant::TokensStartAgain, command) => {
                let applied = self.table.apply(at, command);
                if self.stats().held + self.stats().waiting == 0 {
                    let now = self.table.now();
                    self.table = Table::new(self.table.settings().clone(), 0, HASH_SEED);
                    self.table.apply(now, Command::Tick);
                }
                applied
            }
            (Plant::HoldsAPart, Command::Acquire(ask)) => self.hold_a_part(at, ask),
            (Plant::KeepsSuperseded, command) => self.keep_superseded(at, command),
            (Plant::SupersedesInSilence, command) => {
                let mut applied = self.table.apply(at, command);
                applied.events.retain(|event| !superseded(event));
                applied
            }
            (Plant::LeasesRunLate, Command::Acquire(mut ask)) => {
                ask.lease_ms += u64::from(ask.lease_ms > 0);
                self.table.apply(at, Command::Acquire(ask))
            }
            (Plant::LeaksWildcards, command) => self.leak(at, command),
            (Plant::RepeatGoesToTheTail, Command::Acquire(ask)) => {
                let id = ask.id.clone();
                if self.state_of(&id) == Some(State::Waiting) {
                    self.table.apply(at, Command::Cancel(Target::Id(id)));
                }
                self.table.apply(at, Command::Acquire(ask))
            }
            (Plant::DetectsNothing, Command::Acquire(mut ask)) => {
                ask.detect = false;
                self.table.apply(at, Command::Acquire(ask))
            }
            (Plant::CommandBeforeTheDue, command) => {
                let mut applied = self.table.apply(0, command);
                applied.events.extend(self.table.apply(at, Command::Tick).events);
                applied
            }
            (Plant::BlamesAnother, command) => {
                let mut applied = self.table.apply(at, command);
                if let Reply::Busy(blocker) | Reply::Waiting(blocker) = &mut applied.reply {
                    blocker.owner = "nobody".into();
                }
                applied
            }
            (Plant::Panics, Command::Promote(Target::Id(id)))
                if self.state_of(&id) == Some(State::Waiting) =>
            {
                // The same as a panic, without the message.
                std::panic::resume_unwind(Box::new("planted"))
            }
            (_, command) => self.table.apply(at, command),
        }
    }

    fn state_of(&self, id: &RequestId) -> Option<State> {
        self.entries().iter().find(|entry| entry.id == *id).map(|entry| entry.state)
    }

    /// Looks only at the holders when a request arrives.
    fn barge(&mut self, at: u64, ask: Acquire) -> Applied {
        let arrives = self.state_of(&ask.id).is_none();
        let waiting = self.entries();
        let waiting: Vec<&Entry> = waiting.iter().filter(|e| e.state == State::Waiting).collect();
        let mut alone = self.table.clone();
        for entry in &waiting {
            alone.apply(at, Command::Cancel(Target::Id(entry.id.clone())));
        }
        let applied = alone.apply(at, Command::Acquire(ask.clone()));
        let shown = self.stats().seq;
        if !arrives || waiting.is_empty() || !matches!(applied.reply, Reply::Granted(_)) {
            let applied = self.table.apply(at, Command::Acquire(ask));
            if let Answer::Stats(Stats { seq, .. }) = self.table.query(0, &Query::Stats)
                && self.seqs.last().is_some_and(|(real, _)| *real < seq)
            {
                self.seqs.push((seq, shown + 1));
            }
            return applied;
        }
        // Queue the others again, under the numbers they had, and give the intruder the next.
        self.table = alone;
        let mut seqs: Vec<(u64, u64)> = Vec::new();
        let real_seq =
            |table: &Table, id: &RequestId| match table.query(0, &Query::Request(id.clone())) {
                Answer::Entries(entries) => entries[0].seq,
                _ => 0,
            };
        let intruder = (real_seq(&self.table, &ask.id), shown + 1);
        for entry in self.entries().iter().filter(|e| e.state == State::Held && e.id != ask.id) {
            seqs.push((real_seq(&self.table, &entry.id), entry.seq));
        }
        for entry in waiting {
            let mut again =
                Acquire::new(entry.id.clone(), entry.resource.clone(), ask.party.clone());
            again.party.owner = entry.owner.clone();
            again.part.mode = entry.mode;
            (again.lease_ms, again.wait_ms) = (entry.lease_asked_ms, entry.wait_ms);
            self.table.apply(at, Command::Acquire(again));
            seqs.push((real_seq(&self.table, &entry.id), entry.seq));
        }
        seqs.push(intruder);
        self.seqs = seqs;
        applied
    }

    /// Wakes one waiter at a time.
    fn forget_second(&mut self, at: u64, command: Command) -> Applied {
        let before = self.entries();
        let mut applied = self.table.apply(at, command);
        let granted = |event: &Event| matches!(event, Event::Granted { .. });
        if applied.events.iter().filter(|event| granted(event)).count() > 1
            && let Some(Event::Granted { id, .. }) = applied.events.pop_if(|event| granted(event))
        {
            self.stale.extend(before.into_iter().filter(|entry| entry.id == id));
        }
        applied
    }

    /// Takes the resources one by one and does not give them back.
    fn hold_a_part(&mut self, at: u64, mut ask: Acquire) -> Applied {
        let applied = self.table.apply(at, Command::Acquire(ask.clone()));
        if matches!(applied.reply, Reply::Busy(_)) && !ask.also.is_empty() {
            ask.also.clear();
            self.table.apply(at, Command::Acquire(ask));
        }
        applied
    }

    /// Promotes one and lets the others hold on.
    fn keep_superseded(&mut self, at: u64, command: Command) -> Applied {
        let before = self.entries();
        let mut applied = self.table.apply(at, command);
        for event in &applied.events {
            if let (true, Event::Lost { id, .. }) = (superseded(event), event) {
                self.stale.extend(before.iter().filter(|entry| entry.id == *id).cloned());
            }
        }
        applied.events.retain(|event| !superseded(event));
        applied
    }

    /// A resource with a wildcard stays behind when it is released.
    fn leak(&mut self, at: u64, command: Command) -> Applied {
        let before = self.entries();
        let applied = self.table.apply(at, command.clone());
        if let Command::Release(Target::Id(id)) = command
            && let Some(entry) = before.iter().find(|entry| entry.id == id)
            && plant::has_wildcard(&entry.resource)
        {
            self.table.apply(at, Command::Acquire(plant::leak()));
        }
        applied
    }
}

fn superseded(event: &Event) -> bool {
    matches!(event, Event::Lost { cause: Cause::Superseded, .. })
}
