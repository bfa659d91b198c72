//! Lets the table decide on what is known, and writes what follows from that, until nobody got in between.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use keylatch_table::{Acquire, Command, Grant, Reply, RequestId};
use tokio::time::Instant;

use super::super::Granted;
use super::decide::Scene;
use super::driver::{Acted, Books, Failure, Shared, real};
use super::format::Note;
use super::mine::{Call, Ours, State};
use super::relay::{Pass, Plan};
use super::store::{Change, Committed, Done, Name, Store, StoreError, View};
use super::watcher::Poke;
use crate::clock::Moment;
use crate::guard::Lost;

/// How long a store may be away before its answer is not waited for any more.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries.
const RETRY: Duration = Duration::from_millis(100);

impl<S: Store> Shared<S> {
    /// What was passed on between requests of this process and is not written, for each of these names.
    fn passed(&self, names: &[Name]) -> Vec<Vec<Pass>> {
        let mine = &mut self.books.lock().mine;
        names.iter().map(|name| mine.unwritten(name)).collect()
    }

    /// Lets the table decide, and writes what follows, until nobody got in between.
    ///
    /// Every command here may be repeated: it carries its id. So a store that does not answer is asked
    /// again for a while, also if what was asked may have happened.
    pub(super) async fn act(
        self: &Arc<Self>,
        names: &[Name],
        commands: &[Command],
        mut tried: Option<Result<(View, Moment), StoreError>>,
    ) -> Result<Vec<Acted>, Failure> {
        let since = Instant::now();
        let mut repeated = false;
        loop {
            let outcome = match tried.take() {
                Some(Err(error)) => Err(error.into()),
                Some(Ok(found)) => self.act_on(names, commands, repeated, Some(found)).await,
                None => self.act_on(names, commands, repeated, None).await,
            };
            match outcome {
                Err(Failure::Store(error)) if since.elapsed() < PATIENCE => {
                    tracing::debug!(error.text, "the store is asked again");
                    repeated |= error.unknown;
                    {
                        let mut books = self.books.lock();
                        books.known.forget(names);
                        for name in names {
                            books.mine.relays.stop(name);
                        }
                    }
                    if error.unknown {
                        // Somebody here may have been granted by it, and nobody else tells.
                        for name in names {
                            drop(self.pokes.send(Poke::Look(name.clone())));
                        }
                    }
                    tokio::time::sleep(RETRY).await;
                }
                outcome => {
                    let acted = outcome?.into_iter();
                    return Ok(acted.map(|acted| Acted { repeated, ..acted }).collect());
                }
            }
        }
    }

