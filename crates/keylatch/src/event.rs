//! What happens to locks and claims, for those who watch.

use keylatch_table::{
    About, Event as TableEvent, Mode, RequestId, TaskEvent as TableTaskEvent, TaskState, Text,
};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::guard::Lost;

/// What happened to a request. What a request is told at once (a grant without a wait, a refusal,
/// its own release) is not among it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// One that waited now holds its locks.
    Granted {
        /// Whose.
        id: RequestId,
        /// Under which token.
        token: u64,
        /// How long its lease is; `None` is no lease.
        lease_ms: Option<u64>,
        /// How long it waited.
        waited_ms: u64,
    },
    /// One that waited was not granted in time.
    TimedOut(RequestId, Subject),
    /// One that waited stood in a cycle of owners.
    Deadlocked(RequestId, Subject),
    /// One that waited was told to stop, or its connection stayed away.
    Cancelled(RequestId, Subject),
    /// A holder lost its locks.
    Lost {
        /// Whose.
        id: RequestId,
        /// Under which token it held them.
        token: u64,
        /// Why.
        lost: Lost,
        /// What it was.
        subject: Subject,
    },
    /// Something happened to a claim of a task.
    Task(TaskEvent),
    /// Some events were missed: the connection was lost for a while, or the watcher was too slow.
    Missed,
}

/// What happened to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskEvent {
    /// The id of the claim.
    pub id: RequestId,
    /// The pool.
    pub pool: Text,
    /// What happened.
    pub what: ClaimEvent,
}

/// What happened to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimEvent {
    /// One that waited got a task.
    Claimed {
        /// The task.
        key: Text,
        /// The token of the claim.
        token: u64,
        /// How often the task was put back before.
        attempts: u32,
        /// How long its lease is; `None` is no lease.
        lease_ms: Option<u64>,
        /// How long it waited.
        waited_ms: u64,
    },
    /// One that waited got nothing in time.
    TimedOut,
    /// One that waited was told to stop, or its connection stayed away.
    Cancelled,
    /// The task that one waited for is done or failed.
    Refused(TaskState),
    /// A lease ran out; the task is free.
    Lapsed {
        /// The task.
        key: Text,
        /// The token of the claim.
        token: u64,
    },
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The arrival number of the request.
    pub seq: u64,
    /// What it showed as its owner.
    pub owner: Text,
    /// Its resources as they are shown, such as `product(Computer,@)`.
    pub resources: Vec<(Text, Mode)>,
}

/// Events as they happen; see [`crate::Locks::watch`] and [`crate::Tasks::watch`].
pub struct Watch {
    events: mpsc::Receiver<Event>,
    /// Only those of this pool.
    pool: Option<Text>,
}

impl Watch {
    pub(crate) fn new(events: mpsc::Receiver<Event>, pool: Option<Text>) -> Watch {
        Watch { events, pool }
    }

    /// The next event; `None` if there will be none. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let event = self.events.recv().await?;
            let wanted = match (&self.pool, &event) {
                (None, _) | (_, Event::Missed) => true,
                (Some(pool), Event::Task(event)) => event.pool == *pool,
                (Some(_), _) => false,
            };
            if wanted {
                return Some(event);
            }
        }
    }
}

/// How many events a watcher may be behind.
pub(crate) const BEHIND: usize = 1_024;

/// Those who watch a place that is in this process.
#[derive(Default)]
pub(crate) struct Watchers(Mutex<Vec<Watcher>>);

struct Watcher {
    events: mpsc::Sender<Event>,
    missed: bool,
}

impl Watchers {
    pub(crate) fn add(&self) -> mpsc::Receiver<Event> {
        let (events, receiver) = mpsc::channel(BEHIND);
        self.0.lock().push(Watcher { events, missed: false });
        receiver
    }

    pub(crate) fn tell(&self, event: &TableEvent) {
        let mut watchers = self.0.lock();
        if watchers.is_empty() {
            return;
        }
        let event = Event::from_table(event);
        watchers.retain_mut(|watcher| watcher.tell(&event));
    }
}

impl Watcher {
    /// Nobody waits for a watcher that is slow. False if it is gone.
    fn tell(&mut self, event: &Event) -> bool {
        if self.missed && self.events.try_send(Event::Missed).is_ok() {
            self.missed = false;
        }
        self.missed = self.missed || self.events.try_send(event.clone()).is_err();
        !self.events.is_closed()
    }
}

impl Event {
    fn from_table(event: &TableEvent) -> Event {
        match event.clone() {
            TableEvent::Granted { id, grant } => Event::Granted {
                id,
                token: grant.token,
                lease_ms: grant.lease_ms,
                waited_ms: grant.waited_ms,
            },
            TableEvent::TimedOut { id, about, .. } => Event::TimedOut(id, Subject::new(&about)),
            TableEvent::Deadlocked { id, about, .. } => Event::Deadlocked(id, Subject::new(&about)),
            TableEvent::Withdrawn { id, about } => Event::Cancelled(id, Subject::new(&about)),
            TableEvent::Lost { id, token, cause, reason, about } => {
                let lost = Lost::from_cause(cause, reason);
                Event::Lost { id, token, lost, subject: Subject::new(&about) }
            }
            TableEvent::Task(event) => Event::Task(TaskEvent::from_table(event)),
        }
    }
}

impl TaskEvent {
    fn from_table(event: TableTaskEvent) -> TaskEvent {
        let (id, pool, what) = match event {
            TableTaskEvent::Claimed(id, pool, claimed) => (
                id,
                pool,
                ClaimEvent::Claimed {
                    key: claimed.key,
                    token: claimed.token,
                    attempts: claimed.attempts,
                    lease_ms: claimed.lease_ms,
                    waited_ms: claimed.waited_ms,
                },
            ),
            TableTaskEvent::TimedOut(id, pool) => (id, pool, ClaimEvent::TimedOut),
            TableTaskEvent::Withdrawn(id, pool) => (id, pool, ClaimEvent::Cancelled),
            TableTaskEvent::Refused(id, pool, state) => (id, pool, ClaimEvent::Refused(state)),
            TableTaskEvent::Lapsed { id, pool, key, token } => {
                (id, pool, ClaimEvent::Lapsed { key, token })
            }
        };
        TaskEvent { id, pool, what }
    }
}

impl Subject {
    fn new(about: &About) -> Subject {
        let resources = about.parts.iter();
        let resources = resources.map(|part| (part.resource.to_string().into(), part.mode));
        Subject { seq: about.seq, owner: about.owner.clone(), resources: resources.collect() }
    }
}
