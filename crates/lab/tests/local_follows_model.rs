//! `keylatch-local` has a queue of its own, for speed. It must do what the naive model of the lock
//! rules does, over random scripts of asking, trying, leaving, releasing and upgrading, for one key
//! and for several. `KEYLATCH_SEEDS=from..to` makes it longer.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use keylatch_lab::model::{Bug, Model};
use keylatch_lab::random::Random;
use keylatch_local::{
    Exclusive, ExclusiveGuard, KeyedMutex, Lock, LockMany, ManyGuard, Options, Shared, SharedGuard,
};
use keylatch_table::{
    Acquire, Answer, Command, LocksQuery, Mode, Part, Party, Query, Reply, Resource, Settings,
    State, Target,
};

const KEYS: u8 = 4;
const FOR_EVER: u64 = 3_600_000;

type Locks = KeyedMutex<u8>;

/// One request of the local table, as its caller sees it.
#[expect(dead_code, reason = "some guards are there only to be dropped")]
enum Request<'a> {
    Waiting(Waiting<'a>),
    Exclusive(ExclusiveGuard<'a, u8>),
    Shared(SharedGuard<'a, u8>),
    Many(ManyGuard<&'a Locks>),
}

enum Waiting<'a> {
    Exclusive(Lock<&'a Locks, u8, Exclusive>),
    Shared(Lock<&'a Locks, u8, Shared>),
    Many(LockMany<&'a Locks>),
}

fn poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    match Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

impl<'a> Waiting<'a> {
    fn poll(&mut self) -> Option<Request<'a>> {
        match self {
            Waiting::Exclusive(lock) => poll(lock).map(Request::Exclusive),
            Waiting::Shared(lock) => poll(lock).map(Request::Shared),
            Waiting::Many(lock) => poll(lock).map(Request::Many),
        }
    }
}

struct Scene<'a> {
    locks: &'a Locks,
    model: Model,
    random: Random,
    /// By id.
    requests: BTreeMap<u64, Request<'a>>,
    last: u64,
    script: Vec<String>,
}

impl Scene<'_> {
    fn apply(&mut self, command: &Command) -> Reply {
        self.model.apply(0, command).reply
    }

    fn target(id: u64) -> Target {
        Target::Id(id.to_string().as_str().into())
    }

    /// A new request to the model.
    fn ask(&mut self, keys: &[u8], mode: Mode, wait_ms: u64) -> Reply {
        let part = |key: &u8| Part::new(Resource::plain(&key.to_string()).unwrap(), mode);
        let first = part(&keys[0]);
        let ask = Acquire {
            also: keys[1..].iter().map(part).collect(),
            wait_ms,
            lease_ms: 0,
            part: first.clone(),
            ..Acquire::new(
                self.last.to_string().as_str().into(),
                first.resource,
                Party::client("test"),
            )
        };
        self.apply(&Command::Acquire(ask))
    }

    fn step(&mut self) {
        let ids: Vec<u64> = self.requests.keys().copied().collect();
        match self.random.below(10) {
            0..3 => self.lock(),
            3 => self.try_lock(),
            4..8 => {
                if let Some(id) = self.random.pick_some(&ids) {
                    self.end(id);
                }
            }
            8 => {
                if let Some(id) = self.random.pick_some(&ids) {
                    self.upgrade(id);
                }
            }
            _ => {
                if let Some(id) = self.random.pick_some(&ids) {
                    self.look(id);
                }
            }
        }
    }

    fn keys(&mut self) -> Vec<u8> {
        let mut keys: Vec<u8> = (0..KEYS).filter(|_| self.random.percent(40)).collect();
        if keys.is_empty() {
            keys.push(self.random.below(u64::from(KEYS)) as u8);
        }
        keys
    }

    fn lock(&mut self) {
        self.last += 1;
        let key = self.random.below(u64::from(KEYS)) as u8;
        let (keys, mode, mut waiting) = match self.random.below(4) {
            0 => {
                let keys = self.keys();
                let waiting = Waiting::Many(self.locks.lock_many(keys.iter().rev().copied()));
                (keys, Mode::Exclusive, waiting)
            }
            1 => (vec![key], Mode::Exclusive, Waiting::Exclusive(self.locks.lock(key))),
            2 => (vec![key], Mode::Exclusive, Waiting::Exclusive(self.locks.reserve(key))),
            _ => (vec![key], Mode::Shared, Waiting::Shared(self.locks.lock_shared(key))),
        };
        self.script.push(format!("{}: lock {keys:?} {mode:?}", self.last));
        let reply = self.ask(&keys, mode, FOR_EVER);
        let request = waiting.poll().unwrap_or(Request::Waiting(waiting));
        let held = !matches!(request, Request::Waiting(_));
        assert_eq!(matches!(reply, Reply::Granted(_)), held, "{reply:?}");
        self.requests.insert(self.last, request);
    }

    fn try_lock(&mut self) {
        self.last += 1;
        let key = self.random.below(u64::from(KEYS)) as u8;
        let (keys, mode, request) = match self.random.below(3) {
            0 => {
                let keys = self.keys();
                let many = self.locks.try_lock_many(keys.iter().copied()).map(Request::Many);
                (keys, Mode::Exclusive, many)
            }
            1 => {
                let guard = self.locks.try_lock(key).map(Request::Exclusive);
                (vec![key], Mode::Exclusive, guard)
            }
            _ => {
                let guard = self.locks.try_lock_shared(key).map(Request::Shared);
                (vec![key], Mode::Shared, guard)
            }
        };
        self.script.push(format!("{}: try {keys:?} {mode:?}", self.last));
        let reply = self.ask(&keys, mode, 0);
        assert_eq!(matches!(reply, Reply::Granted(_)), request.is_some(), "{reply:?}");
        if let Some(request) = request {
            self.requests.insert(self.last, request);
        }
    }

    /// Drops a guard, or a future whether it was granted or not.
    fn end(&mut self, id: u64) {
        self.script.push(format!("{id}: end"));
        self.requests.remove(&id);
        assert_eq!(self.apply(&Command::Release(Self::target(id))), Reply::Released);
    }

    fn upgrade(&mut self, id: u64) {
        let Some(Request::Shared(_)) = self.requests.get(&id) else { return };
        let Some(Request::Shared(guard)) = self.requests.remove(&id) else { unreachable!() };
        self.script.push(format!("{id}: upgrade"));
        let reply = self.apply(&Command::Promote(Self::target(id)));
        let request = match guard.try_upgrade() {
            Ok(guard) => Request::Exclusive(guard),
            Err(guard) => Request::Shared(guard),
        };
        let upgraded = matches!(request, Request::Exclusive(_));
        assert_eq!(matches!(reply, Reply::Promoted(_)), upgraded, "{reply:?}");
        self.requests.insert(id, request);
    }

    /// Polls: it is granted exactly if the model says so.
    fn look(&mut self, id: u64) {
        self.script.push(format!("{id}: look"));
        let Answer::Entries(entries) =
            self.model.query(0, &Query::Request(id.to_string().as_str().into()))
        else {
            panic!("entries are asked for")
        };
        let holds = entries[0].state == State::Held;
        let request = self.requests.get_mut(&id).unwrap();
        if let Request::Waiting(waiting) = request
            && let Some(granted) = waiting.poll()
        {
            *request = granted;
        }
        assert_eq!(!matches!(request, Request::Waiting(_)), holds);
    }

    /// How many hold and wait for each key.
    fn compare(&self) {
        let query = Query::Locks(LocksQuery { waiters: true, ..LocksQuery::default() });
        let Answer::Entries(entries) = self.model.query(0, &query) else { unreachable!() };
        for key in 0..KEYS {
            let name = key.to_string();
            let count = |state| {
                let here = |entry: &&keylatch_table::Entry| {
                    entry.state == state && entry.resource.name() == name
                };
                entries.iter().filter(here).count()
            };
            let local = (self.locks.holders(key), self.locks.waiters(key));
            assert_eq!(local, (count(State::Held), count(State::Waiting)), "of key {key}");
        }
    }
}

/// Runs one script; an error has what was done up to the difference.
fn run(seed: u64, steps: usize, bug: Option<Bug>) -> Result<(), String> {
    let shards = if seed.is_multiple_of(2) { 1 } else { 64 };
    let locks: Locks = Options::new().shards(shards).ignore_reentry().build();
    let model = Model::new(Settings::default(), 0);
    let model = match bug {
        Some(bug) => model.with_bug(bug),
        None => model,
    };
    let random = Random::new(seed);
    let mut scene = Scene {
        locks: &locks,
        model,
        random,
        requests: BTreeMap::new(),
        last: 0,
        script: Vec::new(),
    };
    let play = std::panic::AssertUnwindSafe(|| {
        for _ in 0..steps {
            scene.step();
            scene.compare();
        }
    });
    if std::panic::catch_unwind(play).is_err() {
        return Err(format!("seed {seed}:\n{}", scene.script.join("\n")));
    }
    drop(scene);
    assert!(locks.is_empty(), "seed {seed}");
    Ok(())
}

#[test]
fn it_does_what_the_model_does() {
    let seeds = std::env::var("KEYLATCH_SEEDS").unwrap_or_else(|_| "0..200".into());
    let (from, to) = seeds.split_once("..").expect("KEYLATCH_SEEDS is from..to");
    let number = |text: &str| text.parse::<u64>().expect("KEYLATCH_SEEDS has numbers");
    for seed in number(from)..number(to) {
        run(seed, 300, None).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// The control: a model with a mistake is told from the local table.
#[test]
fn a_mistake_in_the_model_is_noticed() {
    for bug in [Bug::PassesTheQueue, Bug::WakesOneOnly] {
        let noticed = (0..50).any(|seed| run(seed, 300, Some(bug)).is_err());
        assert!(noticed, "{bug:?}");
    }
}
