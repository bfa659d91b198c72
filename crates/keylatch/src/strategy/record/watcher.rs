//! Looks after everything of this process: whoever waits shows that it lives and is told when that
//! changes; whoever has lost what it held is told; and what the rules free, of whatever process, is
//! handed over.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use keylatch_table::Command;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::decide::{LIVE_MS, Scene};
use super::driver::{Books, Failure, Shared};
use super::mine::{State, call};
use super::store::{Name, Store, Told};

/// What the watcher is told by this process itself.
pub(super) enum Poke {
    /// Somebody has begun to wait.
    Waits,
    /// Something is there that was not seen when it was written.
    Look(Name),
    /// A change that may have been one of ours has been told of, and ours have been answered since.
    Heard(Name, u64),
}

/// A sign of life comes three times in the life of a waiter.
const TOUCH: Duration = Duration::from_millis(LIVE_MS / 3);
/// Messages may be lost, and whoever saw that somebody is free may have died: those in front look
/// at least this often.
const IDLE: Duration = Duration::from_secs(1);
/// Each one further back looks so much later.
const STAGGER: Duration = Duration::from_millis(20);
/// But at least this often.
const RARELY: Duration = Duration::from_secs(10);
/// Whoever waits acts this much after an end is due: the store's clock is not ours.
const LATE: Duration = Duration::from_millis(2);
/// After a look that failed.
const RETRY: Duration = Duration::from_millis(100);

