//! A task that is claimed.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use keylatch_table::{Body, Claimed, PutBack, Text};

use super::Tasks;
use super::ask::ClaimTask;
use super::change::{Back, PutBackTask, Updated};
use super::keep::{Change, Keep, LostClaim};
use super::later::Place;
use crate::clock::Moment;
use crate::error::{ChangeError, ClaimError, TaskError};
use crate::locks::Inner;

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

    /// The task is done, and the next one is asked for: what a worker does that goes on. On the server and on
    /// PostgreSQL both are one round trip and one sync of the disk, instead of two; elsewhere the next one is asked for
    /// when it is awaited. In this order: it is never the same task.
    ///
    /// What came of the first, and the claim of the next, which is to be awaited whatever became of the first.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let emails = keylatch::Locks::connect("memory:").await?.tasks("emails");
    /// # emails.create("welcome-42").await?;
    /// # emails.create("welcome-43").await?;
    /// let mut claimed = emails.claim().try_now().await?;
    /// while let Some(claim) = claimed {
    ///     println!("{}: {:?}", claim.key(), claim.text());
    ///     let (done, next) = claim.done_and(emails.claim().try_now()).await;
    ///     done?;
    ///     claimed = next.await?;
    /// }
    /// # assert_eq!(emails.counts().await?.done, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn done_and(self, next: ClaimTask) -> (Result<u64, ChangeError>, NextClaim) {
        self.done_with(next.into_future()).await
    }

    pub(crate) async fn done_with(self, ask: Asked) -> (Result<u64, ChangeError>, NextClaim) {
        let locks = Arc::clone(&self.keep.tasks.locks);
        let mut next = NextClaim { ask, outcome: None, locks: Arc::clone(&locks) };
        let mut done = std::pin::pin!(self.done());
        let (mut begun, mut along) = (false, false);
        let done = poll_fn(|context| {
            let begins = !std::mem::replace(&mut begun, true);
            let held = begins.then(|| locks.submit_task(|tasks| tasks.hold())).flatten();
            along |= held.is_some();
            let done = done.as_mut().poll(context);
            if along {
                next.look(context);
            }
            // From here on they go.
            drop(held);
            done
        });
        (done.await, next)
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

/// A claim that is asked for.
type Asked = Pin<Box<dyn Future<Output = Result<Option<Claim>, ClaimError>> + Send>>;

/// A claim that was asked for while the task before was done: see [`Claim::done_and`]. Awaiting it gives what awaiting a
/// [`ClaimTask`] gives. Dropping it withdraws it: if it had got a task by then, that is free again at once, and no attempt is
/// counted.
#[must_use = "a claim that is dropped is withdrawn"]
pub struct NextClaim {
    ask: Asked,
    /// What came of it, if that is known and nobody has heard of it.
    outcome: Option<Result<Option<Claim>, ClaimError>>,
    locks: Arc<Inner>,
}

impl NextClaim {
    fn look(&mut self, context: &mut Context<'_>) {
        if self.outcome.is_none()
            && let Poll::Ready(outcome) = self.ask.as_mut().poll(context)
        {
            self.outcome = Some(outcome);
        }
    }
}

impl Future for NextClaim {
    type Output = Result<Option<Claim>, ClaimError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.look(context);
        self.outcome.take().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for NextClaim {
    fn drop(&mut self) {
        if let Some(Ok(Some(claim))) = self.outcome.take() {
            self.locks.in_background(async move { drop(claim.release().await) });
        }
    }
}

impl fmt::Debug for NextClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NextClaim").finish_non_exhaustive()
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
