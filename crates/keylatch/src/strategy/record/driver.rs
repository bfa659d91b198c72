//! The strategy over any record store: what is asked takes its place in the line of its names, is acted on when it is
//! its turn, and waits until it is granted.

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
use super::alone;
use super::decide::{self, Nonsense, Scene};
use super::format::{self, Note};
use super::known::Known;
use super::line::{Batch, Line};
use super::mine::{Mine, Ours, State};
use super::store::{Name, Store, StoreError, View};
use super::tasks::Tasks;
use super::watcher::{self, Poke};
use crate::carried::Carried;
use crate::clock::Moment;
use crate::error::{ListError, LockError, PromoteError, TaskError};
use crate::guard::{Lost, Released};
use crate::releasing::Counted;
use crate::tasks::Task;

pub(crate) struct Records<S>(Arc<Shared<S>>, OnceLock<Option<Tasks>>);

pub(super) struct Shared<S> {
    pub(super) store: S,
    pub(super) books: Mutex<Books>,
    pub(super) losses: mpsc::UnboundedSender<Loss>,
    pub(super) pokes: mpsc::UnboundedSender<Poke>,
    /// The rules, for where nobody is.
    pub(super) rules: Table,
    /// Guards are dropped anywhere.
    pub(super) runtime: Handle,
}

/// Whatever this process keeps in mind. One lock for all of it: most of what is done needs most of it, and a lock that
/// two threads want at the same time costs more than what is done under it.
#[derive(Default)]
pub(super) struct Books {
    pub(super) line: Line<Job>,
    pub(super) mine: Mine,
    pub(super) known: Known,
}

/// A command on its way; without one, only its turn is waited for.
pub(super) struct Job {
    pub(super) command: Option<Command>,
    pub(super) asker: Asker,
}

/// Who is to be answered.
pub(super) struct Asker {
    pub(super) done: oneshot::Sender<Result<Acted, Failure>>,
    /// Of a release that has no answer yet.
    pub(super) counted: Option<Counted>,
}

impl Asker {
    pub(super) fn answer(self, answer: Result<Acted, Failure>) {
        // Perhaps nobody waits for it any more.
        drop(self.done.send(answer));
        drop(self.counted);
    }
}

/// A command in its line.
pub(super) struct Entered {
    /// If it is its turn.
    pub(super) work: Option<Carried<()>>,
    pub(super) asked: oneshot::Receiver<Result<Acted, Failure>>,
}

impl Entered {
    async fn answer(self) -> Result<Acted, Failure> {
        let answer = match self.work {
            Some(work) => work.or(self.asked).await,
            None => self.asked.await.ok(),
        };
        answer.unwrap_or_else(|| Err(Failure::ended()))
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
    pub(super) reply: Reply,
    /// When it was asked for: what it leases counts from then at the earliest.
    pub(super) since: Moment,
    /// Of one that waits.
    pub(super) seq: u64,
    /// An earlier try may have done it.
    pub(super) repeated: bool,
    /// It counts as held here already.
    pub(super) held: bool,
}

impl Acted {
    fn plain(reply: Reply) -> Acted {
        Acted::at(reply, Moment::now())
    }

    pub(super) fn at(reply: Reply, since: Moment) -> Acted {
        Acted { reply, since, seq: 0, repeated: false, held: false }
    }
}

/// So much longer than its wait a request may last if the store does not answer.
const OVERTIME: Duration = Duration::from_secs(6);
impl<S: Store> Records<S> {
    pub(crate) fn new(store: S, losses: mpsc::UnboundedSender<Loss>) -> Records<S> {
        let told = store.told();
        let (pokes, poked) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            store,
            books: Mutex::default(),
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
        self.enter_in(&mut self.books.lock(), names, command, None)
    }

    pub(super) fn enter_in(
        self: &Arc<Self>,
        books: &mut Books,
        names: Vec<Name>,
        command: Option<Command>,
        counted: Option<Counted>,
    ) -> Entered {
        let (done, asked) = oneshot::channel();
        let job = Job { command, asker: Asker { done, counted } };
        let passing = names.iter().any(|name| books.mine.relays.is_at(name));
        let called = match books.line.enter(names, job) {
            Ok(called) => called,
            Err(before) => {
                // It depends on them now.
                before.iter().filter_map(Weak::upgrade).for_each(|before| before.push());
                return Entered { work: None, asked };
            }
        };
        let work = Carried::new(&self.runtime, Box::pin(Arc::clone(self).work(called, passing)));
        books.line.carried(called, work.pusher());
        Entered { work: Some(work), asked }
    }

    /// What ends once everything that is under way on this name is answered, if anything is.
    pub(super) fn turn_if_busy(self: &Arc<Self>, name: &Name) -> Option<impl Future + use<S>> {
        let busy = self.books.lock().line.is_busy(name);
        busy.then(|| self.submit(vec![name.clone()], None))
    }

