//! A task that is claimed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use keylatch_table::{Body, Claimed, PutBack, Text};

use super::Tasks;
use super::change::{Back, PutBackTask, Updated};
use super::keep::{Change, Keep, LostClaim};
use super::later::Place;
use crate::clock::Moment;
use crate::error::{ChangeError, TaskError};

/// A task that this worker has claimed. It is renewed in the background; if it is lost all the same,
/// [`Claim::lost`] tells. Dropping it stops the renewal, and the task is free when the lease ends.
///
/// Renewals change the version. So do the methods here, one after the other: a claim is never in its
/// own way.
#[must_use = "a claim that is dropped is not renewed any more"]
pub struct Claim {
    keep: Arc<Keep>,
    body: Option<Body>,
    token: u64,
    attempts: u32,
    /// Where it waits to be looked after; a claim without a lease never has to be.
    place: Option<Place>,
}

impl Claim {
    pub(super) fn new(
        tasks: Tasks,
        claimed: Claimed,
        since: Moment,
        lease: Duration,
        renew: bool,
    ) -> Claim {
        let Claimed { key, body, version, token, attempts, lease_ms, waited_ms } = claimed;
        let ends = lease_ms.map(|left| since.after(Duration::from_millis(waited_ms + left)));
        let locks = Arc::clone(&tasks.locks);
        let keep = Arc::new(Keep::new(tasks, key, version, lease));
        keep.until(ends);
        let later = |due| locks.claims.add(&locks.runtime, due, &keep, renew);
        let place = keep.first_due(renew).map(later);
        Claim { keep, body, token, attempts, place }
    }

    /// The task's key.
    pub fn key(&self) -> &Text {
        &self.keep.key
    }

    /// What is to be done, as it was when it was claimed.
    pub fn body(&self) -> Option<&Body> {
        self.body.as_ref()
    }

    /// The body's bytes; none is empty.
    pub fn bytes(&self) -> &[u8] {
        self.body.as_ref().map_or(&[], |body| &*body.bytes)
    }

    /// The body, if there is one and it is text.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.body.as_ref()?.bytes).ok()
    }

    /// The version as last heard; renewals change it.
    pub fn version(&self) -> u64 {
        self.keep.version()
    }

    /// The fencing token: larger than that of every earlier claim of this task. Give it to whatever you
    /// write to.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// How often the task was put back before.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// How long the lease has left as its worker sees it, which is a little less than it has; it grows
    /// when it is renewed. `None` is no lease.
    pub fn ends(&self) -> Option<Duration> {
        self.keep.ends()
    }

    /// Whether the claim has been lost, and why.
    pub fn is_lost(&self) -> Option<LostClaim> {
        self.keep.is_lost()
    }

    /// Resolves when the claim is lost: from then on somebody else may have it. Whether somebody has,
    /// [`Claim::update`] and [`Claim::done`] find out. Cancel safe.
    pub async fn lost(&self) -> LostClaim {
        self.keep.lost().await
    }

    /// Renews the claim now. A claim that was lost because its lease ran out is good again if nobody
    /// claimed the task since.
    ///
    /// Cancel safe: if the future is dropped the renewal goes on.
    pub async fn renew(&self) -> Result<Updated, ChangeError> {
        self.change(Change::Update(None)).await
    }

    /// Renews the claim now, and replaces the body: a worker that is interrupted can be followed by one
    /// that goes on from there. A body that was JSON stays that.
    ///
    /// Cancel safe: if the future is dropped the update goes on.
    pub async fn update(&self, body: impl Into<Vec<u8>>) -> Result<Updated, ChangeError> {
        let json = self.body.as_ref().is_some_and(|body| body.json);
        let body = Body { json, bytes: body.into().into() };
        self.change(Change::Update(Some(body))).await
    }

    /// The same with text that is JSON.
    pub async fn update_json(&self, body: impl Into<String>) -> Result<Updated, ChangeError> {
        let body = Body { json: true, bytes: body.into().into_bytes().into() };
        self.change(Change::Update(Some(body))).await
    }

    /// In a task of its own: the version that comes of it must be known also if nobody waits for it.
    async fn change(&self, change: Change) -> Result<Updated, ChangeError> {
        let keep = Arc::clone(&self.keep);
        let task = keep.tasks.locks.runtime.clone().spawn(async move { keep.change(change).await });
        let ended = |_| Err(TaskError::Unknown("the runtime has ended".into()).into());
        task.await.unwrap_or_else(ended).map(Updated::from_reply)?
    }

    /// The task is done, and is never claimed again; it stays until it is deleted. Its version then.
    ///
    /// If the future is dropped after its first poll, this may have happened or not.
    pub async fn done(self) -> Result<u64, ChangeError> {
        match self.keep.change(Change::Finish).await? {
            keylatch_table::TaskReply::Finished(version) => Ok(version),
            other => Err(super::strange(&other).into()),
        }
    }

    /// Frees the task, for another try now or after a delay, and counts the attempt. Nothing happens
    /// before it is awaited.
    pub fn put_back(self) -> PutBackTask {
        PutBackTask::of_claim(self)
    }

    /// Gives the task back unchanged: it is free at once, and no attempt is counted. For a worker that
    /// ends before it could do anything.
    ///
    /// If the future is dropped after its first poll, this may have happened or not.
    pub async fn release(self) -> Result<(), ChangeError> {
        self.keep.change(Change::Free).await.map(drop)
    }

    pub(super) async fn back(self, back: PutBack) -> Result<Back, ChangeError> {
        Back::from_reply(self.keep.change(Change::PutBack(back)).await?)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.keep.tasks.locks.claims.remove(place, &self.keep);
        }
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Claim");
        shown
            .field("key", self.key())
            .field("token", &self.token)
            .field("version", &self.version());
        shown.finish_non_exhaustive()
    }
}
