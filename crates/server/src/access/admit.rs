//! Whether a principal may do what it asks for: decided before a command is logged, so that what is
//! in the log was allowed, and replicas and restarts need not know any rules.
//!
//! | command | needs |
//! |---|---|
//! | acquire, each part as S or O | `shared` on its name |
//! | acquire, each part as E or X | `exclusive` on its name |
//! | acquire under an id that is in use | that the request is the caller's |
//! | release, renew, cancel, promote | that the request is the caller's, or `admin` on all its names |
//! | promote, besides | `exclusive` on all its names |
//! | revoke | `revoke` on all names of the grant |
//! | the Redis subset | `exclusive` on each key |
//! | tasks | `exclusive` on the pool, as if that were a name |
//! | a claim under an id that waits, its cancelling | that the claim is the caller's, or `admin` on its pool |
//! | detach, tick, settings, rules, token floor | an administrator; the server's own are not judged |
//!
//! A request that nobody's principal took (before there was an access file) belongs to whoever knows
//! its id and may lock its names so: its holder must be able to release it.
//!
//! Whose a request is, is judged by the table as it stands. One that is still on its way through the
//! log is not known yet, and then its id alone protects it.

use keylatch_table::{
    Acquire, Answer, Command, Entry, Error, LocksQuery, Query, RequestId, State, Table, Target,
    TaskAction, TaskCommand, Text,
};

use super::principal::{Principal, Right};

/// Why not. It never says an id, an owner, or a name that the caller may not know of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// A right is missing.
    Missing {
        /// Which.
        right: Right,
        /// On what; empty if it is missing on all names.
        name: Text,
    },
    /// Only for administrators.
    NotAdministrator,
    /// The request, or the grant, is somebody else's. The caller is told what is said of one that
    /// does not exist: see [`as_unknown`].
    NotYours,
    /// A request of somebody else has this id. The caller is told what everyone is told whose id
    /// was used for other content.
    IdReused,
}

impl std::fmt::Display for Denied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Denied::Missing { right, name } if name.is_empty() => {
                write!(
                    f,
                    "this needs the right `{right}`; ask whoever keeps the access file for it"
                )
            }
            Denied::Missing { right, name } => write!(
                f,
                "this needs the right `{right}` on '{name}'; ask whoever keeps the access file for it"
            ),
            Denied::NotAdministrator => {
                f.write_str("this needs the right `admin` on every name (prefix \"\")")
            }
            Denied::NotYours => f.write_str("there is no such request"),
            Denied::IdReused => Error::IdReused.fmt(f),
        }
    }
}

impl std::error::Error for Denied {}

/// What has to be known of requests to decide about them.
pub trait Lookup {
    /// The entries of a live request; none if there is none.
    fn request(&self, target: &Target) -> Vec<Entry>;
    /// The entries of the grant with this token; none if there is none.
    fn grant(&self, token: u64) -> Vec<Entry>;
    /// The pool of a claim that waits, and whose it is.
    fn claim(&self, id: &RequestId) -> Option<(Text, Option<Text>)>;
}

impl Lookup for Table {
    fn request(&self, target: &Target) -> Vec<Entry> {
        match target {
            Target::Id(id) => entries(self.query(0, &Query::Request(id.clone()))),
            // There is no question for it; it is asked only of a limited principal that promotes.
            Target::Alias(alias) => all(self, true, |entry| entry.alias.as_ref() == Some(alias)),
        }
    }

    fn grant(&self, token: u64) -> Vec<Entry> {
        // As revoking itself: rare, by hand, and only for those who have the right somewhere.
        all(self, false, |entry| entry.token == token && entry.state == State::Held)
    }

    fn claim(&self, id: &RequestId) -> Option<(Text, Option<Text>)> {
        let (pool, party) = self.waiting_claim(id)?;
        Some((pool.clone(), party.principal.clone()))
    }
}

fn entries(answer: Answer) -> Vec<Entry> {
    match answer {
        Answer::Entries(entries) => entries,
        _ => unreachable!("entries were asked for"),
    }
}

/// Requests looked at together: enough to be quick, few enough not to copy a large table.
const PAGE: usize = 1_000;

fn all(table: &Table, waiters: bool, wanted: impl Fn(&Entry) -> bool) -> Vec<Entry> {
    let mut query = LocksQuery { waiters, limit: PAGE, ..LocksQuery::default() };
    loop {
        let page = entries(table.query(0, &Query::Locks(query.clone())));
        let Some(last) = page.last() else { return Vec::new() };
        query.cursor = last.seq;
        let found: Vec<Entry> = page.into_iter().filter(&wanted).collect();
        if !found.is_empty() {
            return found;
        }
    }
}

/// Whether `principal` may do this.
pub fn admit(principal: &Principal, command: &Command, lookup: &impl Lookup) -> Result<(), Denied> {
    if principal.is_admin() {
        return Ok(());
    }
    match command {
        Command::Acquire(ask) => admit_acquire(principal, ask, lookup),
        Command::AcquireEach(asks) => {
            asks.iter().try_for_each(|ask| admit_acquire(principal, ask, lookup))
        }
        Command::Release(target) | Command::Renew(target, _) | Command::Cancel(target) => {
            match target {
                Target::Id(_) => admit_target(principal, target, lookup).map(drop),
                // Aliases are those of one listener, and all who speak there are one principal.
                Target::Alias(_) => Ok(()),
            }
        }
        Command::Promote(target) => {
            let found = admit_target(principal, target, lookup)?;
            need_all(principal, Right::Exclusive, &found)
        }
        Command::Revoke(token, _) => admit_revoke(principal, *token, lookup),
        Command::Keyed(keyed) => {
            keyed.keys.iter().try_for_each(|key| need(principal, Right::Exclusive, key.name()))
        }
        Command::Task(task) => admit_task(principal, task, lookup),
        Command::Detach(_)
        | Command::Tick
        | Command::Settings(_)
        | Command::Rules(_)
        | Command::TokenFloor(_) => Err(Denied::NotAdministrator),
    }
}

