//! The strategy over any record store: reads, lets the table decide, writes, and waits for its turn.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use keylatch_table::{
    Acquire, Answer, Command, Entry, Grant, LocksQuery, Query, Reply, RequestId, Target,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use super::super::{Granted, Loss, Pending, Renewed, Strategy};
use super::decide::{LIVE_MS, Nonsense, Scene};
use super::format::{FRESH, Note};
use super::line::{Line, Place};
use super::store::{Committed, Name, Store, StoreError, View};
use crate::clock::Moment;
use crate::error::{ListError, LockError, PromoteError};
use crate::guard::{Lost, Released};

pub(crate) struct Records<S>(Arc<Shared<S>>);

struct Shared<S> {
    store: S,
    line: Line,
    /// What this process asked for and has not released, and on which names.
    ours: Mutex<HashMap<RequestId, Ours>>,
    losses: mpsc::UnboundedSender<Loss>,
    /// Somebody has begun to wait.
    poke: Notify,
}

#[derive(Clone)]
struct Ours {
    names: Vec<Name>,
    state: State,
}

#[derive(Clone)]
enum State {
    /// Being asked for.
    Asked,
    /// In the queue; this is told when that changes.
    Waits(Arc<Notify>),
    Held,
}

/// Why there is no reply.
#[derive(Debug)]
enum Failure {
    Store(StoreError),
    Nonsense(String),
}

impl Failure {
    fn text(self) -> (String, bool) {
        match self {
            Failure::Store(error) => (error.text, error.unknown),
            Failure::Nonsense(text) => (text, false),
        }
    }

    fn into_lock_error(self) -> LockError {
        match self.text() {
            (text, true) => LockError::Unknown(text),
            (text, false) => LockError::Unreachable(text),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::Store(error)
    }
}

impl From<Nonsense> for Failure {
    fn from(Nonsense(text): Nonsense) -> Failure {
        Failure::Nonsense(text)
    }
}

/// A reply, and the number of the write that made it so.
struct Acted {
    reply: Reply,
    version: u64,
    seq: u64,
    /// An earlier try may have done it.
    repeated: bool,
}

/// A sign of life comes three times in the life of a waiter.
const TOUCH: Duration = Duration::from_millis(LIVE_MS / 3);
/// How long a store may be away before its answer is not waited for any more.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries.
const RETRY: Duration = Duration::from_millis(100);
/// Messages may be lost: whoever waits looks at least this often.
const IDLE: Duration = Duration::from_secs(1);
/// Whoever waits acts this much after an end is due: the store's clock is not ours.
const LATE: Duration = Duration::from_millis(2);

impl<S: Store> Records<S> {
    pub(crate) fn new(store: S, losses: mpsc::UnboundedSender<Loss>) -> Records<S> {
        let changes = store.changes();
        let shared = Arc::new(Shared {
            store,
            line: Line::default(),
            ours: Mutex::default(),
            losses,
            poke: Notify::new(),
        });
        tokio::spawn(watch(Arc::downgrade(&shared), changes));
        Records(shared)
    }

    /// Does something in the order of the calls, whoever waits for it.
    fn submit<T, F>(
        &self,
        names: &[Name],
        work: impl FnOnce(Arc<Shared<S>>, Place) -> F,
    ) -> Pending<Option<T>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let place = self.0.line.enter(names);
        let work = tokio::spawn(work(Arc::clone(&self.0), place));
        Box::pin(async move { work.await.ok() })
    }

    fn names_of(&self, id: &RequestId) -> Option<Vec<Name>> {
        self.0.ours.lock().get(id).map(|ours| ours.names.clone())
    }
}

/// Looks after everything of this process: one look at the store serves all who wait here. Whoever is
/// granted, or is not in the queue any more, is told; so is whoever has lost what it held; and if the
/// rules free somebody, of whatever process, it is handed over.
async fn watch<S: Store>(shared: Weak<Shared<S>>, mut changes: tokio::sync::watch::Receiver<u64>) {
    loop {
        let Some(here) = shared.upgrade() else { return };
        changes.borrow_and_update();
        let next = here.look().await.unwrap_or(Some(RETRY));
        let next = next.unwrap_or(IDLE).clamp(LATE, IDLE);
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = here.poke.notified() => {}
            () = tokio::time::sleep(next) => {}
        }
    }
}

