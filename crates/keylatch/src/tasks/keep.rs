//! Keeps a claim: renews it, knows its version, and lets one change happen after the other.
//!
//! Every change is checked against the version and makes a new one, so a change must not begin before
//! the outcome of the one before is known. Where that could not be found out (`unsure`), the first
//! thing that the next one does is to ask again under the same id.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keylatch_table::{Body, Checked, PutBack, TaskAction, TaskCommand, TaskReply, Text};
use parking_lot::Mutex;
use tokio::sync::{Mutex as Turn, watch};
use tokio::task::AbortHandle;

use super::{Tasks, changed};
use crate::ask::{ms, new_id};
use crate::clock::Moment;
use crate::error::{ChangeError, TaskError};

/// A lease is renewed when a third of it is over, so that two more tries fit in.
const PART: u32 = 3;
/// A renewal that failed is tried again after a tenth of the lease, between these.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));
/// Sleep does not count suspend, so it is never longer than this.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// The shortest lease, which a claim gets that is given back: its time is over.
pub(crate) const GIVEN_BACK_MS: u64 = 1;

/// Why a claim may not be this worker's any more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostClaim {
    /// Its lease ran out.
    Expired,
    /// It could not be renewed in time, because nobody was reached.
    Unreachable,
    /// Somebody else has claimed or changed the task.
    Taken,
    /// The task was deleted.
    Deleted,
}

impl fmt::Display for LostClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LostClaim::Expired => "the claim was lost: its lease ran out",
            LostClaim::Unreachable => "the claim was lost: it could not be renewed in time",
            LostClaim::Taken => "the claim was lost: somebody else has claimed or changed the task",
            LostClaim::Deleted => "the claim was lost: the task was deleted",
        })
    }
}

/// What a worker does to its task.
pub(super) enum Change {
    /// Renew it, perhaps with another body.
    Update(Option<Body>),
    Finish,
    PutBack(PutBack),
    /// Let the lease end now.
    Free,
}

pub(super) struct Keep {
    pub(super) tasks: Tasks,
    pub(super) key: Text,
    lease: Duration,
    /// Written only by whoever has the turn.
    version: AtomicU64,
    /// Taken for each change until its outcome is known; in it, one whose outcome is not.
    turn: Turn<Option<TaskCommand>>,
    /// When the lease ends as its worker sees it, which is a little earlier than it does.
    ends: Mutex<Option<Moment>>,
    /// Whether a renewal has had no answer.
    unanswered: Mutex<bool>,
    lost: watch::Sender<Option<LostClaim>>,
    /// The task that looks after it, once there is one.
    running: Mutex<Option<AbortHandle>>,
}