pub(super) async fn run<S: Store>(
    shared: Weak<Shared<S>>,
    mut told: mpsc::UnboundedReceiver<Told>,
    mut poked: mpsc::UnboundedReceiver<Poke>,
) {
    // When names that somebody waits on are looked at next.
    let mut looks: HashMap<Name, Instant> = HashMap::new();
    let mut touch = Instant::now() + TOUCH;
    let mut waited = false;
    // Names to look at now.
    let mut due: BTreeSet<Name> = BTreeSet::new();
    loop {
        let Some(here) = shared.upgrade() else { return };
        let now = Instant::now();
        let waited_for: Vec<Name> = here.books.lock().mine.waited_for().cloned().collect();
        if waited == waited_for.is_empty() {
            waited = !waited;
            here.store.somebody_waits(waited);
        }
        looks.retain(|name, _| here.books.lock().mine.waits_on(name));
        for name in &waited_for {
            if !looks.contains_key(name) {
                let known = here.books.lock().known.scene(std::slice::from_ref(name));
                let next = known.map_or(now, |scene| now + here.next_look(&scene, name));
                looks.insert(name.clone(), next);
            }
        }
        due.extend(looks.iter().filter(|(_, at)| **at <= now).map(|(name, _)| name.clone()));
        if !due.is_empty() {
            let nexts = here.look(due.iter().cloned().collect()).await;
            for name in std::mem::take(&mut due) {
                let next = nexts.as_ref().map_or(Some(RETRY), |nexts| nexts.get(&name).copied());
                if let Some(next) = next {
                    looks.insert(name, Instant::now() + next);
                }
            }
        }
        if now >= touch {
            here.touch().await;
            touch = now + TOUCH;
        }
        let mut next = looks.values().min().copied().unwrap_or(now + RARELY);
        if waited {
            next = next.min(touch);
        }
        drop(here);
        tokio::select! {
            // Dropped with the store.
            heard = told.recv() => {
                let Some(first) = heard else { return };
                let Some(here) = shared.upgrade() else { return };
                let mut heard = Some(first);
                while let Some(one) = heard {
                    here.hear(one, &mut due);
                    heard = told.try_recv().ok();
                }
            }
            poke = poked.recv() => {
                let mut poke = poke;
                while let Some(one) = poke {
                    match one {
                        Poke::Waits => {}
                        Poke::Look(name) => drop(due.insert(name)),
                        Poke::Heard(name, version) => {
                            let Some(here) = shared.upgrade() else { return };
                            if !here.books.lock().known.is_own(version) {
                                due.insert(name);
                            }
                        }
                    }
                    poke = poked.try_recv().ok();
                }
            }
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

impl<S: Store> Shared<S> {
    fn hear(self: &Arc<Self>, told: Told, due: &mut BTreeSet<Name>) {
        match told {
            Told::Changed { name, version, removed } => {
                let mut books = self.books.lock();
                let Books { mine, known, .. } = &mut *books;
                if known.is_own(version) {
                    return;
                }
                known.outdated(&name, version);
                mine.relays.stop(&name);
                for seq in removed {
                    if let Some(turn) = mine.waiter(seq) {
                        call(turn);
                    }
                }
                // Whoever wrote it has handed over to all it knew of. A lease that ended by itself
                // was written by nobody, and a holder may have lost its lock.
                if version == 0 && mine.waits_on(&name) {
                    due.insert(name);
                } else if mine.holds_on(&name) {
                    drop(books);
                    self.look_unless_own(name, version, due);
                }
            }
            Told::Anything => {
                let Books { mine, known, .. } = &mut *self.books.lock();
                known.forget_all();
                mine.relays.stop_all();
                due.extend(mine.names().cloned());
            }
        }
    }

    /// If a change of ours is on its way, its answer says whether this was it.
    fn look_unless_own(self: &Arc<Self>, name: Name, version: u64, due: &mut BTreeSet<Name>) {
        match self.turn_if_busy(&name) {
            None => drop(due.insert(name)),
            Some(turn) => {
                let pokes = self.pokes.clone();
                tokio::spawn(async move {
                    drop(turn.await);
                    drop(pokes.send(Poke::Heard(name, version)));
                });
            }
        }
    }

    /// One look at these names, and when to look at each of them again.
    async fn look(self: &Arc<Self>, names: Vec<Name>) -> Result<BTreeMap<Name, Duration>, Failure> {
        let scene = self.scene(names.clone()).await?;
        {
            let mine = &mut self.books.lock().mine;
            for (id, state) in mine.on(&scene.view.names) {
                match state {
                    State::Waits(_, turn) if scene.waits(&id).is_none() => call(&turn),
                    // What expired is noticed by the holder itself, earlier than by others.
                    State::Held if scene.holds(&id).is_none() => {
                        if let Some(note) = scene.note(&id) {
                            mine.remove(&id);
                            drop(self.losses.send((id, note.as_lost())));
                        }
                    }
                    State::Asked | State::Waits(..) | State::Held => {}
                }
            }
        }
        let decision = scene.decide(&[Command::Tick], |_| None, usize::MAX)?;
        if decision.change.is_some() {
            self.tick(scene.all_names().cloned().collect());
        }
        let waited = {
            let mine = &self.books.lock().mine;
            names.iter().filter(|name| mine.waits_on(name)).cloned().collect::<Vec<_>>()
        };
        let next = waited.into_iter().map(|name| (name.clone(), self.next_look(&scene, &name)));
        Ok(next.collect())
    }

    /// At the next end those in front act first, and the others a little later each.
    fn next_look(&self, scene: &Scene, name: &str) -> Duration {
        let mine = &self.books.lock().mine;
        let position = scene.position(name, |id| mine.get(id).is_some());
        let stagger = STAGGER.saturating_mul(position.try_into().unwrap_or(u32::MAX));
        let end = scene.next_end_ms(name).map(Duration::from_millis);
        end.map_or(IDLE, |end| IDLE.min(end + LATE)).saturating_add(stagger).min(RARELY)
    }

    /// Everyone who waits here lives.
    async fn touch(&self) {
        let waiters = self.books.lock().mine.waiters();
        if waiters.is_empty() {
            return;
        }
        let stands: Vec<_> = waiters.iter().map(|(stand, _)| stand.seq).collect();
        match self.store.touch(waiters.clone(), LIVE_MS).await {
            Ok(alive) => {
                let mut touched = BTreeMap::new();
                for ((stand, names), alive) in waiters.into_iter().zip(alive) {
                    if alive {
                        touched.insert(stand.seq, names);
                    } else if let Some(turn) = self.books.lock().mine.waiter(stand.seq) {
                        call(turn);
                    }
                }
                self.books.lock().known.touched(&touched, LIVE_MS);
            }
            Err(error) => {
                tracing::debug!(error.text, waiters = stands.len(), "no sign of life was taken");
            }
        }
    }
}
