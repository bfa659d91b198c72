//! The naive model: `docs/semantics.md` written down as plainly as possible. One vector of requests
//! in arrival order, quadratic scans, no index and nothing remembered that could be computed. It is
//! written independently of the table and exists to disagree with it.
//!
//! Reading order: `request` (the state), `conflict` (who is in whose way), `due` (what ends by
//! itself), `grants` and `deadlock` (what follows), `check` and `acquire`, `change`, `keyed`,
//! `tasks`, then `query` and `sane`.

mod acquire;
mod bug;
mod change;
mod check;
mod conflict;
mod deadlock;
mod due;
mod grants;
mod keyed;
mod query;
pub(crate) mod request;
mod sane;
pub(crate) mod tasks;

use keylatch_table::{Applied, Command, Error, Event, Reply, RequestId, Settings};

pub use bug::Bug;
pub(crate) use conflict::overlap;
use request::{Ended, Request};
use tasks::Tasks;

/// The only version of the rules there is.
const RULES: u32 = 1;

/// A lock table without any cleverness.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) settings: Settings,
    /// Table time: the largest `at` seen.
    pub(crate) now: u64,
    /// The last token given out.
    pub(crate) token: u64,
    /// The last arrival number given out.
    pub(crate) seq: u64,
    /// Holders and waiters, in the order of their seq.
    pub(crate) requests: Vec<Request>,
    /// Remembered ids, oldest first; at most one entry an id, none of them live.
    pub(crate) ended: Vec<Ended>,
    pub(crate) tasks: Tasks,
    /// Errors that would have been just as right as the last reply: the rules do not say which of
    /// several wrong lengths is named, nor which of several wrong requests of one command.
    pub(crate) as_right: Vec<Error>,
    bug: Option<Bug>,
}

impl Model {
    /// An empty table whose last token is `token`.
    pub fn new(settings: Settings, token: u64) -> Model {
        Model {
            settings,
            now: 0,
            token,
            seq: 0,
            requests: Vec::new(),
            ended: Vec::new(),
            tasks: Tasks::default(),
            as_right: Vec::new(),
            bug: None,
        }
    }

    /// The same model with a mistake in it, to see whether a comparison notices.
    pub fn with_bug(mut self, bug: Bug) -> Model {
        self.bug = Some(bug);
        self
    }

    /// One step: time, forgetting, ends that are due, grants, the command, grants again.
    pub fn apply(&mut self, at: u64, command: &Command) -> Applied {
        let mut events = Vec::new();
        self.as_right.clear();
        self.now = self.now.max(at);
        self.forget();
        self.end_due_waiters(&mut events);
        self.end_due_holders(&mut events);
        self.settle(&mut events);
        self.end_due_claims(&mut events);
        self.end_due_tasks(&mut events);
        self.serve_claims(&mut events);
        let reply = self.carry_out(command, &mut events);
        if self.looks_at_waiters_after(command) {
            self.settle(&mut events);
        }
        self.serve_claims(&mut events);
        Applied { reply, events }
    }

    /// Whether `error` would have been as right an answer to the last command as the one given.
    pub fn would_accept(&self, error: Error) -> bool {
        self.as_right.contains(&error)
    }

    fn carry_out(&mut self, command: &Command, events: &mut Vec<Event>) -> Reply {
        match command {
            Command::Acquire(asked) => self.acquire(asked, events),
            Command::AcquireEach(all) => self.acquire_each(all),
            Command::Release(target) => self.release(target, events),
            Command::Renew(target, lease_ms) => self.renew(target, *lease_ms),
            Command::Promote(target) => self.promote(target, events),
            Command::Cancel(target) => self.cancel(target, events),
            Command::Detach(detach) => self.detach(detach, events),
            Command::Revoke(token, reason) => self.revoke(*token, reason, events),
            Command::Keyed(keyed) => self.keyed(keyed),
            Command::Task(command) => Reply::Task(self.task(command, events)),
            Command::Settings(settings) => match check::settings(settings) {
                Ok(()) => {
                    self.settings = (**settings).clone();
                    Reply::Done
                }
                Err(error) => Reply::Error(error),
            },
            Command::Tick | Command::Rules(RULES) => Reply::Done,
            Command::Rules(version) => Reply::Error(Error::RulesVersion(*version)),
            Command::TokenFloor(token) if *token > 1 << 61 => {
                Reply::Error(Error::BadSetting("a token floor is at most 2^61"))
            }
            Command::TokenFloor(token) => {
                self.token = self.token.max(*token);
                Reply::Done
            }
        }
    }

    fn looks_at_waiters_after(&self, command: &Command) -> bool {
        !(self.bug == Some(Bug::PromoteForgetsWaiters) && matches!(command, Command::Promote(_)))
    }

    pub(crate) fn has_bug(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn next_token(&mut self) -> u64 {
        self.token += 1;
        self.token
    }

    fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    /// Where in `requests` the live request with this id stands.
    fn position(&self, id: &RequestId) -> Option<usize> {
        self.requests.iter().position(|request| request.asked.id == *id)
    }

    fn holders(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().filter(|request| request.hold().is_some())
    }

    fn waiters(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().filter(|request| request.wait().is_some())
    }
}