impl Keep {
    pub(super) fn new(tasks: Tasks, key: Text, version: u64, lease: Duration) -> Keep {
        Keep {
            tasks,
            key,
            lease,
            version: AtomicU64::new(version),
            turn: Turn::new(None),
            ends: Mutex::new(None),
            unanswered: Mutex::new(false),
            lost: watch::Sender::new(None),
            running: Mutex::new(None),
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    pub(super) fn ends(&self) -> Option<Duration> {
        self.ends.lock().map(Moment::left)
    }

    /// The lease ends then, or a little earlier.
    pub(super) fn until(&self, end: Option<Moment>) {
        *self.ends.lock() = end.map(Moment::with_care);
    }

    pub(super) fn is_lost(&self) -> Option<LostClaim> {
        self.lapse();
        self.lost.borrow().clone()
    }

    pub(super) async fn lost(&self) -> LostClaim {
        let mut lost = self.lost.subscribe();
        let found = lost.wait_for(Option::is_some).await;
        found.expect("the claim keeps the sender").clone().expect("waited for")
    }

    fn lose(&self, lost: LostClaim) {
        self.lost.send_if_modified(|present| {
            // That somebody has it is news also to those who know that the lease ran out.
            let news = present.is_none() || matches!(lost, LostClaim::Taken | LostClaim::Deleted);
            if news {
                *present = Some(lost);
            }
            news
        });
    }

    fn lapse(&self) {
        if self.ends.lock().is_some_and(Moment::has_passed) {
            let unanswered = *self.unanswered.lock();
            self.lose(if unanswered { LostClaim::Unreachable } else { LostClaim::Expired });
        }
    }

    /// When there is first something to do about it: it is to be renewed, or its lease ends.
    pub(super) fn first_due(&self, renews: bool) -> Option<Moment> {
        if renews { self.renewal() } else { *self.ends.lock() }
    }

    /// That time has come. The version is that of back then.
    pub(super) fn start(self: Arc<Self>, renews: bool, due: Moment, version: u64) {
        let runtime = self.tasks.locks.runtime.clone();
        let keep = Arc::clone(&self);
        let run = runtime.spawn(async move { keep.run(renews, due, version).await });
        *self.running.lock() = Some(run.abort_handle());
    }

    pub(super) fn stop(&self) {
        if let Some(run) = self.running.lock().take() {
            run.abort();
        }
    }

    /// Renews until it is aborted. A claim that is lost is not renewed, unless its worker gets it back.
    async fn run(&self, renews: bool, due: Moment, version: u64) {
        let mut next = Some(due);
        let mut seen = version;
        loop {
            if self.version() != seen {
                // The worker has renewed it.
                (next, seen) = (self.renewal(), self.version());
            }
            self.lapse();
            let renew = renews && self.lost.borrow().is_none();
            let times = [self.ends(), next.filter(|_| renew).map(Moment::left)];
            if renew && next.is_some_and(Moment::has_passed) {
                let renewed = self.renew_while_it_lapses().await;
                seen = self.version();
                next = match renewed {
                    Ok(_) => self.renewal(),
                    Err(error) => {
                        tracing::debug!(%error, key = &*self.key, "a claim was not renewed");
                        let (least, most) = RETRY;
                        Some(Moment::now().after((self.lease / 10).clamp(least, most)))
                    }
                };
                continue;
            }
            let left = times.into_iter().flatten().filter(|left| !left.is_zero()).min();
            tokio::time::sleep(left.unwrap_or(LOOK).min(LOOK)).await;
        }
    }

    fn renewal(&self) -> Option<Moment> {
        self.ends().map(|left| Moment::now().after(left / PART))
    }

    /// Whoever works on it is told at the end of the lease also if there is no answer.
    async fn renew_while_it_lapses(&self) -> Result<TaskReply, ChangeError> {
        *self.unanswered.lock() = true;
        let mut renewed = std::pin::pin!(self.change(Change::Update(None)));
        loop {
            let left = self.ends().unwrap_or(LOOK).clamp(Duration::from_millis(1), LOOK);
            tokio::select! {
                renewed = &mut renewed => return renewed,
                () = tokio::time::sleep(left) => self.lapse(),
            }
        }
    }

    /// When the changes before have been carried out.
    pub(super) async fn change(&self, change: Change) -> Result<TaskReply, ChangeError> {
        let mut unsure = self.turn.lock().await;
        if let Some(before) = unsure.take() {
            drop(self.carry_out(&mut unsure, before).await);
            if unsure.is_some() {
                let text = "that of the command before is not known either";
                return Err(TaskError::Unknown(text.into()).into());
            }
        }
        let checked = Checked { key: self.key.clone(), version: self.version() };
        let action = match change {
            Change::Update(body) => TaskAction::Update(checked, body, Some(ms(self.lease))),
            Change::Finish => TaskAction::Finish(checked),
            Change::PutBack(back) => TaskAction::PutBack(checked, back),
            Change::Free => TaskAction::Update(checked, None, Some(GIVEN_BACK_MS)),
        };
        let command = self.tasks.command(new_id(), action);
        self.carry_out(&mut unsure, command).await
    }

    async fn carry_out(
        &self,
        unsure: &mut Option<TaskCommand>,
        command: TaskCommand,
    ) -> Result<TaskReply, ChangeError> {
        let since = Moment::now();
        // Until the answer is there: the future may be dropped at any time.
        let command = unsure.insert(command);
        // What is done is worth telling for as long as nobody else can have the task.
        let left = self.ends().unwrap_or_default();
        let reply = match self.tasks.locks.carry_out_for(command, left).await {
            Err(error @ TaskError::Unknown(_)) => return Err(error.into()),
            reply => reply,
        };
        *unsure = None;
        let reply = changed(reply?);
        match &reply {
            Ok(TaskReply::Updated { version, lease_ms }) => {
                self.version.store(*version, Ordering::SeqCst);
                self.until(lease_ms.map(|left| since.after(Duration::from_millis(left))));
                *self.unanswered.lock() = false;
                self.lost.send_if_modified(|lost| lost.take().is_some());
            }
            Err(ChangeError::Stale(_)) => self.lose(LostClaim::Taken),
            Err(ChangeError::NotFound) => self.lose(LostClaim::Deleted),
            _ => {}
        }
        reply
    }
}