impl<S: Store> Shared<S> {
    /// One look at all names that somebody of this process is on. Returns when to look again.
    async fn look(&self) -> Result<Option<Duration>, Failure> {
        let ours = self.ours.lock().clone();
        let busy = ours.values().filter(|ours| !matches!(ours.state, State::Asked));
        let names: BTreeSet<Name> = busy.flat_map(|ours| ours.names.clone()).collect();
        if names.is_empty() {
            return Ok(None);
        }
        let scene = self.scene(names.into_iter().collect()).await?;
        let mut waits = false;
        for (id, ours) in ours {
            match ours.state {
                State::Asked => {}
                State::Waits(_) if scene.waits(&id) => waits = true,
                State::Waits(turn) => turn.notify_one(),
                // What expired is noticed by the holder itself, earlier than by others.
                State::Held => {
                    if let (None, Some(note)) = (scene.holds(&id), scene.note(&id))
                        && self.ours.lock().remove(&id).is_some()
                    {
                        drop(self.losses.send((id, note.as_lost())));
                    }
                }
            }
        }
        if !waits {
            return Ok(None);
        }
        if let Some(change) = scene.decide(Command::Tick)?.change {
            // On a mismatch somebody else was quicker.
            self.store.commit(change).await?;
            return Ok(Some(Duration::ZERO));
        }
        Ok(scene.next_end_ms().map(|ms| Duration::from_millis(ms) + LATE))
    }

    /// These names and all that their requests are on.
    async fn scene(&self, names: Vec<Name>) -> Result<Scene, Failure> {
        let view = self.store.read(names).await?;
        self.complete(view).await
    }

    async fn complete(&self, view: View) -> Result<Scene, Failure> {
        let mut scene = Scene::new(view)?;
        loop {
            let missing = scene.missing();
            if missing.is_empty() {
                return Ok(scene);
            }
            let all = scene.all_names().cloned().chain(missing).collect();
            scene = Scene::new(self.store.read(all).await?)?;
        }
    }

    /// Lets the table decide, and writes what follows, until nobody got in between.
    ///
    /// Every command here may be repeated: it carries its id. So a store that does not answer is asked
    /// again for a while, also if what was asked may have happened.
    async fn act(&self, names: Vec<Name>, command: Command) -> Result<Acted, Failure> {
        let since = Instant::now();
        let mut repeated = false;
        loop {
            match self.act_once(names.clone(), command.clone()).await {
                Err(Failure::Store(error)) if since.elapsed() < PATIENCE => {
                    repeated |= error.unknown;
                    tokio::time::sleep(RETRY).await;
                }
                outcome => return outcome.map(|acted| Acted { repeated, ..acted }),
            }
        }
    }

    async fn act_once(&self, names: Vec<Name>, command: Command) -> Result<Acted, Failure> {
        let mut scene = self.scene(names).await?;
        loop {
            let decision = scene.decide(command.clone())?;
            let Some(change) = decision.change else {
                return Ok(Acted { reply: decision.reply, version: 0, seq: 0, repeated: false });
            };
            match self.store.commit(change).await? {
                Committed::Done { version, seq } => {
                    return Ok(Acted { reply: decision.reply, version, seq, repeated: false });
                }
                Committed::Mismatch(view) => scene = self.complete(view).await?,
            }
        }
    }

    /// Until it is granted or the wait is over.
    async fn acquire(
        &self,
        ask: Acquire,
        names: Vec<Name>,
        place: Place,
    ) -> Result<Grant, LockError> {
        let mut place = place;
        place.turn().await;
        let end = Instant::now() + Duration::from_millis(ask.wait_ms);
        let mut place = Some(place);
        loop {
            let mut again = ask.clone();
            let left = end.saturating_duration_since(Instant::now());
            again.wait_ms = (left.as_millis() as u64).min(ask.wait_ms);
            let acted = self.act(names.clone(), Command::Acquire(again)).await;
            let Acted { reply, version, seq, .. } = acted.map_err(Failure::into_lock_error)?;
            // Those behind may go on: this one is in.
            place.take();
            if !self.ours.lock().contains_key(&ask.id) {
                // Released meanwhile, perhaps before it was in.
                let release = Command::Release(Target::Id(ask.id.clone()));
                let released = self.act(names, release).await;
                released.map_err(Failure::into_lock_error)?;
                return Err(LockError::Cancelled);
            }
            match reply {
                Reply::Granted(grant) => return Ok(real(grant, version)),
                Reply::Waiting(_) => {}
                Reply::Busy(blocker) if ask.wait_ms > 0 => {
                    return Err(LockError::TimedOut(Some(blocker)));
                }
                Reply::Busy(blocker) => return Err(LockError::Busy(blocker)),
                Reply::Deadlock(deadlock) => return Err(LockError::Deadlock(deadlock)),
                Reply::Ended(cause) => return Err(LockError::Ended(cause)),
                Reply::Error(error) => return Err(LockError::Invalid(error.to_string())),
                other => unreachable!("no lock is answered so: {other:?}"),
            }
            self.stand(&ask.id, &names, seq, end).await?;
        }
    }

