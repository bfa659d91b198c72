//! The table: one entry for every change, one for every read.

use crate::board::Board;
use crate::task::Tasks;
use crate::{
    Acquire, Answer, Applied, Command, Error, Outcome, Query, Reply, Settings, Stats, Tally,
    check::CheckLevel, rules,
};

/// Times and tokens from outside stay below this, half of what a snapshot accepts, so that nothing
/// that is added to them later can overflow. In milliseconds it is 73 million years away.
const FARTHEST: u64 = crate::snapshot::LATEST / 2;
/// Commands of which what they will look at is fetched ahead.
const MOST_AHEAD: usize = 4_096;

/// The lock table: a deterministic state machine. Two tables that are given the same commands at
/// the same times give the same answers and have the same [`Table::state_hash`], on any machine.
#[derive(Clone, Debug)]
pub struct Table {
    pub(crate) settings: Settings,
    /// The version of the rules in force.
    pub(crate) rules: u32,
    /// Table time: the largest `at` seen, in milliseconds.
    pub(crate) now: u64,
    /// The last token given out. T1: it never falls.
    pub(crate) token: u64,
    /// The last arrival number given out.
    pub(crate) seq: u64,
    pub(crate) board: Board,
    pub(crate) tasks: Tasks,
    /// Owners around whom a cycle may have come up in this step. Empty between steps.
    pub(crate) troubled: Vec<u32>,
    /// Snapshots in pieces that have begun.
    pub(crate) moment: u64,
    /// Nobody wants to know of leases that run out. No part of the state.
    pub(crate) quiet: bool,
    /// No part of the state either.
    pub(crate) tally: Box<Tally>,
}

impl Table {
    /// An empty table. `token` is the last token given out so far: a driver that may have lost
    /// state passes the wall clock in microseconds, so that tokens do not fall back. `hash_seed`
    /// should be unpredictable to clients; nothing the table says depends on it.
    ///
    /// # Panics
    /// If the settings do not pass [`Settings::validate`].
    pub fn new(settings: Settings, token: u64, hash_seed: u64) -> Table {
        if let Err(error) = settings.validate() {
            panic!("{error}");
        }
        Table {
            settings,
            rules: rules::RULES,
            now: 0,
            token: token.min(FARTHEST),
            seq: 0,
            board: Board::new(hash_seed),
            tasks: Tasks::new(hash_seed),
            troubled: Vec::new(),
            moment: 0,
            quiet: false,
            tally: Box::default(),
        }
    }

    /// Whether leases that run out are told as events, as they are unless this is called. Of many
    /// locks nobody wants to know, and then describing each costs as much as ending it. Nothing
    /// else depends on it: a driver says what it has use for before it applies a command.
    pub fn tell_expired(&mut self, tell: bool) {
        self.quiet = !tell;
    }

    /// What it has done since it was made, or since this was last cleared.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Begins to count anew: what a log repeats after a restart was counted before it.
    pub fn clear_tally(&mut self) {
        *self.tally = Tally::default();
    }

    /// A refusal that was answered without [`Table::apply`] counts too.
    pub fn count_refusal(&mut self, ask: &Acquire, reply: &Reply) {
        let outcome = match reply {
            Reply::Busy(_) => Outcome::Busy,
            Reply::Deadlock(_) => Outcome::Deadlock,
            _ => Outcome::Refused,
        };
        self.tally.count(ask.part.mode, outcome);
    }

    /// Carries out one command at a time. A refusal is a reply; this never fails.
    pub fn apply(&mut self, at: u64, command: Command) -> Applied {
        let mut events = Vec::new();
        self.advance(at, &mut events);
        let reply = match command {
            Command::Acquire(ask) => self.acquire(ask, &mut events),
            Command::AcquireEach(asks) => self.acquire_each(asks),
            Command::Release(target) => self.release(&target, &mut events),
            Command::Renew(target, lease_ms) => self.renew(&target, lease_ms),
            Command::Promote(target) => self.promote(&target, &mut events),
            Command::Cancel(target) => self.cancel(&target, &mut events),
            Command::Detach(detach) => match self.detach(&detach, &mut events) {
                Ok(()) => {
                    self.detach_claims(&detach, &mut events);
                    Reply::Done
                }
                Err(error) => Reply::Error(error),
            },
            Command::Revoke(token, reason) => self.revoke(token, reason, &mut events),
            Command::Keyed(keyed) => self.keyed(&keyed),
            Command::Task(command) => Reply::Task(self.task(command, &mut events)),
            Command::Tick => Reply::Done,
            Command::Settings(settings) => self.set_settings(*settings),
            Command::Rules(version) => self.set_rules(version),
            Command::TokenFloor(token) if token > FARTHEST => {
                Reply::Error(Error::BadSetting("a token floor is at most 2^61"))
            }
            Command::TokenFloor(token) => {
                self.token = self.token.max(token);
                Reply::Done
            }
        };
        self.follow_up(&mut events);
        self.check_after_step(CheckLevel::default());
        Applied { reply, events }
    }

