//! `memory:` the table in this process, and nothing else. For one program, and for tests.

mod tasks;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use keylatch_table::{
    Acquire, Answer, Applied, Command, Entry, Event, Grant, LocksQuery, Query, Reply, RequestId,
    Settings, Table, Target, TaskReply,
};
use parking_lot::Mutex;
use rand::RngCore;
use tokio::sync::{Notify, mpsc, oneshot};

use super::{Granted, Loss, Pending, Renewed, Strategy};
use crate::clock::Moment;
use crate::error::{ListError, LockError, PromoteError};
use crate::event::Watchers;
use crate::guard::{Lost, Released};
use crate::releasing::Counted;

type Outcome = Result<Grant, LockError>;

pub(crate) struct Memory(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Something ends earlier than the ticker knows.
    sooner: Notify,
    start: Instant,
}

struct State {
    table: Table,
    waiting: HashMap<RequestId, oneshot::Sender<Outcome>>,
    /// Claims that wait. Their ids are of a kind of their own; all who ask under one are told.
    claims: HashMap<RequestId, Vec<oneshot::Sender<TaskReply>>>,
    losses: mpsc::UnboundedSender<Loss>,
    watchers: Watchers,
    /// When the ticker wakes.
    wakes: Option<u64>,
}

impl Memory {
    pub(crate) fn new(losses: mpsc::UnboundedSender<Loss>) -> Memory {
        // As every new table: tokens must not fall back when this program starts again.
        let token = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let table = Table::new(Settings::default(), token as u64, rand::rng().next_u64());
        let (waiting, claims, watchers) = (HashMap::new(), HashMap::new(), Watchers::default());
        let state = State { table, waiting, claims, losses, watchers, wakes: None };
        let (state, sooner) = (Mutex::new(state), Notify::new());
        let shared = Arc::new(Shared { state, sooner, start: Instant::now() });
        tokio::spawn(tick(Arc::downgrade(&shared)));
        Memory(shared)
    }
}

/// Lets time pass, as long as there is a table.
async fn tick(shared: Weak<Shared>) {
    loop {
        let Some(here) = shared.upgrade() else { return };
        here.apply(Command::Tick);
        let wait = {
            let mut state = here.state.lock();
            state.wakes = state.table.next_deadline();
            state.wakes.map(|at| Duration::from_millis(at.saturating_sub(here.now())))
        };
        // Once a second it looks whether the table is still there.
        let wait = wait
            .unwrap_or(Duration::from_secs(1))
            .clamp(Duration::from_millis(1), Duration::from_secs(1));
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = here.sooner.notified() => {}
        }
    }
}

impl Shared {
    fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    fn apply(&self, command: Command) -> Reply {
        self.apply_to(&mut self.state.lock(), command)
    }

    fn apply_to(&self, state: &mut State, command: Command) -> Reply {
        let now = self.now();
        let Applied { reply, events } = state.table.apply(now, command);
        for event in events {
            state.tell(event);
        }
        let next = state.table.next_deadline();
        if next.is_some_and(|next| state.wakes.is_none_or(|wakes| next < wakes)) {
            self.sooner.notify_one();
        }
        reply
    }

    fn query(&self, query: &Query) -> Answer {
        self.state.lock().table.query(self.now(), query)
    }
}

impl State {
    fn tell(&mut self, event: Event) {
        self.watchers.tell(&event);
        let (id, outcome) = match event {
            Event::Granted { id, grant } => (id, Ok(grant)),
            Event::TimedOut { id, blocker, .. } => (id, Err(LockError::TimedOut(Some(blocker)))),
            Event::Deadlocked { id, deadlock, .. } => (id, Err(LockError::Deadlock(deadlock))),
            Event::Withdrawn { id, .. } => (id, Err(LockError::Cancelled)),
            Event::Lost { id, cause, reason, .. } => {
                // If nobody listens any more, nobody holds anything.
                drop(self.losses.send((id, Lost::from_cause(cause, reason))));
                return;
            }
            Event::Task(event) => return self.tell_claim(event),
        };
        if let Some(waiter) = self.waiting.remove(&id) {
            drop(waiter.send(outcome));
        }
    }
}