    /// Once. What there is may have been seen just now.
    async fn act_on(
        self: &Arc<Self>,
        names: &[Name],
        commands: &[Command],
        repeated: bool,
        found: Option<(View, Moment)>,
    ) -> Result<Vec<Acted>, Failure> {
        let found = match found {
            Some((view, sent)) => Some((self.complete(view, names).await?, sent)),
            None => None,
        };
        let mut since = found.as_ref().map_or_else(Moment::now, |(_, sent)| *sent);
        let known = self.books.lock().known.scene(names);
        let mut passes = self.passed(names);
        let unwritten = passes.iter().any(|passes| !passes.is_empty());
        if commands.is_empty() && !unwritten {
            return Ok(Vec::new());
        }
        // An idle lock costs one round trip: that there is nothing is worth a try.
        let (mut scene, mut fresh) = match (found, known) {
            (Some((scene, _)), _) => (scene, true),
            (None, Some(scene)) => (scene, false),
            (None, None) if repeated || unwritten || self.stands(commands) => {
                (self.scene(names.to_vec()).await?, true)
            }
            (None, None) => (Scene::absent(names), false),
        };
        loop {
            for (name, passes) in names.iter().zip(&passes) {
                self.pass(&mut scene, name, passes);
            }
            // Whoever asks again and stands there dead is removed before it queues anew.
            let lapsed = |command: &Command| match command {
                Command::Acquire(ask) => scene.has_lapsed(&ask.id),
                _ => false,
            };
            let first = commands.iter().any(lapsed);
            let commands = if first { &[Command::Tick] } else { commands };
            let ours = |id: &RequestId| match self.books.lock().mine.get(id) {
                Some(Ours { ask, state: State::Waits(..), .. }) => Some(ask.clone()),
                _ => None,
            };
            let decision = scene.decide(commands, ours, self.store.most_removed())?;
            // What is answered without a write must not rest on what may be out of date.
            let waits = |reply: &Reply| matches!(reply, Reply::Waiting(_));
            let covered = |change: &Change| {
                decision.replies.iter().all(waits)
                    || (!decision.measures
                        && names.iter().all(|name| change.names.contains_key(name)))
            };
            let mut change = match decision.change {
                None if fresh => {
                    self.wrote(names, &passes, None, since);
                    return Ok(acted(&scene, commands, decision.replies, 0, since));
                }
                Some(change) if fresh || covered(&change) => change,
                None | Some(_) => {
                    since = Moment::now();
                    scene = self.scene(names.to_vec()).await?;
                    passes = self.passed(names);
                    fresh = true;
                    continue;
                }
            };
            let is_mine = |plan: &Plan| self.books.lock().mine.get(&plan.holder).is_some();
            let mut plan = decision.plan;
            if let Some(others) = plan.take_if(|plan| !is_mine(plan)) {
                change.numbers -= others.next.len() as u64;
            }
            // What it grants counts from its write, which is later than this.
            let sent = Moment::now();
            let written = self.store.commit(change.clone()).await?;
            let done = match written {
                Committed::Done(done) => done,
                Committed::Mismatch(view) => {
                    since = sent;
                    scene = self.complete(view, names).await?;
                    passes = self.passed(names);
                    fresh = true;
                    continue;
                }
            };
            let known = self.learn(names, &scene.view, &change, &done);
            // Nobody is behind somebody who is not known.
            let plan = plan.filter(|_| known).map(|plan| plan.at(done.version));
            self.wrote(names, &passes, plan.as_ref(), sent);
            self.deliver(decision.granted, decision.lost, done.version, sent);
            if decision.more {
                self.tick(scene.all_names().cloned().collect());
            }
            if first {
                since = Moment::now();
                scene = self.scene(names.to_vec()).await?;
                passes = self.passed(names);
                fresh = true;
                continue;
            }
            // What it says of leases that it did not set was read earlier.
            let mut acted = acted(&scene, commands, decision.replies, done.version, since);
            for (at, append) in change.appends.iter().enumerate() {
                let seq = change.seq_of(done.version, at);
                for (acted, command) in acted.iter_mut().zip(commands) {
                    if matches!(command, Command::Acquire(ask) if ask.id == append.id) {
                        acted.seq = seq;
                    }
                }
            }
            return Ok(acted);
        }
    }

    /// What is known by what was written. Whether that is all of these names.
    fn learn(&self, names: &[Name], before: &View, change: &Change, done: &Done) -> bool {
        let (unseen, known) = {
            let Books { mine, known, .. } = &mut *self.books.lock();
            let unseen = known.wrote(before, change, done, |name| mine.has(name));
            (unseen, names.iter().all(|name| known.has(name)))
        };
        for name in unseen {
            drop(self.pokes.send(Poke::Look(name)));
        }
        for (at, append) in change.appends.iter().enumerate() {
            // At once: whoever comes next may hand over to it.
            self.books.lock().mine.queued(&append.id, change.seq_of(done.version, at));
        }
        known
    }

    /// These passes are written, and this is how it goes on, if it is one name.
    fn wrote(&self, names: &[Name], passes: &[Vec<Pass>], plan: Option<&Plan>, sent: Moment) {
        let mine = &mut self.books.lock().mine;
        for (name, passes) in names.iter().zip(passes) {
            mine.wrote(name, passes.len(), plan.cloned(), sent);
        }
    }