    /// Stands in the queue until it is time to ask again: it was granted, it is not in the queue
    /// any more, or the wait is over.
    async fn stand(
        &self,
        id: &RequestId,
        names: &[Name],
        seq: u64,
        end: Instant,
    ) -> Result<(), LockError> {
        let turn = Arc::new(Notify::new());
        match self.ours.lock().get_mut(id) {
            Some(ours) => ours.state = State::Waits(Arc::clone(&turn)),
            None => return Ok(()),
        }
        // A store that has to look for changes looks more often while somebody has this.
        let _waits = self.store.changes();
        // What happened before this was known is seen by the look that follows.
        self.poke.notify_one();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let told = tokio::time::timeout(TOUCH.min(left), turn.notified()).await.is_ok();
            if told || Instant::now() >= end {
                return Ok(());
            }
            // A number of 0: it was in the queue before this process asked, and this asks again.
            match self.store.touch(names.to_vec(), seq, LIVE_MS).await {
                Ok(false) => return Ok(()),
                Ok(true) => {}
                Err(error) => tracing::debug!(error.text, "a waiter could not say that it lives"),
            }
        }
    }

    /// The names of a request that this process may not know.
    async fn find(&self, id: &RequestId) -> Result<Vec<Name>, Failure> {
        if let Some(ours) = self.ours.lock().get(id) {
            return Ok(ours.names.clone());
        }
        let all = Scene::new(self.store.read_all().await?)?;
        let table = all.table()?;
        let found = table.standings().find(|standing| standing.id == *id);
        Ok(found.iter().flat_map(super::decide::names).collect())
    }
}

/// With the token that the write gave it.
fn real(grant: Grant, version: u64) -> Grant {
    match grant.token > FRESH {
        true => Grant { token: version + (grant.token - FRESH - 1), ..grant },
        false => grant,
    }
}

impl<S: Store> Strategy for Records<S> {
    fn acquire(&self, ask: Acquire) -> Pending<Result<Granted, LockError>> {
        if ask.detect {
            let text = "a record store cannot detect deadlocks: use the lock server for that";
            return Box::pin(std::future::ready(Err(LockError::Invalid(text.into()))));
        }
        let mut names: BTreeSet<Name> =
            ask.parts().map(|part| part.resource.name().into()).collect();
        let since = Moment::now();
        let id = ask.id.clone();
        let known = {
            let mut ours = self.0.ours.lock();
            // An id that is in use here must ask for the same as before, so that is looked at too.
            names.extend(ours.get(&id).iter().flat_map(|ours| ours.names.clone()));
            let names = names.iter().cloned().collect();
            let state = ours.get(&id).map_or(State::Asked, |ours| ours.state.clone());
            ours.insert(id.clone(), Ours { names, state })
        };
        let names: Vec<Name> = names.into_iter().collect();
        let granted = self.submit(&names.clone(), |shared, place| async move {
            let granted = shared.acquire(ask, names, place).await;
            let mut ours = shared.ours.lock();
            match &granted {
                // Not, if it was released meanwhile.
                Ok(_) => drop(ours.get_mut(&id).map(|ours| ours.state = State::Held)),
                Err(LockError::Unknown(_)) => {}
                Err(_) => match known {
                    Some(known) => drop(ours.insert(id, known)),
                    None => drop(ours.remove(&id)),
                },
            }
            drop(ours);
            granted.map(|grant| Granted { grant, since })
        });
        Box::pin(async move {
            let given_up = LockError::Unknown("the runtime has ended".into());
            granted.await.unwrap_or(Err(given_up))
        })
    }

