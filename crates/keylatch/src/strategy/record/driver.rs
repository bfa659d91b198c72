//! The strategy over any record store: lets the table decide on what is known, writes, and waits for
//! its turn.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use keylatch_table::{
    Acquire, Answer, Command, Entry, Grant, LocksQuery, PoolCounts, Query, Reply, RequestId, Table,
    Target, TaskCommand, TaskReply, TasksQuery,
};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::super::{Granted, Loss, Pending, Renewed, Strategy, TaskStrategy};
use super::alone::{self, Tried};
use super::decide::{self, Nonsense, Scene};
use super::format::{self, Note};
use super::known::Known;
use super::line::Line;
use super::mine::{Call, Mine, Ours, State};
use super::relay::{Pass, Plan};
use super::store::{Change, Committed, Done, Name, Store, StoreError, View};
use super::tasks::Tasks;
use super::watcher::{self, Poke};
use crate::carried::Carried;
use crate::clock::Moment;
use crate::error::{ListError, LockError, PromoteError, TaskError};
use crate::guard::{Lost, Released};
use crate::tasks::Task;

pub(crate) struct Records<S>(Arc<Shared<S>>, OnceLock<Option<Tasks>>);

pub(super) struct Shared<S> {
    pub(super) store: S,
    line: Mutex<Line<Job>>,
    pub(super) mine: Mutex<Mine>,
    pub(super) known: Mutex<Known>,
    pub(super) losses: mpsc::UnboundedSender<Loss>,
    pub(super) pokes: mpsc::UnboundedSender<Poke>,
    /// The rules, for where nobody is.
    pub(super) rules: Table,
    /// Guards are dropped anywhere.
    runtime: Handle,
}

/// A command on its way; without one, only its turn is waited for.
struct Job {
    command: Option<Command>,
    done: oneshot::Sender<Result<Acted, Failure>>,
}

/// A command in its line.
struct Entered {
    /// If it is its turn.
    work: Option<Carried<()>>,
    asked: oneshot::Receiver<Result<Acted, Failure>>,
}

impl Entered {
    async fn answer(self) -> Result<Acted, Failure> {
        if let Some(work) = self.work {
            work.await;
        }
        self.asked.await.unwrap_or_else(|_| Err(Failure::ended()))
    }
}

/// Why there is no reply.
#[derive(Clone, Debug)]
pub(super) enum Failure {
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

    fn ended() -> Failure {
        Failure::Store(StoreError { text: "the runtime has ended".into(), unknown: true })
    }

    fn late() -> Failure {
        Failure::Store(StoreError { text: "no answer came in time".into(), unknown: true })
    }

    fn into_lock_error(self) -> LockError {
        match self.text() {
            (text, true) => LockError::Unknown(text),
            (text, false) => LockError::Unreachable(text),
        }
    }

    fn into_list_error(self) -> ListError {
        ListError::Unreachable(self.text().0)
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

/// A reply to a command.
#[derive(Clone)]
pub(super) struct Acted {
    reply: Reply,
    /// When it was asked for: what it leases counts from then at the earliest.
    since: Moment,
    /// Of one that waits.
    seq: u64,
    /// An earlier try may have done it.
    repeated: bool,
}

impl Acted {
    fn plain(reply: Reply) -> Acted {
        Acted::at(reply, Moment::now())
    }

    pub(super) fn at(reply: Reply, since: Moment) -> Acted {
        Acted { reply, since, seq: 0, repeated: false }
    }
}

/// How long a store may be away before its answer is not waited for any more.
const PATIENCE: Duration = Duration::from_secs(10);
/// So much longer than its wait a request may last if the store does not answer.
const OVERTIME: Duration = Duration::from_secs(6);
/// Between two tries.
const RETRY: Duration = Duration::from_millis(100);

impl<S: Store> Records<S> {
    pub(crate) fn new(store: S, losses: mpsc::UnboundedSender<Loss>) -> Records<S> {
        let told = store.told();
        let (pokes, poked) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            store,
            line: Mutex::default(),
            mine: Mutex::default(),
            known: Mutex::default(),
            losses,
            pokes,
            rules: alone::rules(),
            runtime: Handle::current(),
        });
        tokio::spawn(watcher::run(Arc::downgrade(&shared), told, poked));
        Records(shared, OnceLock::new())
    }
}