fn ready<T: Send + 'static>(value: T) -> Pending<T> {
    Box::pin(std::future::ready(value))
}

impl Strategy for Memory {
    fn acquire(&self, ask: Acquire) -> Pending<Result<Granted, LockError>> {
        let since = Moment::now();
        let granted = move |grant| Granted { grant, since };
        // Whoever is told must be there before anything is said.
        let (send, outcome) = oneshot::channel();
        let id = ask.id.clone();
        if ask.wait_ms > 0 {
            self.0.state.lock().waiting.insert(id.clone(), send);
        }
        let reply = self.0.apply(Command::Acquire(ask));
        if !matches!(reply, Reply::Waiting(_)) {
            self.0.state.lock().waiting.remove(&id);
        }
        ready(match reply {
            Reply::Granted(grant) => Ok(granted(grant)),
            Reply::Waiting(_) => {
                return Box::pin(async move {
                    let outcome = outcome.await.unwrap_or(Err(LockError::Cancelled));
                    outcome.map(granted)
                });
            }
            Reply::Busy(blocker) => Err(LockError::Busy(blocker)),
            Reply::Deadlock(deadlock) => Err(LockError::Deadlock(deadlock)),
            Reply::Ended(cause) => Err(LockError::Ended(cause)),
            Reply::Error(error) => Err(LockError::Invalid(error.to_string())),
            other => unreachable!("no lock is answered so: {other:?}"),
        })
    }

    fn release(&self, id: &RequestId, _counted: Counted) -> Pending<Released> {
        let reply = self.0.apply(Command::Release(Target::Id(id.clone())));
        ready(match reply {
            Reply::Released => Released::Released,
            _ => Released::NotHeld,
        })
    }

    fn renew(&self, id: &RequestId, lease_ms: Option<u64>) -> Pending<Option<Renewed>> {
        let now = Moment::now();
        let reply = self.0.apply(Command::Renew(Target::Id(id.clone()), lease_ms));
        ready(Some(match reply {
            Reply::Renewed(left) => {
                Renewed::Until(left.map(|left| now.after(Duration::from_millis(left))))
            }
            Reply::Lost(loss) => {
                loss.map_or(Renewed::NotHeld, |loss| Renewed::Lost(Lost::from_loss(loss)))
            }
            Reply::Error(error) => Renewed::Refused(error.to_string()),
            other => unreachable!("no renewal is answered so: {other:?}"),
        }))
    }

    fn promote(&self, id: &RequestId) -> Pending<Result<Granted, PromoteError>> {
        let since = Moment::now();
        let reply = self.0.apply(Command::Promote(Target::Id(id.clone())));
        ready(match reply {
            Reply::Promoted(grant) => Ok(Granted { grant, since }),
            Reply::Busy(blocker) => Err(PromoteError::Busy(blocker)),
            Reply::Lost(None) => Err(PromoteError::NotHeld),
            Reply::Lost(Some(loss)) => Err(PromoteError::Lost(Lost::from_loss(loss))),
            Reply::Error(error) => Err(PromoteError::Invalid(error.to_string())),
            other => unreachable!("no promotion is answered so: {other:?}"),
        })
    }

    fn list(&self, query: LocksQuery) -> Pending<Result<Vec<Entry>, ListError>> {
        let Answer::Entries(entries) = self.0.query(&Query::Locks(query)) else {
            unreachable!("entries were asked for");
        };
        ready(Ok(entries))
    }

    fn revoke(&self, token: u64, reason: &str) -> Pending<Result<bool, ListError>> {
        let reply = self.0.apply(Command::Revoke(token, reason.into()));
        ready(match reply {
            Reply::Revoked(was) => Ok(was),
            Reply::Error(error) => Err(ListError::Refused(error.to_string())),
            other => unreachable!("no revocation is answered so: {other:?}"),
        })
    }

    fn watch(&self) -> Pending<Result<mpsc::Receiver<crate::Event>, ListError>> {
        ready(Ok(self.0.state.lock().watchers.add()))
    }
}