    /// Does what it is its turn. Whatever comes next by that is others'.
    async fn work(self: Arc<Self>, called: u64, passing: bool) {
        if passing {
            // Whoever was passed the lock by this mostly gives it up at once: then that is the same write.
            tokio::task::yield_now().await;
        }
        for next in self.batch(called).await {
            self.start(next);
        }
    }

    pub(super) fn start(self: &Arc<Self>, called: u64) {
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
        let batch = self.books.lock().line.begin(called);
        let simple = match &batch.jobs[..] {
            [Job { command: Some(command), .. }] => {
                let prepared = self.prepare(&batch.names, command);
                alone::simple(&mut self.books.lock(), &batch.names, command, prepared)
            }
            _ => None,
        };
        let Some(simple) = simple else { return self.carry_out(batch, None).await };
        let (name, number, job) = batch.into_one();
        if let Some(work) = self.land(name, number, job, simple) {
            work.await;
        }
        // Whoever is next begins when it has landed.
        Vec::new()
    }

    /// The same, also if something was tried already.
    pub(super) async fn carry_out(
        self: &Arc<Self>,
        mut batch: Batch<Job>,
        tried: Option<Result<(View, Moment), StoreError>>,
    ) -> Vec<u64> {
        let jobs = std::mem::take(&mut batch.jobs);
        let (mut commands, mut asked) = (Vec::new(), Vec::new());
        // Those whom only the names concern, and those whose lock somebody has already.
        let (mut turns, mut gone) = (Vec::new(), Vec::new());
        for job in jobs {
            match job.command {
                None => turns.push(job.asker),
                Some(command) if self.is_gone(&command) => gone.push(job.asker),
                Some(command) => {
                    commands.push(command);
                    asked.push(job.asker);
                }
            }
        }
        if !commands.is_empty() || !gone.is_empty() {
            match self.act(&batch.names, &commands, tried).await {
                Ok(acted) => {
                    for (asker, acted) in asked.into_iter().zip(acted) {
                        asker.answer(Ok(acted));
                    }
                    for asker in gone {
                        asker.answer(Ok(Acted::plain(Reply::Released)));
                    }
                }
                Err(failure) => {
                    for asker in asked.into_iter().chain(gone) {
                        asker.answer(Err(failure.clone()));
                    }
                }
            }
        }
        for asker in turns {
            asker.answer(Ok(Acted::plain(Reply::Done)));
        }
        self.books.lock().line.done(&batch)
    }

    /// Whether this gives up what another one of ours has already.
    fn is_gone(&self, command: &Command) -> bool {
        match command {
            Command::Release(Target::Id(id)) => self.books.lock().mine.relays.is_gone(id),
            _ => false,
        }
    }

    /// Whatever the rules say now on these names.
    pub(super) fn tick(self: &Arc<Self>, names: Vec<Name>) {
        drop(self.submit(names, Some(Command::Tick)));
    }