impl<S: Store> Shared<S> {
    /// A command takes its place in the line of these names.
    fn submit(
        self: &Arc<Self>,
        names: Vec<Name>,
        command: Option<Command>,
    ) -> oneshot::Receiver<Result<Acted, Failure>> {
        // Dropped, so it goes on by itself.
        self.enter(names, command).asked
    }

    /// The same; if it is its turn, whoever waits for the answer does the work.
    fn enter(self: &Arc<Self>, names: Vec<Name>, command: Option<Command>) -> Entered {
        let (done, asked) = oneshot::channel();
        let mut line = self.line.lock();
        match line.enter(names, Job { command, done }) {
            Ok(called) => {
                let work = Box::pin(Arc::clone(self).work(called));
                let work = Carried::new(&self.runtime, work);
                line.carried(called, work.pusher());
                Entered { work: Some(work), asked }
            }
            Err(before) => {
                drop(line);
                // It depends on them now.
                before.iter().filter_map(Weak::upgrade).for_each(|before| before.push());
                Entered { work: None, asked }
            }
        }
    }

    /// What ends once everything that is under way on this name is answered, if anything is.
    pub(super) fn turn_if_busy(self: &Arc<Self>, name: &Name) -> Option<impl Future + use<S>> {
        let busy = self.line.lock().is_busy(name);
        busy.then(|| self.submit(vec![name.clone()], None))
    }

    /// Does what it is its turn. Whatever comes next by that is others'.
    async fn work(self: Arc<Self>, called: u64) {
        for next in self.batch(called).await {
            self.start(next);
        }
    }

    fn start(self: &Arc<Self>, called: u64) {
        self.runtime.spawn(Arc::clone(self).go_on(called));
    }

    /// Does what it is its turn, and whatever comes next by that, where somebody was just answered.
    async fn go_on(self: Arc<Self>, mut called: u64) {
        loop {
            // Whoever was told by the last one first says what it wants next, so that goes along: the
            // release of one and the next request of another are one call, not two.
            tokio::task::yield_now().await;
            let mut next = self.batch(called).await.into_iter();
            let Some(first) = next.next() else { return };
            next.for_each(|next| self.start(next));
            called = first;
        }
    }

    /// Does what it is its turn, with all that goes along; which are called by that.
    async fn batch(self: &Arc<Self>, called: u64) -> Vec<u64> {
        let mut batch = self.line.lock().begin(called);
        let jobs = std::mem::take(&mut batch.jobs);
        let (mut commands, mut asked) = (Vec::new(), Vec::new());
        // Those whom only the names concern, and those whose lock somebody has already.
        let (mut turns, mut gone) = (Vec::new(), Vec::new());
        for job in jobs {
            match job.command {
                None => turns.push(job.done),
                Some(command) if self.is_gone(&command) => gone.push(job.done),
                Some(command) => {
                    commands.push(command);
                    asked.push(job.done);
                }
            }
        }
        if !commands.is_empty() || !gone.is_empty() {
            match self.act(&batch.names, &commands).await {
                Ok(acted) => {
                    for (done, acted) in asked.into_iter().zip(acted) {
                        drop(done.send(Ok(acted)));
                    }
                    for done in gone {
                        drop(done.send(Ok(Acted::plain(Reply::Released))));
                    }
                }
                Err(failure) => {
                    for done in asked.into_iter().chain(gone) {
                        drop(done.send(Err(failure.clone())));
                    }
                }
            }
        }
        for done in turns {
            drop(done.send(Ok(Acted::plain(Reply::Done))));
        }
        self.line.lock().done(&batch)
    }