    /// What was passed on, on top of what the store has. If that had ended there, whoever has it has lost it.
    fn pass(&self, scene: &mut Scene, name: &Name, passes: &[Pass]) {
        for pass in passes {
            scene.pass(pass);
        }
        let Some(last) = passes.last() else { return };
        let holds = scene.holds(&last.ask.id);
        if holds.is_some_and(|standing| standing.token == last.token) {
            return;
        }
        let note = passes.iter().find_map(|pass| scene.note(&pass.from));
        let cause = note.map_or(Lost::Expired, Note::as_lost);
        let mine = &mut self.books.lock().mine;
        let Some(id) = mine.relays.broke(name) else { return };
        match mine.get(&id) {
            Some(Ours { state: State::Held, .. }) => {
                mine.remove(&id);
                drop(self.losses.send((id, cause)));
            }
            // It has not seen it yet.
            Some(Ours { state: State::Waits(_, turn), .. }) => {
                turn.send_modify(|call| *call = Call { grant: None, again: true });
            }
            Some(Ours { state: State::Asked, .. }) | None => {}
        }
    }

    /// Whether one of these asks again for what it waits for.
    fn stands(&self, commands: &[Command]) -> bool {
        let mine = &self.books.lock().mine;
        let waits = |ask: &Acquire| mine.is_waiting(&ask.id);
        commands.iter().any(|command| matches!(command, Command::Acquire(ask) if waits(ask)))
    }

    /// Tells those of this process whom a write has changed.
    fn deliver(
        &self,
        granted: Vec<(RequestId, Grant)>,
        lost: Vec<(RequestId, Lost)>,
        version: u64,
        since: Moment,
    ) {
        let mine = &mut self.books.lock().mine;
        for (id, grant) in granted {
            if let Some(Ours { state: State::Waits(_, turn), .. }) = mine.get(&id) {
                let grant = Granted { grant: real(&grant, version), since };
                turn.send_modify(|call| call.grant = Some(grant));
            }
        }
        for (id, cause) in lost {
            // What expired is noticed by the holder itself, earlier than by others.
            let told = matches!(cause, Lost::Superseded(_) | Lost::Revoked(_));
            if told && matches!(mine.get(&id), Some(Ours { state: State::Held, .. })) {
                mine.remove(&id);
                drop(self.losses.send((id, cause)));
            }
        }
    }

    /// These names and all that their requests are on.
    pub(super) async fn scene(&self, names: Vec<Name>) -> Result<Scene, Failure> {
        let view = self.store.read(names).await?;
        self.complete(view, &[]).await
    }

    async fn complete(&self, view: View, names: &[Name]) -> Result<Scene, Failure> {
        let mut scene = Scene::new(view)?;
        loop {
            let mut missing = scene.missing();
            let asked = names.iter().filter(|name| !scene.view.names.contains_key(*name));
            missing.extend(asked.cloned());
            if missing.is_empty() {
                let Books { mine, known, .. } = &mut *self.books.lock();
                known.read(&scene.view, |name| mine.has(name));
                return Ok(scene);
            }
            let all: BTreeSet<Name> = scene.all_names().cloned().chain(missing).collect();
            scene = Scene::new(self.store.read(all.into_iter().collect()).await?)?;
        }
    }
}

/// The replies as they are to be given, if this was the version.
fn acted(
    scene: &Scene,
    commands: &[Command],
    replies: Vec<Reply>,
    version: u64,
    since: Moment,
) -> Vec<Acted> {
    let acted = replies.into_iter().zip(commands).map(|(reply, command)| {
        let reply = match reply {
            Reply::Granted(grant) => Reply::Granted(real(&grant, version)),
            Reply::Promoted(grant) => Reply::Promoted(real(&grant, version)),
            other => other,
        };
        let seq = match command {
            Command::Acquire(ask) => scene.waits(&ask.id).unwrap_or(0),
            _ => 0,
        };
        Acted { reply, since, seq, repeated: false, held: false }
    });
    acted.collect()
}
