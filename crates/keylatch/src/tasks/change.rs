//! Changes of tasks that are known by their version, and what comes of changes.

use std::pin::Pin;
use std::time::Duration;

use keylatch_table::{Body, Checked, PutBack, TaskAction, TaskReply, TaskState, Text};

use super::claim::Claim;
use super::{Tasks, strange};
use crate::ask::{Futures, ms};
use crate::error::ChangeError;

/// A claim that was renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Updated {
    /// The version to use from now on.
    pub version: u64,
    /// How long the claim has; `None` is for ever, or that the task was not claimed.
    pub lease: Option<Duration>,
}

impl Updated {
    pub(super) fn from_reply(reply: TaskReply) -> Result<Updated, ChangeError> {
        match reply {
            TaskReply::Updated { version, lease_ms } => {
                Ok(Updated { version, lease: lease_ms.map(Duration::from_millis) })
            }
            other => Err(strange(&other).into()),
        }
    }
}

/// A task that was put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Back {
    /// Its version now.
    pub version: u64,
    /// Free, or failed if that was the last attempt.
    pub state: TaskState,
    /// The attempts so far.
    pub attempts: u32,
}

impl Back {
    pub(super) fn from_reply(reply: TaskReply) -> Result<Back, ChangeError> {
        match reply {
            TaskReply::PutBack { version, state, attempts } => {
                Ok(Back { version, state, attempts })
            }
            other => Err(strange(&other).into()),
        }
    }
}

/// A renewal by version, before it is asked for. Awaiting it asks; in a thread, `send()` does.
#[must_use = "nothing is asked for before it is awaited (or, in a thread, sent)"]
pub struct UpdateTask<For = Futures> {
    tasks: Tasks<For>,
    checked: Checked,
    body: Option<Body>,
    lease: Option<Duration>,
}

impl<For> UpdateTask<For> {
    pub(super) fn new(tasks: Tasks<For>, checked: Checked) -> Self {
        UpdateTask { tasks, checked, body: None, lease: None }
    }

    /// Replaces the body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(Body { json: false, bytes: body.into().into() });
        self
    }

    /// Replaces the body by text that is JSON.
    pub fn json(mut self, body: impl Into<String>) -> Self {
        self.body = Some(Body { json: true, bytes: body.into().into_bytes().into() });
        self
    }

    /// For so long; without it, as the claim asked for. Zero is for ever.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    pub(crate) async fn ask(self) -> Result<Updated, ChangeError> {
        let lease = self.lease.map(|lease| ms(self.tasks.locks.capabilities.lease(lease)));
        let action = TaskAction::Update(self.checked, self.body, lease);
        Updated::from_reply(self.tasks.change(action).await?)
    }
}

impl IntoFuture for UpdateTask {
    type Output = Result<Updated, ChangeError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.ask())
    }
}

/// A task that is to be put back. Awaiting it does that; in a thread, `send()` does. If it is dropped
/// before, its claim is.
#[must_use = "nothing is put back before it is awaited (or, in a thread, sent)"]
pub struct PutBackTask<For = Futures> {
    of: Of<For>,
    back: PutBack,
}

enum Of<For> {
    Claim(Box<Claim>),
    Version(Tasks<For>, Checked),
}

impl<For> PutBackTask<For> {
    pub(crate) fn of_claim(claim: Claim) -> Self {
        PutBackTask { of: Of::Claim(Box::new(claim)), back: PutBack::default() }
    }

    pub(super) fn of_version(tasks: Tasks<For>, checked: Checked) -> Self {
        PutBackTask { of: Of::Version(tasks, checked), back: PutBack::default() }
    }

    /// Not claimed again before this has passed.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.back.delay_ms = ms(delay);
        self
    }

    /// What went wrong, up to 1 KiB.
    pub fn error(mut self, error: impl Into<Text>) -> Self {
        self.back.error = Some(error.into());
        self
    }

    pub(crate) async fn ask(self) -> Result<Back, ChangeError> {
        match self.of {
            Of::Claim(claim) => claim.back(self.back).await,
            Of::Version(tasks, checked) => {
                let action = TaskAction::PutBack(checked, self.back);
                Back::from_reply(tasks.change(action).await?)
            }
        }
    }
}

impl IntoFuture for PutBackTask {
    type Output = Result<Back, ChangeError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.ask())
    }
}
