//! What this process has asked for and has not given up.

use std::collections::BTreeMap;

use keylatch_table::{Acquire, Grant, RequestId};
use tokio::sync::watch;

use super::super::Granted;
use super::Map;
use super::relay::{Pass, Plan, Relays};
use super::store::{Name, Stand};
use crate::clock::Moment;

#[derive(Default)]
pub(super) struct Mine {
    requests: Map<RequestId, Ours>,
    /// How many of them are on a name.
    names: Map<Name, usize>,
    /// How many of them wait there.
    waits: Map<Name, usize>,
    /// On some name somebody has begun to wait where nobody did, and nobody has asked since.
    begun: bool,
    /// Those who wait, by seq.
    seqs: Map<u64, RequestId>,
    /// What goes from one of them to the next.
    pub(super) relays: Relays,
}

#[derive(Clone)]
pub(super) struct Ours {
    pub(super) names: Vec<Name>,
    pub(super) ask: Acquire,
    pub(super) state: State,
}

#[derive(Clone)]
pub(super) enum State {
    /// Being asked for.
    Asked,
    /// In the queue.
    Waits(u64, Turn),
    Held,
}

/// How one that waits is told.
pub(super) type Turn = watch::Sender<Call>;

#[derive(Default)]
pub(super) struct Call {
    /// It holds.
    pub(super) grant: Option<Granted>,
    /// It may hold, or have left the queue: it is to ask again.
    pub(super) again: bool,
}

/// It is to ask again.
pub(super) fn call(turn: &Turn) {
    turn.send_modify(|call| call.again = true);
}

impl Mine {
    pub(super) fn get(&self, id: &RequestId) -> Option<&Ours> {
        self.requests.get(id)
    }

    /// Whether it is in the queue.
    pub(super) fn is_waiting(&self, id: &RequestId) -> bool {
        matches!(self.get(id), Some(Ours { state: State::Waits(..), .. }))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    pub(super) fn insert(&mut self, ours: Ours) -> Option<Ours> {
        let before = self.remove(&ours.ask.id);
        for name in &ours.names {
            *self.names.entry(name.clone()).or_default() += 1;
        }
        if let State::Waits(seq, _) = ours.state {
            self.seqs.insert(seq, ours.ask.id.clone());
            for name in &ours.names {
                let waits = self.waits.entry(name.clone()).or_default();
                *waits += 1;
                self.begun |= *waits == 1;
            }
        }
        self.requests.insert(ours.ask.id.clone(), ours);
        before
    }

    pub(super) fn remove(&mut self, id: &RequestId) -> Option<Ours> {
        let ours = self.requests.remove(id)?;
        less(&mut self.names, &ours.names);
        if let State::Waits(seq, _) = ours.state {
            self.seqs.remove(&seq);
            less(&mut self.waits, &ours.names);
        }
        Some(ours)
    }

    /// It is in this state from now on; not, if it was given up.
    pub(super) fn set(&mut self, id: &RequestId, state: State) -> bool {
        // Only those who wait are counted by it.
        if let (Some(ours), false) = (self.requests.get_mut(id), matches!(state, State::Waits(..)))
            && !matches!(ours.state, State::Waits(..))
        {
            ours.state = state;
            return true;
        }
        let Some(ours) = self.remove(id) else { return false };
        self.insert(Ours { state, ..ours });
        true
    }

    /// It is in the queue from now on; not, if it was given up.
    pub(super) fn queued(&mut self, id: &RequestId, seq: u64) -> Option<Turn> {
        let turn = match &self.requests.get(id)?.state {
            State::Waits(same, turn) if *same == seq => return Some(turn.clone()),
            // Several may wait for it; they go on with the same one.
            State::Waits(_, turn) => turn.clone(),
            State::Asked | State::Held => Turn::default(),
        };
        self.set(id, State::Waits(seq, turn.clone()));
        Some(turn)
    }

    /// It holds what it was told of; not, if that is void by now.
    pub(super) fn takes(&mut self, id: &RequestId) -> bool {
        match self.get(id).map(|ours| &ours.state) {
            Some(State::Waits(_, turn)) => {
                turn.borrow().grant.is_some() && self.set(id, State::Held)
            }
            Some(State::Asked | State::Held) | None => true,
        }
    }

    /// It has been given up by this one, which was on these names: if another one of ours is next, that one
    /// holds now.
    pub(super) fn pass(&mut self, from: &RequestId, names: &[Name]) {
        let [name] = names else { return };
        let requests = &self.requests;
        let candidate = |id: &RequestId| match requests.get(id)? {
            Ours { ask, state: State::Waits(seq, _), .. } => Some((ask.clone(), *seq)),
            _ => None,
        };
        let Some((pass, since)) = self.relays.pass(name, from, candidate) else { return };
        if let Some(Ours { state: State::Waits(_, turn), .. }) = requests.get(&pass.ask.id) {
            let lease_ms = Some(pass.ask.lease_ms).filter(|ms| *ms > 0);
            let grant = Grant { token: pass.token, lease_ms, waited_ms: 0 };
            turn.send_modify(|call| call.grant = Some(Granted { grant, since }));
        }
    }

    /// What was passed on there and is not written.
    pub(super) fn unwritten(&mut self, name: &Name) -> Vec<Pass> {
        let requests = &self.requests;
        self.relays.begin(name, |id| requests.contains_key(id))
    }

    /// So many passes are written, and this is what there is now.
    pub(super) fn wrote(&mut self, name: &Name, passes: usize, plan: Option<Plan>, sent: Moment) {
        self.relays.wrote(name, passes, plan, sent);
        // It may have been given up meanwhile, when nobody was known to be next.
        if let Some(holder) = self.relays.free(name).cloned() {
            self.pass(&holder, std::slice::from_ref(name));
        }
    }

    /// Whether somebody has begun to wait where nobody did. Asked once.
    pub(super) fn has_begun(&mut self) -> bool {
        std::mem::take(&mut self.begun)
    }

    /// Names that somebody waits on.
    pub(super) fn waited_for(&self) -> impl Iterator<Item = &Name> {
        self.waits.keys()
    }

    pub(super) fn waits_on(&self, name: &str) -> bool {
        self.waits.contains_key(name)
    }

    /// All names.
    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        self.names.keys()
    }

    /// Whether somebody holds something there.
    pub(super) fn holds_on(&self, name: &str) -> bool {
        self.names.get(name) > self.waits.get(name)
    }

    pub(super) fn waiter(&self, seq: u64) -> Option<&Turn> {
        match &self.requests.get(self.seqs.get(&seq)?)?.state {
            State::Waits(_, turn) => Some(turn),
            _ => None,
        }
    }

    /// Those who wait.
    pub(super) fn waiters(&self) -> Vec<(Stand, Vec<Name>)> {
        let waiter = |(seq, id): (&u64, &RequestId)| {
            let names = self.requests.get(id)?.names.clone();
            Some((Stand { id: id.clone(), seq: *seq }, names))
        };
        self.seqs.iter().filter_map(waiter).collect()
    }

    /// Those on these names.
    pub(super) fn on(
        &self,
        names: &BTreeMap<Name, super::store::Record>,
    ) -> Vec<(RequestId, State)> {
        let here = |ours: &&Ours| ours.names.iter().any(|name| names.contains_key(name));
        let here = self.requests.values().filter(here);
        here.map(|ours| (ours.ask.id.clone(), ours.state.clone())).collect()
    }
}

fn less(counts: &mut Map<Name, usize>, names: &[Name]) {
    for name in names {
        if let Some(count) = counts.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                counts.remove(name);
            }
        }
    }
}
