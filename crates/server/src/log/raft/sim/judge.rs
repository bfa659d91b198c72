//! What must hold whatever happens. It sees every entry that any node applies, every snapshot that is installed and
//! every answer that a client gets, and has a table and a naive model of its own that follow the entries.
//!
//! - **C1** At one index all nodes apply the same entry, and are in the same state after it.
//! - **C2** The state is that of a table that got each batch once, and whose waiters are detached with their member.
//! - **C3** The outcomes are those of the naive model: order of arrival, leases, conflicts, repeated ids.
//! - **C4** Tokens grow with the index, and what is granted after an answer was seen has a higher one.
//! - **C5** An answer that a client gets is the outcome in the log; once granted, an id never has another token.
//! - **C6** No two conflicting clients believe at the same time that they hold.
//! - **C7** A question is answered from everything that was answered before it was asked.
//! - **C8** A node that nobody reaches answers nothing that was asked meanwhile.
//! - **C9** What was refused for want of a leader, and said not to have happened, has not.
//! - **C10** Time in the log goes on with a leader only, and never faster than time in the world.

use std::collections::{BTreeMap, BTreeSet};

use keylatch_lab::model::Model;
use keylatch_table::{
    Applied, Command, Detach, Event, Grant, Mode, Reply, RequestId, Settings, Table,
};
use openraft::EntryPayload;

use super::super::bytes;
use super::super::types::{Changes, Entry, LogId, Source, Stamp};

pub(super) struct Judge {
    /// By index: what was applied there, and the state after it.
    entries: Vec<Canon>,
    /// How far each process has applied.
    pub(super) applied: BTreeMap<String, u64>,
    table: Table,
    model: Model,
    /// By node: the life and number of its last batch.
    last: BTreeMap<u64, (u64, u64)>,
    /// By request: at which node it waits.
    waiting: BTreeMap<RequestId, u64>,
    /// By batch: where it is in the log.
    stamps: BTreeMap<(u64, u64, u64), u64>,
    /// By request: its token, and where in the log it was granted.
    grants: BTreeMap<RequestId, (u64, u64)>,
    last_token: u64,
    /// The end of what anybody has been answered.
    pub(super) seen_index: u64,
    pub(super) seen_token: u64,
    /// Requests that have not happened, as somebody was told.
    never: BTreeSet<RequestId>,
    beliefs: Vec<Belief>,
    /// Who is a member, as the log says.
    pub(super) members: BTreeSet<u64>,
    /// How many vote, in the smaller half of a joint membership.
    pub(super) voters: usize,
    /// Time in the log.
    time: u64,
    /// When the first entry of this term was applied first, and the time in the log then: its leader counts on
    /// from there.
    term_began: (u64, u64),
    pub(super) counts: Counts,
    /// What was found wrong, first of all.
    pub(super) wrong: Option<String>,
}

/// How much there was to judge: a run in which nothing happens proves nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Entries, terms and grants in the log; grants to those who waited.
    pub(super) entries: u64,
    pub(super) terms: u64,
    pub(super) grants: u64,
    pub(super) waited: u64,
    pub(super) reads: u64,
    pub(super) installed: u64,
    pub(super) repeated: u64,
    pub(super) re_asked: u64,
    pub(super) no_leader: u64,
    pub(super) detached: u64,
    /// Of whom a member said that it was gone when it waited at another one.
    pub(super) late: u64,
}

impl Counts {
    pub(super) fn add(&mut self, more: &Counts) {
        self.entries += more.entries;
        self.terms += more.terms;
        self.grants += more.grants;
        self.waited += more.waited;
        self.reads += more.reads;
        self.installed += more.installed;
        self.repeated += more.repeated;
        self.re_asked += more.re_asked;
        self.no_leader += more.no_leader;
        self.detached += more.detached;
        self.late += more.late;
    }
}

struct Canon {
    log_id: LogId,
    payload: String,
    table: u64,
    origins: u32,
}

/// A client thinks that it holds something, from then until then.
pub(super) struct Belief {
    pub(super) key: String,
    pub(super) mode: Mode,
    pub(super) id: RequestId,
    pub(super) from: u64,
    pub(super) until: u64,
}

impl Judge {
    pub(super) fn new() -> Judge {
        Judge {
            entries: Vec::new(),
            applied: BTreeMap::new(),
            table: Table::new(Settings::default(), 0, 1),
            model: Model::new(Settings::default(), 0),
            last: BTreeMap::new(),
            waiting: BTreeMap::new(),
            stamps: BTreeMap::new(),
            grants: BTreeMap::new(),
            last_token: 0,
            seen_index: 0,
            seen_token: 0,
            never: BTreeSet::new(),
            beliefs: Vec::new(),
            members: BTreeSet::new(),
            voters: 0,
            time: 0,
            term_began: (0, 0),
            counts: Counts::default(),
            wrong: None,
        }
    }

