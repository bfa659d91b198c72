//! Who may do what, before anything goes to the log: each ask of a connection is judged here when the
//! server has an access file. Without one everybody who can connect may do everything.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use keylatch_table::{
    Answer as Found, Command, Event, LocksQuery, Query, Reply, Table, Target, TaskAction,
    TaskCommand, Text,
};

use super::Turns;
use crate::access::{
    self, Access, AccessError, AuditLog, Denied, Outcome, Principal, Record, Right, Rule,
};
use crate::listener::{Answer, Ask, Speaks, http, resp};
use crate::outbox::Wanted;

/// The access file as it was last read, and where refusals are written down.
pub(crate) struct Guard {
    path: PathBuf,
    seen: Option<(SystemTime, u64)>,
    access: Access,
    audit: AuditLog,
    /// Whoever speaks the enqueue protocol, which has no credentials.
    enqueue: Box<str>,
    /// Whoever listens to all events may see of them what this one may.
    observer: Principal,
}

/// Which file this is: its time and length.
fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let data = std::fs::metadata(path).ok()?;
    Some((data.modified().ok()?, data.len()))
}

impl Guard {
    pub(crate) fn open(path: &Path, audit: AuditLog, enqueue: &str) -> Result<Guard, AccessError> {
        let seen = stamp(path);
        let access = Access::read(path)?;
        let observer = Principal::new("", vec![Rule::new("", &[Right::Observe])]);
        Ok(Guard { path: path.into(), seen, access, audit, enqueue: enqueue.into(), observer })
    }

    /// Reads the file again; one that is wrong is not taken, and the old one stays in force.
    fn read_again(&mut self) -> bool {
        self.seen = stamp(&self.path);
        match Access::read(&self.path) {
            Ok(access) => {
                tracing::info!(file = %self.path.display(), "the access file was read again");
                self.access = access;
                true
            }
            Err(error) => {
                tracing::error!(%error, "the access file is wrong; what was read before stays in force");
                false
            }
        }
    }

    pub(crate) fn by_token(&self, token: &str) -> Option<Login> {
        let principal = self.access.by_token(token)?;
        let id = token.split('_').nth(1)?;
        let hash = self.access.token(id)?.hash();
        Some(Login { principal, shown: Shown::Token(id.into(), hash) })
    }

    pub(crate) fn by_certificate(&self, name: &str) -> Option<Login> {
        let principal = self.access.by_certificate(name)?;
        Some(Login { principal, shown: Shown::Certificate(name.into()) })
    }

    pub(crate) fn of_enqueue(&self) -> Option<Login> {
        Some(Login { principal: self.access.by_name(&self.enqueue)?, shown: Shown::Nothing })
    }

    /// What a login is worth now.
    fn again(&self, login: &Login) -> Option<Login> {
        match &login.shown {
            Shown::Token(id, hash) => {
                let token = self.access.token(id).filter(|token| token.hash() == *hash)?;
                let principal = Arc::clone(token.principal());
                Some(Login { principal, shown: Shown::Token(id.clone(), *hash) })
            }
            Shown::Certificate(name) => self.by_certificate(name),
            Shown::Nothing => self.of_enqueue(),
        }
    }
}

/// As whom a connection speaks.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) principal: Arc<Principal>,
    shown: Shown,
}

/// What a connection came with. It is judged once more when the access file changes: a token may
/// have another secret then, and a certificate another owner.
#[derive(Clone)]
enum Shown {
    /// The id of a token, and the hash of its secret.
    Token(Box<str>, [u8; 32]),
    Certificate(Box<str>),
    /// On the port that has no credentials.
    Nothing,
}

/// What is said to one who has not logged in.
pub(crate) const LOG_IN: &str =
    "this server wants to know who you are: AUTH token (HTTP: Authorization: Bearer token)";

impl Turns {
    /// Looks at the access file; once a second is often enough.
    pub(super) fn watch_access(&mut self) {
        if let Some(guard) = &self.guard
            && stamp(&guard.path) != guard.seen
        {
            self.read_access_again();
        }
    }