    /// Whether this gives up what another one of ours has already.
    fn is_gone(&self, command: &Command) -> bool {
        match command {
            Command::Release(Target::Id(id)) => self.mine.lock().relays.is_gone(id),
            _ => false,
        }
    }

    /// What was passed on between requests of this process and is not written, for each of these names.
    fn passed(&self, names: &[Name]) -> Vec<Vec<Pass>> {
        let mut mine = self.mine.lock();
        names.iter().map(|name| mine.unwritten(name)).collect()
    }

    /// Lets the table decide, and writes what follows, until nobody got in between.
    ///
    /// Every command here may be repeated: it carries its id. So a store that does not answer is asked
    /// again for a while, also if what was asked may have happened.
    async fn act(
        self: &Arc<Self>,
        names: &[Name],
        commands: &[Command],
    ) -> Result<Vec<Acted>, Failure> {
        let since = Instant::now();
        let mut repeated = false;
        loop {
            match self.act_once(names, commands, repeated).await {
                Err(Failure::Store(error)) if since.elapsed() < PATIENCE => {
                    tracing::debug!(error.text, "the store is asked again");
                    repeated |= error.unknown;
                    self.known.lock().forget(names);
                    for name in names {
                        self.mine.lock().relays.stop(name);
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

    async fn act_once(
        self: &Arc<Self>,
        names: &[Name],
        commands: &[Command],
        repeated: bool,
    ) -> Result<Vec<Acted>, Failure> {
        match self.act_alone(names, commands).await? {
            Tried::Done(acted) => Ok(vec![acted]),
            // In a box: it is large, and seldom needed.
            Tried::Otherwise(view, sent) => {
                let found = Box::pin(self.complete(view, names)).await?;
                Box::pin(self.act_on(names, commands, repeated, Some((found, sent)))).await
            }
            Tried::Not => Box::pin(self.act_on(names, commands, repeated, None)).await,
        }
    }

    /// The same, whatever there is. It may have been seen just now.
    async fn act_on(
        self: &Arc<Self>,
        names: &[Name],
        commands: &[Command],
        repeated: bool,
        found: Option<(Scene, Moment)>,
    ) -> Result<Vec<Acted>, Failure> {
        let mut since = found.as_ref().map_or_else(Moment::now, |(_, sent)| *sent);
        let known = self.known.lock().scene(names);
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
            let ours = |id: &RequestId| match self.mine.lock().get(id) {
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
            let is_mine = |plan: &Plan| self.mine.lock().get(&plan.holder).is_some();
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
        let wanted = |name: &Name| self.mine.lock().has(name);
        let (unseen, known) = {
            let mut known = self.known.lock();
            let unseen = known.wrote(before, change, done, wanted);
            (unseen, names.iter().all(|name| known.has(name)))
        };
        for name in unseen {
            drop(self.pokes.send(Poke::Look(name)));
        }
        for (at, append) in change.appends.iter().enumerate() {
            // At once: whoever comes next may hand over to it.
            self.mine.lock().queued(&append.id, change.seq_of(done.version, at));
        }
        known
    }

    /// These passes are written, and this is how it goes on, if it is one name.
    fn wrote(&self, names: &[Name], passes: &[Vec<Pass>], plan: Option<&Plan>, sent: Moment) {
        let mut mine = self.mine.lock();
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
        let mut mine = self.mine.lock();
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
        let mine = self.mine.lock();
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
        let mut mine = self.mine.lock();
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
                let wanted = |name: &Name| self.mine.lock().has(name);
                self.known.lock().read(&scene.view, wanted);
                return Ok(scene);
            }
            let all: BTreeSet<Name> = scene.all_names().cloned().chain(missing).collect();
            scene = Scene::new(self.store.read(all.into_iter().collect()).await?)?;
        }
    }

    /// Whatever the rules say now on these names.
    pub(super) fn tick(self: &Arc<Self>, names: Vec<Name>) {
        drop(self.submit(names, Some(Command::Tick)));
    }

    /// Until it is granted or the wait is over.
    async fn acquire(
        self: &Arc<Self>,
        ask: Acquire,
        names: Vec<Name>,
        mut asked: Entered,
    ) -> Result<Granted, LockError> {
        let end = Instant::now() + Duration::from_millis(ask.wait_ms);
        loop {
            let latest = end.max(Instant::now()) + OVERTIME;
            let acted = tokio::time::timeout_at(latest, asked.answer()).await;
            let acted = acted.unwrap_or_else(|_| Err(Failure::late()));
            self.mine.lock().relays.answered(&ask.id);
            let Acted { reply, since, seq, .. } = acted.map_err(Failure::into_lock_error)?;
            match reply {
                Reply::Granted(grant) => return Ok(Granted { grant, since }),
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
            if let Some(grant) = self.stand(&ask.id, &names, seq, end).await?
                && self.mine.lock().takes(&ask.id)
            {
                return Ok(grant);
            }
            let left = end.saturating_duration_since(Instant::now());
            let wait_ms = (left.as_millis() as u64).min(ask.wait_ms);
            let again = Command::Acquire(Acquire { wait_ms, ..ask.clone() });
            // Not after a release: whoever gives up is behind this in the line, or this is not asked.
            let mut mine = self.mine.lock();
            if mine.get(&ask.id).is_none() {
                return Err(LockError::Cancelled);
            }
            mine.relays.asks(&ask.id);
            asked = self.enter(names.clone(), Some(again));
            drop(mine);
        }
    }

    /// Stands in the queue until it is granted, or until it is time to ask again: it is not in the
    /// queue any more, or the wait is over.
    async fn stand(
        self: &Arc<Self>,
        id: &RequestId,
        names: &[Name],
        seq: u64,
        end: Instant,
    ) -> Result<Option<Granted>, LockError> {
        let (turn, begun) = {
            let mut mine = self.mine.lock();
            let Some(turn) = mine.queued(id, seq) else {
                return Err(LockError::Cancelled);
            };
            (turn, mine.has_begun())
        };
        let mut calls = turn.subscribe();
        // From here on only what this process knows of it can call it; it ends when that is gone.
        drop(turn);
        if begun {
            drop(self.pokes.send(Poke::Waits));
        }
        let heard = calls.wait_for(|call| call.grant.is_some() || call.again);
        match tokio::time::timeout_at(end, heard).await {
            Ok(Ok(call)) if call.grant.is_some() => return Ok(call.grant.clone()),
            Ok(Err(_)) => return Err(LockError::Cancelled),
            Ok(Ok(_)) | Err(_) => {}
        }
        // What is on its way of this process comes first: it may bring the grant.
        drop(self.submit(names.to_vec(), None).await);
        let grant = calls.borrow().grant.clone();
        if grant.is_none()
            && let Some(turn) = self.mine.lock().queued(id, seq)
        {
            turn.send_modify(|call| call.again = false);
        }
        Ok(grant)
    }

    /// Until what was passed on here is written: then others see it as it is.
    async fn write_all(self: &Arc<Self>) {
        let names = self.mine.lock().relays.unwritten();
        for name in names {
            drop(self.submit(vec![name], None).await);
        }
    }

    /// The names of a request that this process may not know.
    async fn find(&self, id: &RequestId) -> Result<Vec<Name>, Failure> {
        if let Some(ours) = self.mine.lock().get(id) {
            return Ok(ours.names.clone());
        }
        let all = Scene::new(self.store.read_all().await?)?;
        let found = all.table()?.standings().find(|standing| standing.id == *id);
        let names: BTreeSet<Name> = found.iter().flat_map(decide::names).collect();
        Ok(names.into_iter().collect())
    }

    /// A command for a request, wherever it is.
    async fn command(self: &Arc<Self>, id: &RequestId, command: Command) -> Result<Acted, Failure> {
        let names = self.find(id).await?;
        self.enter(names, Some(command)).answer().await
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
        Acted { reply, since, seq, repeated: false }
    });
    acted.collect()
}

/// With the token that the write gave it.
pub(super) fn real(grant: &Grant, version: u64) -> Grant {
    Grant { token: format::real(grant.token, version), ..grant.clone() }
}

impl<S: Store> Strategy for Records<S> {
    fn acquire(&self, ask: Acquire) -> Pending<Result<Granted, LockError>> {
        if ask.detect {
            let text = "a record store cannot detect deadlocks: use the lock server for that";
            return Box::pin(std::future::ready(Err(LockError::Invalid(text.into()))));
        }
        let shared = Arc::clone(&self.0);
        let mut names: BTreeSet<Name> =
            ask.parts().map(|part| part.resource.name().into()).collect();
        let id = ask.id.clone();
        let (known, asked, names) = {
            let mut mine = shared.mine.lock();
            let known = mine.get(&id).cloned();
            // An id that is in use here must ask for the same as before, so that is looked at too.
            names.extend(known.iter().flat_map(|known| known.names.clone()));
            let names: Vec<Name> = names.into_iter().collect();
            if known.is_none() {
                mine.insert(Ours { names: names.clone(), ask: ask.clone(), state: State::Asked });
            }
            let asked = shared.enter(names.clone(), Some(Command::Acquire(ask.clone())));
            (known, asked, names)
        };
        Box::pin(async move {
            let granted = shared.acquire(ask, names, asked).await;
            let mut mine = shared.mine.lock();
            match &granted {
                // Released meanwhile: that is behind it in the line.
                Ok(_) if !mine.set(&id, State::Held) => return Err(LockError::Cancelled),
                Ok(_) | Err(LockError::Unknown(_) | LockError::Cancelled) => {}
                // A second one that asks under an id says nothing of the first.
                Err(_) if known.is_some() => {}
                Err(_) => {
                    if let Some(ours) = mine.remove(&id)
                        && mine.relays.has(&ours.names, &id)
                    {
                        // It came after all.
                        let release = Command::Release(Target::Id(id.clone()));
                        mine.pass(&id, &ours.names);
                        drop(shared.submit(ours.names, Some(release)));
                    }
                }
            }
            drop(mine);
            granted
        })
    }

    fn release(&self, id: &RequestId) -> Pending<Released> {
        let (shared, id) = (Arc::clone(&self.0), id.clone());
        let command = Command::Release(Target::Id(id.clone()));
        let ours = {
            let mut mine = shared.mine.lock();
            // Whoever waits for it here is to stop: its turn is dropped with it.
            let ours = mine.remove(&id);
            mine.relays.answered(&id);
            ours.map(|ours| {
                mine.pass(&id, &ours.names);
                shared.enter(ours.names, Some(command.clone()))
            })
        };
        Box::pin(async move {
            let acted = match ours {
                Some(asked) => asked.answer().await,
                None => shared.command(&id, command).await,
            };
            match acted {
                Ok(Acted { reply: Reply::Released, .. }) => Released::Released,
                Ok(Acted { repeated: true, .. }) | Err(_) => Released::Unknown,
                Ok(_) => Released::NotHeld,
            }
        })
    }

    fn renew(&self, id: &RequestId, lease_ms: Option<u64>) -> Pending<Option<Renewed>> {
        let (shared, id) = (Arc::clone(&self.0), id.clone());
        Box::pin(async move {
            let command = Command::Renew(Target::Id(id.clone()), lease_ms);
            let Acted { reply, since, .. } = shared.command(&id, command).await.ok()?;
            if let Reply::Renewed(left) = reply {
                let end = left.map(|left| since.after(Duration::from_millis(left)));
                return Some(Renewed::Until(end));
            }
            if let Reply::Error(error) = reply {
                return Some(Renewed::Refused(error.to_string()));
            }
            let names = shared.find(&id).await.ok()?;
            let scene = shared.scene(names).await.ok()?;
            Some(Renewed::Lost(scene.note(&id).map_or(Lost::Expired, Note::as_lost)))
        })
    }

    fn promote(&self, id: &RequestId) -> Pending<Result<Granted, PromoteError>> {
        let (shared, id) = (Arc::clone(&self.0), id.clone());
        Box::pin(async move {
            let acted = shared.command(&id, Command::Promote(Target::Id(id.clone()))).await;
            let acted = acted.map_err(|failure| PromoteError::Unknown(failure.text().0))?;
            let since = acted.since;
            match acted.reply {
                Reply::Promoted(grant) => Ok(Granted { grant, since }),
                Reply::Busy(blocker) => Err(PromoteError::Busy(blocker)),
                Reply::Error(error) => Err(PromoteError::Invalid(error.to_string())),
                _ => Err(PromoteError::Lost(Lost::Expired)),
            }
        })
    }

    fn list(&self, query: LocksQuery) -> Pending<Result<Vec<Entry>, ListError>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            shared.write_all().await;
            let view = shared.store.read_all().await;
            let view = view.map_err(|error| Failure::from(error).into_list_error())?;
            let now = view.now;
            let scene = Scene::new(view).map_err(|error| Failure::from(error).into_list_error())?;
            let table = scene.table().map_err(|error| Failure::from(error).into_list_error())?;
            match table.query(now, &Query::Locks(query)) {
                Answer::Entries(entries) => Ok(entries),
                other => unreachable!("entries were asked for: {other:?}"),
            }
        })
    }

    fn revoke(&self, token: u64, reason: &str) -> Pending<Result<bool, ListError>> {
        let (shared, reason) = (Arc::clone(&self.0), reason.into());
        Box::pin(async move {
            shared.write_all().await;
            let view = shared.store.read_all().await;
            let view = view.map_err(|error| Failure::from(error).into_list_error())?;
            let scene = Scene::new(view).map_err(|error| Failure::from(error).into_list_error())?;
            let Some(holder) = scene.holder_of(token) else { return Ok(false) };
            let names: BTreeSet<Name> = decide::names(holder).collect();
            let revoke = Some(Command::Revoke(token, reason));
            let acted = shared.enter(names.into_iter().collect(), revoke).answer().await;
            match acted.map_err(Failure::into_list_error)?.reply {
                Reply::Revoked(was) => Ok(was),
                Reply::Error(error) => Err(ListError::Refused(error.to_string())),
                other => unreachable!("no revocation is answered so: {other:?}"),
            }
        })
    }
}

const NO_TASKS: &str = "this strategy has no tasks";

impl<S: Store> Records<S> {
    /// Its tasks, begun when they are first asked for: whoever only locks does not pay for them.
    fn begun(&self) -> Option<&Tasks> {
        let begin = || {
            let _on = self.0.runtime.enter();
            self.0.store.tasks().map(Tasks::new)
        };
        self.1.get_or_init(begin).as_ref()
    }

    fn of_tasks<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Tasks) -> Pending<Result<T, ListError>>,
    ) -> Pending<Result<T, ListError>> {
        match self.begun() {
            Some(tasks) => ask(tasks),
            None => Box::pin(std::future::ready(Err(ListError::Refused(NO_TASKS.into())))),
        }
    }
}

impl<S: Store> TaskStrategy for Records<S> {
    fn task(&self, command: TaskCommand) -> Pending<Result<TaskReply, TaskError>> {
        match self.begun() {
            Some(tasks) => tasks.task(command),
            None => Box::pin(std::future::ready(Err(TaskError::Invalid(NO_TASKS.into())))),
        }
    }

    fn tasks(&self, query: TasksQuery) -> Pending<Result<Vec<Task>, ListError>> {
        self.of_tasks(|tasks| tasks.tasks(query))
    }

    fn task_entry(&self, pool: &str, key: &str) -> Pending<Result<Option<Task>, ListError>> {
        self.of_tasks(|tasks| tasks.task_entry(pool, key))
    }

    fn pools(&self, pool: Option<&str>) -> Pending<Result<Vec<PoolCounts>, ListError>> {
        self.of_tasks(|tasks| tasks.pools(pool))
    }
}