    /// Until it is granted or the wait is over. Whether it counts as held already.
    async fn acquire(
        self: &Arc<Self>,
        ask: &Acquire,
        names: Vec<Name>,
        mut asked: Entered,
    ) -> Result<(Granted, bool), LockError> {
        let end = Instant::now() + Duration::from_millis(ask.wait_ms);
        let mut again = false;
        loop {
            let latest = end.max(Instant::now()) + OVERTIME;
            let acted = tokio::time::timeout_at(latest, asked.answer()).await;
            let acted = acted.unwrap_or_else(|_| Err(Failure::late()));
            if again {
                self.books.lock().mine.relays.answered(&ask.id);
            }
            let Acted { reply, since, seq, held, .. } = acted.map_err(Failure::into_lock_error)?;
            match reply {
                Reply::Granted(grant) => return Ok((Granted { grant, since }, held)),
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
            // In a box: it is large, and not needed by who does not wait.
            if let Some(grant) = Box::pin(self.stand(&ask.id, &names, seq, end)).await?
                && self.books.lock().mine.takes(&ask.id)
            {
                return Ok((grant, false));
            }
            again = true;
            let left = end.saturating_duration_since(Instant::now());
            let wait_ms = (left.as_millis() as u64).min(ask.wait_ms);
            let command = Command::Acquire(Acquire { wait_ms, ..ask.clone() });
            // Not after a release: whoever gives up is behind this in the line, or this is not asked.
            let mut books = self.books.lock();
            if books.mine.get(&ask.id).is_none() {
                return Err(LockError::Cancelled);
            }
            books.mine.relays.asks(&ask.id);
            asked = self.enter_in(&mut books, names.clone(), Some(command), None);
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
            let mine = &mut self.books.lock().mine;
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
            && let Some(turn) = self.books.lock().mine.queued(id, seq)
        {
            turn.send_modify(|call| call.again = false);
        }
        Ok(grant)
    }

    /// Until what was passed on here is written: then others see it as it is.
    async fn write_all(self: &Arc<Self>) {
        let names = self.books.lock().mine.relays.unwritten();
        for name in names {
            drop(self.submit(vec![name], None).await);
        }
    }

    /// The names of a request that this process may not know.
    async fn find(&self, id: &RequestId) -> Result<Vec<Name>, Failure> {
        if let Some(ours) = self.books.lock().mine.get(id) {
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

/// With the token that the write gave it.
pub(super) fn real(grant: &Grant, version: u64) -> Grant {
    Grant { token: format::real(grant.token, version), ..grant.clone() }
}

/// In their order.
fn names_of(ask: &Acquire) -> Vec<Name> {
    let mut names: Vec<Name> = ask.parts().map(|part| part.resource.name().into()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// What came of a release.
fn released(acted: &Result<Acted, Failure>) -> Released {
    match acted {
        Ok(Acted { reply: Reply::Released, .. }) => Released::Released,
        Ok(Acted { repeated: true, .. }) | Err(_) => Released::Unknown,
        Ok(_) => Released::NotHeld,
    }
}

impl<S: Store> Strategy for Records<S> {
    fn acquire(&self, ask: Acquire) -> Pending<Result<Granted, LockError>> {
        if ask.detect {
            let text = "a record store cannot detect deadlocks: use the lock server for that";
            return Box::pin(std::future::ready(Err(LockError::Invalid(text.into()))));
        }
        let shared = Arc::clone(&self.0);
        let mut names = names_of(&ask);
        let command = Command::Acquire(ask.clone());
        let prepared = shared.prepare(&names, &command);
        let ours = Ours { names: names.clone(), ask: ask.clone(), state: State::Asked };
        let (known, at_once) = {
            let mut books = shared.books.lock();
            let known = books.mine.get(&ask.id).is_some();
            if let Some(known) = books.mine.get(&ask.id) {
                // An id that is in use here must ask for the same as before, so that is looked at too.
                names.extend_from_slice(&known.names);
                names.sort_unstable();
                names.dedup();
            } else {
                books.mine.insert(ours);
            }
            let names = names.clone();
            (known, shared.enter_at_once(&mut books, names, command, None, prepared))
        };
        let asked = shared.sent(at_once);
        Box::pin(async move {
            let granted = shared.acquire(&ask, names, asked).await;
            let granted = match granted {
                Ok((granted, true)) => return Ok(granted),
                Ok((granted, false)) => Ok(granted),
                Err(error) => Err(error),
            };
            let mut books = shared.books.lock();
            match &granted {
                // Released meanwhile: that is behind it in the line.
                Ok(_) if !books.mine.set(&ask.id, State::Held) => return Err(LockError::Cancelled),
                Ok(_) | Err(LockError::Unknown(_) | LockError::Cancelled) => {}
                // A second one that asks under an id says nothing of the first.
                Err(_) if known => {}
                Err(_) => {
                    if let Some(ours) = books.mine.remove(&ask.id)
                        && books.mine.relays.has(&ours.names, &ask.id)
                    {
                        // It came after all.
                        let release = Command::Release(Target::Id(ask.id.clone()));
                        books.mine.pass(&ask.id, &ours.names);
                        // Dropped, so it goes on by itself.
                        let gone = shared.enter_in(&mut books, ours.names, Some(release), None);
                        drop(books);
                        drop(gone);
                    }
                }
            }
            granted
        })
    }

    fn release(&self, id: &RequestId, counted: Counted) -> Pending<Released> {
        let (shared, id) = (Arc::clone(&self.0), id.clone());
        let command = Command::Release(Target::Id(id.clone()));
        let mut books = shared.books.lock();
        // Whoever waits for it here is to stop: its turn is dropped with it.
        let ours = books.mine.remove(&id);
        books.mine.relays.answered(&id);
        let Some(ours) = ours else {
            drop(books);
            let runtime = shared.runtime.clone();
            let acted = async move { released(&shared.command(&id, command).await) };
            return counted.carry(&runtime, Box::pin(acted));
        };
        books.mine.pass(&id, &ours.names);
        let at_once = shared.enter_at_once(&mut books, ours.names, command, Some(counted), None);
        drop(books);
        let asked = shared.sent(at_once);
        Box::pin(async move { released(&asked.answer().await) })
    }

    fn hurry(&self) {
        let carriers = self.0.books.lock().line.carriers();
        carriers.iter().filter_map(Weak::upgrade).for_each(|carrier| carrier.push());
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
            match reply {
                Reply::Error(error) => return Some(Renewed::Refused(error.to_string())),
                Reply::Lost(Some(loss)) => return Some(Renewed::Lost(Lost::from_loss(loss))),
                _ => {}
            }
            let names = shared.find(&id).await.ok()?;
            let scene = shared.scene(names).await.ok()?;
            let noted = scene.note(&id).map(Note::as_lost);
            Some(noted.map_or(Renewed::NotHeld, Renewed::Lost))
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
                Reply::Lost(Some(loss)) => Err(PromoteError::Lost(Lost::from_loss(loss))),
                _ => Err(PromoteError::NotHeld),
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
            let table = scene.shown().map_err(|error| Failure::from(error).into_list_error())?;
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

    fn hold(&self) -> Option<Box<dyn Send>> {
        self.begun()?.hold()
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