    pub(super) fn find(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    /// A process has applied an entry, and is in this state now.
    pub(super) fn applied(
        &mut self,
        process: &str,
        entry: &Entry,
        (table, origins): (u64, u32),
        now: u64,
    ) {
        let index = entry.log_id.index;
        let before = self.applied.insert(process.into(), index);
        if before.is_some_and(|before| before + 1 != index) {
            self.find(format!("{process} applies {index} after {before:?}"));
        }
        let payload = describe(entry);
        if index == self.entries.len() as u64 {
            self.follow(entry, now);
            let of_log = self.table.state_hash();
            if of_log != table {
                self.find(format!(
                    "C2: {process} is in another state after {index} ({payload}) than the log says"
                ));
            }
            self.entries.push(Canon { log_id: entry.log_id, payload, table, origins });
            return;
        }
        let Some(canon) = self.entries.get(index as usize) else {
            return self.find(format!("{process} applies {index}, which nobody knows before it"));
        };
        if canon.log_id != entry.log_id || canon.payload != payload {
            let (id, of) = (canon.log_id, &canon.payload);
            let found =
                format!("C1: {process} applies {payload} at {}, others {of} at {id}", entry.log_id);
            self.find(found);
        } else if (canon.table, canon.origins) != (table, origins) {
            self.find(format!("C1: {process} is in another state than others after {index}"));
        }
    }

    /// A process has got a state from elsewhere, or from its own snapshot.
    pub(super) fn installed(&mut self, process: &str, last: Option<LogId>, state: (u64, u32)) {
        let Some(last) = last else { return };
        self.applied.insert(process.into(), last.index);
        match self.entries.get(last.index as usize) {
            Some(canon) if (canon.table, canon.origins) == state && canon.log_id == last => {}
            _ => self.find(format!("C1: {process} has a snapshot of {last} that is another state")),
        }
    }

    fn follow(&mut self, entry: &Entry, now: u64) {
        self.counts.entries += 1;
        if self.entries.last().is_none_or(|last| last.log_id.leader_id != entry.log_id.leader_id) {
            self.term_began = (now, self.time);
            self.counts.terms += 1;
        }
        if let EntryPayload::Membership(membership) = &entry.payload {
            let configs = membership.get_joint_config().iter();
            self.members = membership.nodes().map(|(node, _)| *node).collect();
            self.voters = configs.map(BTreeSet::len).min().unwrap_or(0);
        }
        let EntryPayload::Normal(changes) = &entry.payload else { return };
        let (index, at) = (entry.log_id.index, changes.at);
        let (world, table) = self.term_began;
        if at > table + (now - world) + 2 {
            let found =
                format!("C10: {} ms of the log in {} ms of a term", at - table, now - world);
            self.find(found);
        }
        self.time = self.time.max(at);
        let (node, ended) = match changes.source {
            Source::Leader => (None, None),
            Source::Gone(node) => (None, Some(node)),
            Source::Member(Stamp { node, incarnation, number }) => {
                let (this, last) = ((incarnation, number), self.last.get(&node).copied());
                if last.is_some_and(|last| last >= this) {
                    self.counts.repeated += 1;
                    return;
                }
                self.last.insert(node, this);
                self.stamps.insert((node, incarnation, number), index);
                (Some(node), last.is_none_or(|(life, _)| life != incarnation).then_some(node))
            }
        };
        let left: Vec<RequestId> = self
            .waiting
            .iter()
            .filter(|(_, at)| Some(**at) == ended)
            .map(|(id, _)| id.clone())
            .collect();
        if !left.is_empty() {
            self.counts.detached += 1;
            let detach = Detach { ids: Some(left), grace_ms: 10_000 };
            self.carry_out(index, at, None, &Command::Detach(detach));
        }
        let commands = bytes::decode_commands(&changes.commands).expect("they were applied");
        for mut command in commands {
            // Who waits at another member by now is not gone.
            if let Command::Detach(Detach { ids: Some(ids), .. }) = &mut command {
                let all = ids.len();
                ids.retain(|id| self.waiting.get(id).is_none_or(|at| Some(*at) == node));
                self.counts.late += (all - ids.len()) as u64;
            }
            self.carry_out(index, at, node, &command);
        }
    }

    fn carry_out(&mut self, index: u64, at: u64, node: Option<u64>, command: &Command) {
        let applied = self.table.apply(at, command.clone());
        let model = self.model.apply(at, command);
        if applied != model {
            self.find(format!("C3: {command:?} at {index} gives {applied:?}, the model {model:?}"));
        }
        if let Command::Detach(Detach { ids: Some(ids), .. }) = command {
            for id in ids {
                self.waiting.remove(id);
            }
        }
        for event in &applied.events {
            match event {
                Event::Granted { id, grant } => {
                    self.counts.waited += 1;
                    self.waiting.remove(id);
                    self.granted(index, id, grant);
                }
                Event::TimedOut { id, .. }
                | Event::Deadlocked { id, .. }
                | Event::Withdrawn { id, .. } => drop(self.waiting.remove(id)),
                Event::Lost { .. } | Event::Task(_) => {}
            }
        }
        if let Command::Acquire(ask) = command {
            match (&applied.reply, node) {
                (Reply::Waiting(_), Some(node)) => drop(self.waiting.insert(ask.id.clone(), node)),
                _ if ask.wait_ms > 0 => drop(self.waiting.remove(&ask.id)),
                _ => {}
            }
            if let Reply::Granted(grant) = &applied.reply {
                self.granted(index, &ask.id, grant);
            }
        }
    }

    fn granted(&mut self, index: u64, id: &RequestId, grant: &Grant) {
        if self.never.contains(id) {
            self.find(format!("C9: {id:?} was not to happen, and is granted at {index}"));
        }
        match self.grants.get(id) {
            Some((token, _)) if *token == grant.token => {}
            Some((token, _)) => {
                let found = format!("C5: {id:?} had token {token}, and has {} now", grant.token);
                self.find(found);
            }
            None => {
                self.counts.grants += 1;
                if grant.token <= self.last_token {
                    let last = self.last_token;
                    self.find(format!("C4: token {} after {last} at {index}", grant.token));
                }
                self.last_token = grant.token;
                self.grants.insert(id.clone(), (grant.token, index));
            }
        }
    }

    /// A client is told that it holds. `seen_token`: the last that anybody had seen when it first asked.
    pub(super) fn told_granted(&mut self, id: &RequestId, grant: &Grant, seen_token: u64) {
        match self.grants.get(id) {
            Some((token, index)) if *token == grant.token => {
                self.seen_index = self.seen_index.max(*index);
            }
            known => {
                let found =
                    format!("C5: a client gets {grant:?} for {id:?}, the log says {known:?}");
                self.find(found);
            }
        }
        if grant.token <= seen_token {
            let token = grant.token;
            self.find(format!("C4: {id:?} gets token {token} after {seen_token} was seen"));
        }
        self.seen_token = self.seen_token.max(grant.token);
    }

    /// A client is answered what is the outcome of this batch.
    pub(super) fn told_of(&mut self, stamp: Stamp) {
        let Stamp { node, incarnation, number } = stamp;
        match self.stamps.get(&(node, incarnation, number)) {
            Some(index) => self.seen_index = self.seen_index.max(*index),
            None => self.find(format!("C5: {stamp:?} is answered, and not in the log")),
        }
    }

    /// A question is answered by a process. `seen_index`: what anybody had been answered when it was asked.
    pub(super) fn told_read(&mut self, process: &str, seen_index: u64) {
        self.counts.reads += 1;
        let applied = self.applied.get(process).copied().unwrap_or(0);
        if applied < seen_index {
            self.find(format!(
                "C7: {process} answers from {applied}, {seen_index} was seen before"
            ));
        }
        self.seen_index = self.seen_index.max(applied);
    }

    /// Somebody is told that this has not happened, and never asks for it again.
    pub(super) fn told_never(&mut self, id: RequestId) {
        if self.grants.contains_key(&id) {
            self.find(format!("C9: {id:?} has not happened, as is said, but it was granted"));
        }
        self.never.insert(id);
    }

    /// A client believed that it held.
    pub(super) fn believed(&mut self, belief: Belief) {
        for other in &self.beliefs {
            let conflict = other.mode != Mode::Shared || belief.mode != Mode::Shared;
            let together = belief.from < other.until && other.from < belief.until;
            if conflict && together && other.key == belief.key && other.id != belief.id {
                let (a, b) = (&other.id, &belief.id);
                let text = format!(
                    "C6: {a:?} held {} from {} to {}, {b:?} from {} to {}",
                    other.key, other.from, other.until, belief.from, belief.until
                );
                self.wrong.get_or_insert(text);
            }
        }
        self.beliefs.push(belief);
    }

    /// The end of the log, as far as anybody has applied it.
    pub(super) fn end(&self) -> u64 {
        (self.entries.len() as u64).saturating_sub(1)
    }
}

pub(super) fn describe(entry: &Entry) -> String {
    match &entry.payload {
        EntryPayload::Blank => "nothing".into(),
        EntryPayload::Membership(membership) => format!("{membership:?}"),
        EntryPayload::Normal(Changes { at, source, commands }) => {
            format!("{source:?} at {at}: {:08x}", crc32fast::hash(commands))
        }
    }
}

/// Who is told what, in words.
pub(super) fn events(applied: &[Applied]) -> impl Iterator<Item = &Event> {
    applied.iter().flat_map(|applied| &applied.events)
}
