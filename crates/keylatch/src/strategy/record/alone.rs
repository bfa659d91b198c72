//! A lock where nobody is, and its release: most of what there is. It goes to the store at once, as a change that says
//! no more than that, and whoever learns what came of it ends it. Whatever is otherwise is left to [`super::decide`].

use std::sync::Arc;

use keylatch_table::{Acquire, Command, Counters, Grant, Reply, Table, Target};
use tokio::sync::oneshot;

use super::decide;
use super::driver::{Acted, Asker, Books, Entered, Job, Shared, real};
use super::format::{FRESH, Holders};
use super::line::Batch;
use super::mine::State;
use super::store::{Landed, Name, Plain, Put, Store, StoreError};
use crate::carried::Carried;
use crate::clock::Moment;
use crate::releasing::Counted;

/// The rules, which say what happens where nobody is.
pub(super) fn rules() -> Table {
    Table::new(decide::settings(), 0, 0)
}

/// The request takes the name: its head, and its grant.
fn takes(rules: &Table, ask: &Acquire) -> Option<(Put, Grant)> {
    let counters = Counters { now: 0, token: FRESH, seq: FRESH };
    let (standing, grant) = rules.alone(counters, ask)?;
    let holders = Holders { standings: vec![standing], notes: Vec::new() };
    Some((decide::put(holders, &[], 0), grant))
}

/// A plain change, and what it grants.
pub(super) type Simple = (Plain, Option<Grant>);

/// What a lock would be where nobody is, worked out beforehand.
pub(super) type Prepared = (Put, Grant);

/// If this is one lock where nobody is known to be, or the release of one that is there alone.
pub(super) fn simple(
    books: &mut Books,
    names: &[Name],
    command: &Command,
    prepared: Option<Prepared>,
) -> Option<Simple> {
    let Books { mine, known, .. } = books;
    let [name] = names else { return None };
    if mine.relays.is_at(name) {
        return None;
    }
    match command {
        Command::Acquire(ask) if !mine.is_waiting(&ask.id) && !known.has(name) => {
            prepared.map(|(put, grant)| (Plain::Take(put), Some(grant)))
        }
        Command::Release(Target::Id(id)) => {
            let version = known.alone(name, id)?;
            mine.relays.is_given_up(id).then_some((Plain::Leave(version), None))
        }
        _ => None,
    }
}

/// A lock, or a release, that is at work in its line and still to be sent.
pub(super) struct Sending {
    name: Name,
    number: u64,
    command: Command,
    counted: Option<Counted>,
    simple: Simple,
}

/// A job that is at work as a plain change.
struct Under<S> {
    shared: Arc<Shared<S>>,
    name: Name,
    number: u64,
    job: Job,
    grant: Option<Grant>,
    /// When it was sent.
    since: Moment,
}

impl<S: Store> Shared<S> {
    pub(super) fn prepare(&self, names: &[Name], command: &Command) -> Option<Prepared> {
        match command {
            Command::Acquire(ask) if names.len() == 1 => takes(&self.rules, ask),
            _ => None,
        }
    }

    /// A lock, or a release, takes its place in the line. If it is as simple as that, it is to be sent at once.
    pub(super) fn enter_at_once(
        self: &Arc<Self>,
        books: &mut Books,
        names: Vec<Name>,
        command: Command,
        counted: Option<Counted>,
        prepared: Option<Prepared>,
    ) -> Result<Sending, Entered> {
        let is_free = books.line.is_free(&names);
        match is_free.then(|| simple(books, &names, &command, prepared)).flatten() {
            Some(simple) => {
                let (name, number) = books.line.enter_at_work(names);
                Ok(Sending { name, number, command, counted, simple })
            }
            None => Err(self.enter_in(books, names, Some(command), counted)),
        }
    }

    /// Sends it, if it is to be. Not while the books are open: it takes a while.
    pub(super) fn sent(self: &Arc<Self>, sending: Result<Sending, Entered>) -> Entered {
        let Sending { name, number, command, counted, simple } = match sending {
            Ok(sending) => sending,
            Err(entered) => return entered,
        };
        let (done, asked) = oneshot::channel();
        let job = Job { command: Some(command), asker: Asker { done, counted } };
        let work = self.land(name, number, job, simple);
        if let Some(work) = &work
            && !self.books.lock().line.carried(number, work.pusher())
        {
            // Somebody depends on it already.
            work.push();
        }
        Entered { work, asked }
    }

    /// Sends it. What is left to do for it, if anything: who asked is answered, and whoever is next in the line
    /// begins, in any case.
    pub(super) fn land(
        self: &Arc<Self>,
        name: Name,
        number: u64,
        job: Job,
        (plain, grant): Simple,
    ) -> Option<Carried<()>> {
        let since = Moment::now();
        let shared = Arc::clone(self);
        let under = Under { shared, name: name.clone(), number, job, grant, since };
        let landing = Box::new(move |plain, came| under.landed(plain, came));
        self.store.land(&self.runtime, name, plain, landing)
    }
}

impl<S: Store> Under<S> {
    fn landed(self, plain: Plain, came: Result<Landed, StoreError>) {
        let Under { shared, name, number, job, grant, since } = self;
        let mut books = shared.books.lock();
        let Books { line, mine, known } = &mut *books;
        let done = match (came, plain, grant, &job.command) {
            (
                Ok(Landed::Took { version, now }),
                Plain::Take(put),
                Some(grant),
                Some(Command::Acquire(ask)),
            ) => {
                // Unless it was given up meanwhile.
                let held = mine.set(&ask.id, State::Held);
                match mine.has(&name) {
                    true => {
                        let holder = (ask.id.clone(), grant.lease_ms, put.bytes);
                        known.took(&name, holder, version, now);
                    }
                    false => known.left(&name, version),
                }
                let reply = Reply::Granted(real(&grant, version));
                Ok(Acted { held, ..Acted::at(reply, since) })
            }
            (Ok(Landed::Took { .. }), ..) => unreachable!("only a lock takes a name"),
            (Ok(Landed::Left { version }), ..) => {
                known.left(&name, version);
                Ok(Acted::at(Reply::Released, since))
            }
            (Ok(Landed::Otherwise(view)), ..) => Err(Ok((view, since))),
            (Err(error), ..) => Err(Err(error)),
        };
        let found = match done {
            Ok(acted) => {
                // Before it is answered: whoever is answered may want the name next.
                let next = line.done_one(&name, number);
                drop(books);
                job.asker.answer(Ok(acted));
                if let Some(next) = next {
                    shared.start(next);
                }
                return;
            }
            Err(found) => found,
        };
        drop(books);
        let runtime = shared.runtime.clone();
        let batch = Batch::of(name, number, job);
        runtime.spawn(async move {
            for next in shared.carry_out(batch, Some(found)).await {
                shared.start(next);
            }
        });
    }
}