    fn release(&self, id: &RequestId) -> Pending<Released> {
        let names = self.names_of(id);
        let id = id.clone();
        let released = self.submit(&names.unwrap_or_default(), |shared, mut place| async move {
            place.turn().await;
            let Ok(names) = shared.find(&id).await else { return Released::Unknown };
            // Whoever waits for it here is to stop.
            if let Some(Ours { state: State::Waits(turn), .. }) = shared.ours.lock().remove(&id) {
                turn.notify_one();
            }
            match shared.act(names, Command::Release(Target::Id(id))).await {
                Ok(Acted { reply: Reply::Released, .. }) => Released::Released,
                Ok(Acted { repeated: true, .. }) | Err(_) => Released::Unknown,
                Ok(_) => Released::NotHeld,
            }
        });
        Box::pin(async move { released.await.unwrap_or(Released::Unknown) })
    }

    fn renew(&self, id: &RequestId, lease_ms: Option<u64>) -> Pending<Option<Renewed>> {
        let id = id.clone();
        let since = Moment::now();
        let renewed = self.submit(&[], |shared, _| async move {
            let names = shared.find(&id).await.ok()?;
            let command = Command::Renew(Target::Id(id.clone()), lease_ms);
            let reply = shared.act(names.clone(), command).await.ok()?.reply;
            if let Reply::Renewed(left) = reply {
                let end = left.map(|left| since.after(Duration::from_millis(left)));
                return Some(Renewed::Until(end));
            }
            if let Reply::Error(error) = reply {
                return Some(Renewed::Refused(error.to_string()));
            }
            let scene = shared.scene(names).await.ok()?;
            Some(Renewed::Lost(scene.note(&id).map_or(Lost::Expired, Note::as_lost)))
        });
        Box::pin(async move { renewed.await.flatten() })
    }

    fn promote(&self, id: &RequestId) -> Pending<Result<Granted, PromoteError>> {
        let id = id.clone();
        let since = Moment::now();
        let promoted = self.submit(&[], |shared, _| async move {
            let unknown = |failure: Failure| PromoteError::Unknown(failure.text().0);
            let names = shared.find(&id).await.map_err(unknown)?;
            let acted = shared.act(names, Command::Promote(Target::Id(id))).await;
            let Acted { reply, version, .. } = acted.map_err(unknown)?;
            match reply {
                Reply::Promoted(grant) => Ok(Granted { grant: real(grant, version), since }),
                Reply::Busy(blocker) => Err(PromoteError::Busy(blocker)),
                Reply::Error(error) => Err(PromoteError::Invalid(error.to_string())),
                _ => Err(PromoteError::Lost(Lost::Expired)),
            }
        });
        let ended = PromoteError::Unknown("the runtime has ended".into());
        Box::pin(async move { promoted.await.unwrap_or(Err(ended)) })
    }

    fn list(&self, query: LocksQuery) -> Pending<Result<Vec<Entry>, ListError>> {
        let listed = self.submit(&[], |shared, _| async move {
            let unreachable = |failure: Failure| ListError::Unreachable(failure.text().0);
            let view = shared.store.read_all().await.map_err(|error| unreachable(error.into()))?;
            let now = view.now;
            let scene = Scene::new(view).map_err(|nonsense| unreachable(nonsense.into()))?;
            let table = scene.table().map_err(|nonsense| unreachable(nonsense.into()))?;
            match table.query(now, &Query::Locks(query)) {
                Answer::Entries(entries) => Ok(entries),
                other => unreachable!("entries were asked for: {other:?}"),
            }
        });
        let ended = ListError::Unreachable("the runtime has ended".into());
        Box::pin(async move { listed.await.unwrap_or(Err(ended)) })
    }

    fn revoke(&self, token: u64, reason: &str) -> Pending<Result<bool, ListError>> {
        let reason = reason.into();
        let revoked = self.submit(&[], |shared, _| async move {
            let unreachable = |failure: Failure| ListError::Unreachable(failure.text().0);
            let view = shared.store.read_all().await.map_err(|error| unreachable(error.into()))?;
            let scene = Scene::new(view).map_err(|nonsense| unreachable(nonsense.into()))?;
            let Some(holder) = scene.holder_of(token) else { return Ok(false) };
            let names = super::decide::names(holder).collect();
            let acted = shared.act(names, Command::Revoke(token, reason)).await;
            match acted.map_err(unreachable)?.reply {
                Reply::Revoked(was) => Ok(was),
                Reply::Error(error) => Err(ListError::Refused(error.to_string())),
                other => unreachable!("no revocation is answered so: {other:?}"),
            }
        });
        let ended = ListError::Unreachable("the runtime has ended".into());
        Box::pin(async move { revoked.await.unwrap_or(Err(ended)) })
    }
}
