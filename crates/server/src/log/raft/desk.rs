//! Between the loop that serves connections and the thread of Raft: one batch, or one question, on its way
//! out; outcomes, in the order of the log, on their way back.
//!
//! The loop has one batch under way at a time. Requests that come meanwhile make the next one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keylatch_table::{Applied, Command};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::NodeError;
use super::bytes;

/// What the loop is told.
pub(crate) enum Told {
    /// Its batch has been applied.
    Done { number: u64, applied: Vec<Applied> },
    /// Something else has: its events concern whoever they concern.
    Events(Vec<Applied>),
    /// There was no room for its batch on the leader's disk: nothing has happened.
    NoRoom { number: u64 },
    /// The table shows everything that was acknowledged before the question was asked.
    Read { number: u64 },
    /// The cluster took this node for gone: whoever waits here has been detached.
    Detached,
    /// The table was replaced by a newer one. What happened between is not known here; own batches up to
    /// this one are part of it.
    Installed { number: u64 },
    /// The log cannot go on.
    Failed(NodeError),
}

/// Outcomes that may wait for the loop; more, and entries are not applied until it has caught up.
const MOST: usize = 1_024;

/// Wakes the loop: there is something to take.
pub(crate) type Wake = Box<dyn Fn() + Send + Sync>;

pub(crate) struct Desk {
    wake: Wake,
    told: Mutex<VecDeque<Told>>,
    /// The loop has taken what it was told.
    taken: Notify,
    out: Mutex<Option<Outgoing>>,
    /// There is another thing on its way out, or none any more.
    pub(super) changed: Notify,
    /// Nobody takes anything any more.
    closed: AtomicBool,
    /// The leader's disk was full when it was last asked for something.
    pub(super) full: AtomicBool,
}

/// What is on its way out.
#[derive(Clone)]
pub(super) struct Outgoing {
    pub(super) number: u64,
    pub(super) what: Wanted,
    /// Whether a leader may have got it.
    sent: bool,
}

#[derive(Clone)]
pub(super) enum Wanted {
    Commit(Arc<[u8]>),
    Read,
}

impl Desk {
    pub(crate) fn new(wake: Wake) -> Desk {
        Desk {
            wake,
            told: Mutex::default(),
            taken: Notify::new(),
            out: Mutex::default(),
            changed: Notify::new(),
            closed: AtomicBool::new(false),
            full: AtomicBool::new(false),
        }
    }

    /// The loop has ended: what there would be to tell is dropped, and nothing waits for room.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.told.lock().clear();
        self.taken.notify_one();
    }

    /// Puts a batch on its way. Its commands stay with the loop until they are asked for again.
    pub(crate) fn submit(&self, number: u64, commands: &[Command]) {
        self.put(number, Wanted::Commit(bytes::encode_commands(commands)));
    }

    /// Asks for a [`Told::Read`].
    pub(crate) fn read(&self, number: u64) {
        self.put(number, Wanted::Read);
    }

    fn put(&self, number: u64, what: Wanted) {
        let before = self.out.lock().replace(Outgoing { number, what, sent: false });
        debug_assert!(before.is_none(), "one at a time");
        self.changed.notify_one();
    }

    /// Takes back what is on its way, if no leader can have got it.
    pub(crate) fn recall(&self) -> bool {
        let mut out = self.out.lock();
        let unsent = out.as_ref().is_some_and(|out| !out.sent);
        if unsent {
            *out = None;
        }
        unsent
    }

    /// Nobody waits for this any more.
    pub(crate) fn forget(&self, number: u64) {
        self.settle(|out| out.number == number);
    }

    /// Other commands in place of those of a batch, as many: if it is sent again, then with these.
    pub(crate) fn replace(&self, number: u64, commands: &[Command]) {
        let mut out = self.out.lock();
        if let Some(out) = out.as_mut().filter(|out| out.number == number) {
            out.what = Wanted::Commit(bytes::encode_commands(commands));
        }
    }

    /// What is on its way, which may be with a leader from now on.
    pub(super) fn take_up(&self) -> Option<Outgoing> {
        let mut out = self.out.lock();
        out.as_mut().map(|out| {
            out.sent = true;
            out.clone()
        })
    }

    /// Whether this is still on its way.
    pub(super) fn wants(&self, number: u64) -> bool {
        self.out.lock().as_ref().is_some_and(|out| out.number == number)
    }

    pub(super) fn has_any(&self) -> bool {
        self.out.lock().is_some()
    }

    /// Tells the loop.
    pub(crate) fn tell(&self, told: Told) {
        let settled = match &told {
            Told::Done { number, .. } | Told::NoRoom { number } | Told::Read { number } => {
                self.settle(|out| out.number == *number)
            }
            Told::Installed { number } => {
                self.settle(|out| matches!(out.what, Wanted::Commit(_)) && out.number <= *number)
            }
            Told::Events(_) | Told::Detached | Told::Failed(_) => false,
        };
        if self.closed.load(Ordering::SeqCst) {
            return;
        }
        let mut queue = self.told.lock();
        let first = queue.is_empty();
        queue.push_back(told);
        drop(queue);
        if settled {
            self.changed.notify_one();
        }
        if first {
            (self.wake)();
        }
    }

    fn settle(&self, of: impl FnOnce(&Outgoing) -> bool) -> bool {
        let mut out = self.out.lock();
        out.take_if(|out| of(out)).is_some()
    }

    /// Waits until the loop has caught up.
    pub(super) async fn room(&self) {
        while self.told.lock().len() >= MOST && !self.closed.load(Ordering::SeqCst) {
            self.taken.notified().await;
        }
    }

    /// Whether the leader's disk has room for what has to go on, and for nothing new.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// What there is to tell, in order.
    pub(crate) fn take(&self, into: &mut VecDeque<Told>) {
        std::mem::swap(&mut *self.told.lock(), into);
        self.taken.notify_one();
    }
}