/// Whether `principal` may ask this. What it may not see of the answer is left out of that.
pub fn admit_query(principal: &Principal, query: &Query) -> Result<(), Denied> {
    match query {
        Query::Key(key) if principal.may_see(key.name()) => Ok(()),
        Query::Key(key) => Err(missing(Right::Observe, key.name())),
        Query::Tasks(query) => need(principal, Right::Observe, &query.pool),
        Query::Task(pool, _) => need(principal, Right::Observe, pool),
        // Owners are those of all names.
        Query::TopOwners(_) if !principal.may(Right::Observe, "") => Err(Denied::NotAdministrator),
        Query::Locks(_) | Query::Request(_) | Query::Pools | Query::Stats | Query::TopOwners(_) => {
            Ok(())
        }
    }
}

/// The same command about a request that cannot exist: its answer, and the time that it takes, are
/// those of an unknown id. For [`Denied::NotYours`]; other commands stay as they are.
pub fn as_unknown(command: Command) -> Command {
    // The table refuses to make a request with an empty id, or a grant with the token 0.
    let nobody = || Target::Id(RequestId::new(""));
    match command {
        Command::Release(_) => Command::Release(nobody()),
        Command::Renew(_, lease_ms) => Command::Renew(nobody(), lease_ms),
        Command::Cancel(_) => Command::Cancel(nobody()),
        Command::Promote(_) => Command::Promote(nobody()),
        Command::Revoke(_, reason) => Command::Revoke(0, reason),
        Command::Task(task) if task.action == TaskAction::Cancel => {
            Command::Task(TaskCommand { id: RequestId::new(""), ..task })
        }
        other => other,
    }
}

fn admit_acquire(principal: &Principal, ask: &Acquire, lookup: &impl Lookup) -> Result<(), Denied> {
    for part in ask.parts() {
        need(principal, Right::to_lock(part.mode), part.resource.name())?;
    }
    // A repeat is answered with the grant of the first one, whoever asked that.
    let found = lookup.request(&Target::Id(ask.id.clone()));
    match is_yours(principal, &found) {
        true => Ok(()),
        false => Err(Denied::IdReused),
    }
}

fn admit_task(
    principal: &Principal,
    task: &TaskCommand,
    lookup: &impl Lookup,
) -> Result<(), Denied> {
    let found = match task.action {
        // It is about an id alone.
        TaskAction::Cancel => lookup.claim(&task.id),
        TaskAction::Claim(_) => {
            need(principal, Right::Exclusive, &task.pool)?;
            lookup.claim(&task.id)
        }
        _ => return need(principal, Right::Exclusive, &task.pool),
    };
    let Some((pool, of)) = found else { return Ok(()) };
    let yours = match of {
        Some(other) => other == principal.name || principal.may(Right::Admin, &pool),
        None => principal.may(Right::Exclusive, &pool),
    };
    match (yours, &task.action) {
        (true, _) => Ok(()),
        (false, TaskAction::Cancel) => Err(Denied::NotYours),
        (false, _) => Err(Denied::IdReused),
    }
}

fn admit_target(
    principal: &Principal,
    target: &Target,
    lookup: &impl Lookup,
) -> Result<Vec<Entry>, Denied> {
    let found = lookup.request(target);
    match is_yours(principal, &found) {
        true => Ok(found),
        false => Err(Denied::NotYours),
    }
}

/// Whether a request is the principal's, or one that it administers, or none at all: of that the
/// table says so itself.
fn is_yours(principal: &Principal, found: &[Entry]) -> bool {
    found.iter().all(|entry| {
        let name = entry.resource.name();
        match &entry.principal {
            Some(other) if *other == principal.name => true,
            Some(_) => principal.may(Right::Admin, name),
            None => principal.may(Right::to_lock(entry.mode), name),
        }
    })
}

fn admit_revoke(principal: &Principal, token: u64, lookup: &impl Lookup) -> Result<(), Denied> {
    // Looking for a token takes long; who may revoke nothing is told so without.
    if !principal.may_anywhere(Right::Revoke) {
        return Err(Denied::Missing { right: Right::Revoke, name: "".into() });
    }
    let found = lookup.grant(token);
    // Which name it is may be said only to those who may see it.
    match found.iter().all(|entry| principal.may_see(entry.resource.name())) {
        true => need_all(principal, Right::Revoke, &found),
        false => Err(Denied::NotYours),
    }
}

fn need_all(principal: &Principal, right: Right, entries: &[Entry]) -> Result<(), Denied> {
    entries.iter().try_for_each(|entry| need(principal, right, entry.resource.name()))
}

fn need(principal: &Principal, right: Right, name: &str) -> Result<(), Denied> {
    match principal.may(right, name) {
        true => Ok(()),
        false => Err(missing(right, name)),
    }
}

fn missing(right: Right, name: &str) -> Denied {
    Denied::Missing { right, name: name.into() }
}
