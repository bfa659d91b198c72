//! A lock where nobody is, and its release: most of what there is, done without looking at more than that. Whatever
//! is otherwise is left to [`super::decide`].

use keylatch_table::{Acquire, Command, Counters, Grant, Reply, RequestId, Table, Target};

use super::decide;
use super::driver::{Acted, Failure, Shared, real};
use super::format::{FRESH, Holders};
use super::known::Known;
use super::store::{Change, Committed, Expect, Name, NameChange, Store, View, Write};
use crate::clock::Moment;

/// What came of a try.
pub(super) enum Tried {
    /// It is not as simple as that, and nothing was tried.
    Not,
    Done(Acted),
    /// It was otherwise, as this was sent; and how it is.
    Otherwise(View, Moment),
}

/// The rules, which say what happens where nobody is.
pub(super) fn rules() -> Table {
    Table::new(decide::settings(), 0, 0)
}

/// The request takes the name: what is to be written, its head among that, and its grant.
fn takes(rules: &Table, name: &Name, ask: &Acquire) -> Option<(Change, Vec<u8>, Grant)> {
    let counters = Counters { now: 0, token: FRESH, seq: FRESH };
    let (standing, grant) = rules.alone(counters, ask)?;
    let holders = Holders { standings: vec![standing], notes: Vec::new() };
    let put = decide::put(&holders, &[], 0);
    let bytes = put.bytes.clone();
    Some((change(name, Expect::Absent, Write::Put(put)), bytes, grant))
}

/// The request leaves the name, where it is alone.
fn leaves(known: &Known, name: &Name, id: &RequestId) -> Option<Change> {
    let version = known.alone(name, id)?;
    Some(change(name, Expect::Version(version), Write::Delete))
}

fn change(name: &Name, expect: Expect, head: Write) -> Change {
    let (last_seq, remove) = (Some(0), Vec::new());
    let one = NameChange { expect, last_seq, head, remove, tell: false, own_up_to: None };
    Change::of(name.clone(), one)
}

impl<S: Store> Shared<S> {
    /// If this is one lock where nobody is known to be, or the release of one that is there alone.
    pub(super) async fn act_alone(
        &self,
        names: &[Name],
        commands: &[Command],
    ) -> Result<Tried, Failure> {
        let ([name], [command]) = (names, commands) else { return Ok(Tried::Not) };
        match command {
            Command::Acquire(ask) => self.take(name, ask).await,
            Command::Release(Target::Id(id)) => self.leave(name, id).await,
            _ => Ok(Tried::Not),
        }
    }

    async fn take(&self, name: &Name, ask: &Acquire) -> Result<Tried, Failure> {
        let is_new = {
            let mine = self.mine.lock();
            !mine.relays.is_at(name) && !mine.is_waiting(&ask.id)
        };
        if !is_new || self.known.lock().has(name) {
            return Ok(Tried::Not);
        }
        let Some((change, bytes, grant)) = takes(&self.rules, name, ask) else {
            return Ok(Tried::Not);
        };
        let since = Moment::now();
        let done = match self.store.commit(change).await? {
            Committed::Done(done) => done,
            Committed::Mismatch(view) => return Ok(Tried::Otherwise(view, since)),
        };
        // Unless it was given up meanwhile.
        let wanted = self.mine.lock().has(name);
        let holder = wanted.then(|| (ask.id.clone(), grant.lease_ms, bytes));
        self.known.lock().took(name, holder, &done);
        Ok(Tried::Done(Acted::at(Reply::Granted(real(&grant, done.version)), since)))
    }

    async fn leave(&self, name: &Name, id: &RequestId) -> Result<Tried, Failure> {
        if self.mine.lock().relays.is_at(name) {
            return Ok(Tried::Not);
        }
        let change = leaves(&self.known.lock(), name, id);
        let Some(change) = change else { return Ok(Tried::Not) };
        let since = Moment::now();
        match self.store.commit(change).await? {
            Committed::Done(done) => {
                self.known.lock().took(name, None, &done);
                Ok(Tried::Done(Acted::at(Reply::Released, since)))
            }
            Committed::Mismatch(view) => Ok(Tried::Otherwise(view, since)),
        }
    }
}