    /// Reads the access file again. Whoever came with a token that is not there any more, or is not
    /// there itself, has to log in again; the others have their new rights.
    pub(super) fn read_access_again(&mut self) {
        let Some(guard) = &mut self.guard else { return };
        if !guard.read_again() {
            return;
        }
        let mut without = Vec::new();
        for (at, connection) in &mut self.connections {
            connection.login = connection.login.as_ref().and_then(|login| guard.again(login));
            if connection.login.is_none() {
                without.extend_from_slice(&connection.waiting);
            }
            let may = |login: &Login| login.principal.may(Right::Observe, "");
            if connection.subscribed && !connection.login.as_ref().is_some_and(may) {
                connection.closing = true;
                self.dirty.push(at);
            }
        }
        // Whoever has no right to ask any more must not be granted what it asked for before.
        for (wanted, id) in without {
            self.propose(match wanted {
                Wanted::Locks => Command::Cancel(Target::Id(id)),
                Wanted::Task => {
                    let (pool, action) = ("".into(), TaskAction::Cancel);
                    Command::Task(TaskCommand { id, pool, action })
                }
            });
        }
        // Whoever listens over HTTP comes again, and is judged then.
        self.feed.dismiss();
    }

    /// What becomes of an ask: itself, or what is said instead.
    pub(super) fn admit(&self, at: usize, ask: Ask) -> Ask {
        let Some(guard) = &self.guard else { return ask };
        let connection = &self.connections[at];
        let Some(Login { principal, .. }) = &connection.login else {
            return match ask {
                // Whatever may be said to everybody was decided by its listener.
                Ask::Say(_) => ask,
                Ask::Change(_, answer) | Ask::Changes(_, answer) | Ask::Question(_, answer, _) => {
                    self.record(guard, at, "ask", None, Outcome::Refused(LOG_IN.into()));
                    Ask::Say(connection.speaks.refusal(Some(&answer), "NOAUTH", LOG_IN))
                }
                Ask::Events(_) => {
                    self.record(guard, at, "EVENTS", None, Outcome::Refused(LOG_IN.into()));
                    Ask::Say(connection.speaks.refusal(None, "NOAUTH", LOG_IN))
                }
            };
        };
        let denied = match &ask {
            Ask::Say(_) => None,
            Ask::Change(command, _) => access::admit(principal, command, &*self.table.lock()).err(),
            Ask::Changes(commands, _) => {
                let table = self.table.lock();
                let denied = |command| access::admit(principal, command, &*table).err();
                commands.iter().find_map(denied)
            }
            Ask::Question(queries, ..) => {
                queries.iter().find_map(|query| access::admit_query(principal, query).err())
            }
            // It tells of all names.
            Ask::Events(_) if principal.may(Right::Observe, "") => None,
            Ask::Events(_) => Some(Denied::Missing { right: Right::Observe, name: "".into() }),
        };
        let Some(denied) = denied else { return ask };
        let name = match &denied {
            Denied::Missing { name, .. } => Some(name.clone()),
            _ => None,
        };
        self.record(guard, at, word(&ask), name, Outcome::refused(&denied));
        match (ask, denied) {
            (Ask::Change(command, answer), Denied::NotYours) => {
                Ask::Change(access::as_unknown(command), answer)
            }
            (
                Ask::Change(_, answer) | Ask::Changes(_, answer) | Ask::Question(_, answer, _),
                denied,
            ) => {
                // What everyone is told whose id was used for something else, and nothing more.
                let code = if denied == Denied::IdReused { "IDREUSED" } else { "NOPERM" };
                Ask::Say(connection.speaks.refusal(Some(&answer), code, &denied.to_string()))
            }
            // All that is left: it tells of all names.
            (..) => {
                let text = "events are those of all names: this needs `observe` on every name";
                Ask::Say(connection.speaks.refusal(None, "NOPERM", text))
            }
        }
    }

    /// As whom a question is asked that was let through just now. It is answered at the end of the
    /// turn, when the connection may have become somebody else.
    pub(super) fn asker(&self, at: usize) -> Option<Arc<Principal>> {
        let login = self.connections[at].login.as_ref().filter(|_| self.guard.is_some())?;
        Some(Arc::clone(&login.principal))
    }