    /// These commands are about to be applied. What they will look at is fetched meanwhile, if that is
    /// worth it; nothing changes. For drivers that have many at once.
    pub fn go_ahead(&self, commands: &[Command]) {
        if commands.len() > 1 && self.board.is_large() {
            // No more than stays near until its turn comes.
            let commands = commands.iter().take(MOST_AHEAD);
            self.board.go_ahead_to_asks(commands.filter_map(|command| match command {
                Command::Acquire(ask) => Some(ask),
                _ => None,
            }));
        }
    }

    /// Answers a question as of `at`, or of table time if that is later.
    pub fn query(&self, at: u64, query: &Query) -> Answer {
        let now = at.max(self.now);
        match query {
            Query::Locks(query) => Answer::Entries(self.list(now, query)),
            Query::Request(id) => {
                let at = self.board.live(id);
                Answer::Entries(at.map_or_else(Vec::new, |at| self.entries(now, at).collect()))
            }
            Query::Key(key) => Answer::Key(self.key(now, key)),
            Query::Tasks(query) => Answer::Tasks(self.tasks.list(now, query)),
            Query::Task(pool, key) => Answer::Task(self.tasks.entry_of(now, pool, key)),
            Query::Pools => Answer::Pools(self.tasks.pools()),
            Query::Stats => Answer::Stats(self.stats()),
            Query::TopOwners(most) => Answer::Owners(self.top_owners(*most)),
        }
    }

    /// Nothing will end before this time, unless a command comes; `None` if nothing will end at
    /// all. It may be too early (something that ended otherwise still counts), never too late. The
    /// driver's ticker sleeps until then.
    pub fn next_deadline(&self) -> Option<u64> {
        let next = self.board.deadlines.next().min(self.tasks.next);
        (next != crate::board::deadlines::NEVER).then_some(next)
    }

    /// The bounds in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The version of the rules in force.
    pub fn rules(&self) -> u32 {
        self.rules
    }

    /// Table time.
    pub fn now(&self) -> u64 {
        self.now
    }

    fn advance(&mut self, at: u64, events: &mut Vec<crate::Event>) {
        self.now = self.now.max(at.min(FARTHEST));
        let (keep_ms, most) = (self.settings.ended_ms, self.settings.ended);
        if self.board.ended.stale(self.now, keep_ms, most).is_some() {
            self.board.forget(self.now, keep_ms, most);
        }
        if self.tasks.answers.stale(self.now, keep_ms, most).is_some() {
            self.tasks.forget(self.now, keep_ms, most);
        }
        if self.board.deadlines.next() <= self.now {
            self.expire(events);
        }
        if self.tasks.next <= self.now {
            self.follow_up(events);
            self.expire_tasks(events);
        }
        self.follow_up(events);
    }

    /// What follows from what has ended. Mostly nothing, and then it costs nothing.
    #[inline(always)]
    #[allow(clippy::inline_always)] // a call costs more than what it mostly does
    fn follow_up(&mut self, events: &mut Vec<crate::Event>) {
        if !self.board.loose.is_empty() || !self.troubled.is_empty() {
            self.settle(events);
        }
        if !self.tasks.fresh.is_empty() {
            self.serve_claims(events);
        }
    }

    pub(crate) fn next_token(&mut self) -> u64 {
        self.token += 1;
        self.token
    }

    pub(crate) fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    fn set_settings(&mut self, settings: Settings) -> Reply {
        match settings.validate() {
            Ok(()) => {
                self.settings = settings;
                Reply::Done
            }
            Err(error) => Reply::Error(error),
        }
    }

    fn set_rules(&mut self, version: u32) -> Reply {
        if version < self.rules || version > rules::RULES {
            return Reply::Error(Error::RulesVersion(version));
        }
        self.rules = version;
        Reply::Done
    }

    fn stats(&self) -> Stats {
        let board = &self.board;
        let waiting = u64::from(board.waiting);
        Stats {
            now: self.now,
            token: self.token,
            seq: self.seq,
            held: board.requests.len() as u64 - waiting,
            waiting,
            resources: board.resources.len() as u64,
            owners: board.parties.owner_count() as u64,
            ended: board.ended.len() as u64,
            tasks: self.tasks.len(),
            task_bytes: self.tasks.bytes(),
            claims: self.tasks.waiting(),
        }
    }
}