    /// The answer to questions, without what `asker` may not see. Nobody is asking only where there
    /// is no access file: [`Turns::admit`] has seen to that.
    pub(super) fn find(
        &self,
        asker: Option<&Principal>,
        table: &Table,
        queries: &[Query],
    ) -> Vec<Found> {
        let now = self.clock.now();
        let found = |query: &Query| {
            let Some(principal) = asker else { return table.query(now, query) };
            if let Query::Locks(locks) = query {
                let find = |query: &LocksQuery| match table.query(now, &Query::Locks(query.clone()))
                {
                    Found::Entries(entries) => entries,
                    other => unreachable!("entries were asked for: {other:?}"),
                };
                return Found::Entries(access::visible_locks(principal, locks, find));
            }
            let mut answer = table.query(now, query);
            access::visible_answer(principal, query, &mut answer);
            answer
        };
        queries.iter().map(found).collect()
    }

    /// An event as those may see it who listen to all of them: without ids, which are secrets.
    pub(super) fn public(&self, event: &Event) -> Option<Event> {
        let mut event = event.clone();
        if let Some(guard) = &self.guard
            && !access::visible_event(&guard.observer, &mut event, &*self.table.lock())
        {
            return None;
        }
        Some(event)
    }

    /// Refused by its listener.
    pub(super) fn record_refusal(&self, at: usize, what: &'static str, why: &'static str) {
        if let Some(guard) = &self.guard {
            self.record(guard, at, what, None, Outcome::Refused(why.into()));
        }
    }

    /// What is to be written down of a revocation once it is done. By then the connection may be
    /// gone, or somebody else.
    pub(super) fn revocation(&self, at: usize, answer: &Answer) -> Option<Box<Record>> {
        let token = match answer {
            Answer::Resp(resp::Answer::Revoke(token))
            | Answer::Http(http::Answer { kind: http::Kind::Revoke(token), .. }) => *token,
            _ => return None,
        };
        self.guard.as_ref()?;
        let record = self.record_of(at, "REVOKE", None, Outcome::Nothing);
        Some(Box::new(Record { token: Some(token), ..record }))
    }

    /// Revocations are written down, whoever does them.
    pub(super) fn record_revocation(&self, record: Record, reply: &Reply) {
        let Some(guard) = &self.guard else { return };
        let outcome = match reply {
            Reply::Revoked(true) => Outcome::Done,
            _ => Outcome::Nothing,
        };
        guard.audit.record(Record { outcome, ..record });
    }

    fn record(
        &self,
        guard: &Guard,
        at: usize,
        what: &'static str,
        name: Option<Text>,
        outcome: Outcome,
    ) {
        guard.audit.record(self.record_of(at, what, name, outcome));
    }

    fn record_of(
        &self,
        at: usize,
        what: &'static str,
        name: Option<Text>,
        outcome: Outcome,
    ) -> Record {
        let connection = &self.connections[at];
        Record {
            principal: connection.login.as_ref().map(|login| login.principal.name.clone()),
            address: Some(connection.address),
            listener: match connection.speaks {
                Speaks::Resp(_) => "resp",
                Speaks::Enqueue(_) => "enqueue",
                Speaks::Http(_) => "http",
            },
            what,
            name,
            token: None,
            outcome,
        }
    }
}

fn word(ask: &Ask) -> &'static str {
    match ask {
        Ask::Change(command, _) => match command {
            Command::Acquire(_) | Command::AcquireEach(_) => "LOCK",
            Command::Release(_) => "UNLOCK",
            Command::Renew(..) => "RENEW",
            Command::Promote(_) => "PROMOTE",
            Command::Cancel(_) => "CANCEL",
            Command::Revoke(..) => "REVOKE",
            Command::Keyed(_) => "DEL",
            Command::Task(_) => "TASK",
            _ => "CHANGE",
        },
        Ask::Changes(..) => "TASK",
        Ask::Question(..) => "LIST",
        Ask::Events(_) => "EVENTS",
        Ask::Say(_) => "SAY",
    }
}

impl Speaks {
    /// Not allowed, and why, in the words of this protocol.
    fn refusal(&self, answer: Option<&Answer>, code: &'static str, text: &str) -> Vec<u8> {
        match (self, answer) {
            (Speaks::Http(_), Some(Answer::Http(answer))) => http::refusal(code, text, answer.meta),
            (Speaks::Http(_), _) => http::refusal(code, text, http::Meta::default()),
            (Speaks::Enqueue(_), _) if code == "NOAUTH" => self.error(
                code,
                "the access file of this server has no principal for the enqueue port",
            ),
            _ => self.error(code, text),
        }
    }
}
