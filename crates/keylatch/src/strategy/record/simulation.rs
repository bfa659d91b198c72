//! The real driver over a store in memory that does everything a store and a network may do: answers
//! late, loses answers, carries out a change long after its caller has given up, loses messages; and
//! clients that die, stall, and hold for longer than their lease. Time is tokio's, which stands still
//! while there is something to do; a seed says what happens.
//!
//! Checked: no two conflicting requests believe that they hold; no conflicting waiter that lives is
//! passed over; tokens grow; everyone who lives is served in the end; nothing stays behind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use keylatch_table::{
    ANY, Acquire, Field, Mode, Part, Party, RequestId, Resource, Standing, rules,
};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::super::{Pending, Strategy};
use super::driver::Records;
use super::format;
use super::store::{
    Change, Committed, Done, Expect, Found, Head, Name, NameChange, Record, Stand, Store,
    StoreError, Told, View, Waiter, Write,
};
use crate::releasing::Counted;

/// What is left out on purpose, to see the checks catch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sabotage {
    None,
    /// Versions are not compared.
    Versions,
    /// Whoever is granted at once passes those it did not see (rule 2).
    LastSeq,
    /// What is removed need not be there (rule 3).
    Remove,
    /// An id may queue twice (rule 4).
    Twice,
    /// Dead waiters come back to life (rule 5).
    Revive,
    /// Versions count within a name, and begin anew (rule 12).
    OwnCounter,
    /// Nobody is told of anything, and those who wait show no sign of life.
    Silence,
    /// Only one number is taken, however many are wanted (rule 10).
    OneNumber,
}

struct World {
    state: Mutex<State>,
    start: Instant,
    random: Mutex<StdRng>,
    /// Out of a thousand calls so many go wrong in each way; 0 once it is quiet.
    faults: AtomicU64,
    /// How many waiters one change should remove.
    most_removed: usize,
    sabotage: Sabotage,
}

#[derive(Default)]
struct State {
    names: BTreeMap<Name, Entry>,
    counter: u64,
    told: Vec<mpsc::UnboundedSender<Told>>,
    /// The last token granted on a name.
    tokens: BTreeMap<Name, u64>,
    commits: u64,
    mismatches: u64,
    /// How many held before it was written.
    early: u64,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    head: Option<Head>,
    queue: Vec<(RequestId, Waiter)>,
    own_counter: u64,
}

impl World {
    fn now(&self) -> u64 {
        1_000_000 + self.start.elapsed().as_millis() as u64
    }

    fn below(&self, bound: u64) -> u64 {
        self.random.lock().random_range(0..bound.max(1))
    }

    fn happens(&self) -> bool {
        self.below(1_000) < self.faults.load(Ordering::SeqCst)
    }

    fn view(&self, state: &State, names: impl Iterator<Item = Name>) -> View {
        let record = |name: Name| {
            let entry = state.names.get(&name).cloned().unwrap_or_default();
            let queue = entry.queue.into_iter().map(|(_, waiter)| waiter).collect();
            (name, Record { head: entry.head, queue })
        };
        View { now: self.now(), names: names.map(record).collect() }
    }

    fn fits(&self, state: &State, change: &Change) -> bool {
        let empty = Entry::default();
        change.names.iter().all(|(name, one)| {
            let entry = state.names.get(name).unwrap_or(&empty);
            let version = entry.head.as_ref().map(|head| head.version);
            let expected = match one.expect {
                Expect::Absent => version.is_none() && entry.queue.is_empty(),
                Expect::There => version.is_some(),
                Expect::Version(_) if self.sabotage == Sabotage::Versions => true,
                Expect::Version(expected) => version == Some(expected),
            };
            let last = entry.queue.last().map_or(0, |(_, waiter)| waiter.seq);
            let unseen = one.last_seq.is_some_and(|seen| last > seen);
            let is_there = |stand: &Stand| {
                entry.queue.iter().any(|(id, waiter)| *id == stand.id && waiter.seq == stand.seq)
            };
            expected
                && (!unseen || self.sabotage == Sabotage::LastSeq)
                && (one.remove.iter().all(is_there) || self.sabotage == Sabotage::Remove)
        }) && change.appends.iter().all(|append| {
            let queued = |name: &Name| {
                let entry = state.names.get(name);
                entry.is_some_and(|entry| entry.queue.iter().any(|(id, _)| *id == append.id))
            };
            self.sabotage == Sabotage::Twice || !append.to.iter().any(queued)
        })
    }

    fn commit(&self, client: &str, change: &Change) -> Committed {
        let mut state = self.state.lock();
        // One that a command is about may be on two names; its own, who have had what they waited for or
        // have given up, may be any number.
        let others = |one: &NameChange| {
            one.remove.iter().filter(|stand| !stand.id.to_string().starts_with(client)).count()
        };
        let removed: usize = change.names.values().map(|one| others(one)).sum();
        assert!(removed <= self.most_removed.max(2), "too many leave: {change:?}");
        if !self.fits(&state, change) {
            state.mismatches += 1;
            return Committed::Mismatch(self.view(&state, change.names.keys().cloned()));
        }
        state.commits += 1;
        if std::env::var_os("KEYLATCH_TRACE").is_some() {
            eprintln!("{} {client} v{}: {change:?}", self.now(), state.counter + 1);
        }
        let now = self.now();
        let mut version = state.counter + 1;
        state.counter += match self.sabotage {
            Sabotage::OneNumber => 1 + change.appends.len() as u64,
            _ => change.all_numbers(),
        };
        let mut found = BTreeMap::new();
        let mut messages = Vec::new();
        for (name, one) in &change.names {
            let entry = state.names.entry(name.clone()).or_default();
            if self.sabotage == Sabotage::OwnCounter {
                entry.own_counter += change.all_numbers();
                version = entry.own_counter;
            }
            let before = entry.clone();
            let removed: BTreeSet<u64> = one.remove.iter().map(|stand| stand.seq).collect();
            let waits = |(_, waiter): &(RequestId, Waiter)| !removed.contains(&waiter.seq);
            // Before it is done: everyone who saw that would try again and again.
            let headless = matches!(one.head, Write::Delete) && entry.queue.iter().any(waits);
            assert!(!headless, "a queue without a head");
            found.insert(
                name.clone(),
                Found {
                    version: entry.head.as_ref().map_or(0, |head| head.version),
                    last_seq: entry.queue.last().map_or(0, |(_, waiter)| waiter.seq),
                },
            );
            match &one.head {
                Write::Keep => {}
                Write::Delete => entry.head = None,
                Write::Put(put) => {
                    let bytes = put.bytes.clone();
                    entry.head = Some(Head { version, time: now, bytes, alive: None });
                }
            }
            entry.queue.retain(waits);
            let written = !matches!(one.head, Write::Keep) || !removed.is_empty();
            let others_wait = (before.queue.last())
                .is_some_and(|(_, waiter)| waiter.seq > one.own_up_to.unwrap_or(0));
            if written && (others_wait || one.tell) {
                let removed = removed.into_iter().collect();
                messages.push(Told::Changed { name: name.clone(), version, removed });
            }
            let after = entry.clone();
            if let Some(head) = &after.head
                && written
            {
                World::check(&mut state.tokens, name, &before, (client, head), now);
            }
        }
        for (at, append) in change.appends.iter().enumerate() {
            for name in &append.to {
                let entry = state.names.entry(name.clone()).or_default();
                assert!(entry.head.is_some(), "a queue without a head");
                let seq = change.seq_of(version, at);
                let alive_until = now + append.live_ms;
                let bytes = append.bytes.clone();
                entry.queue.push((
                    append.id.clone(),
                    Waiter { seq, time: now, alive_until, came: None, bytes },
                ));
            }
        }
        if self.sabotage != Sabotage::OwnCounter {
            state.names.retain(|_, entry| entry.head.is_some() || !entry.queue.is_empty());
        }
        if self.sabotage != Sabotage::Silence {
            for message in messages {
                state.told.retain(|told| {
                    // Lost, now and then.
                    self.happens() || told.send(message.clone()).is_ok()
                });
            }
        }
        Committed::Done(Done { version, now, names: found })
    }

    /// What a write grants passes nobody who lives and is in its way, and has a larger token.
    fn check(
        tokens: &mut BTreeMap<Name, u64>,
        name: &Name,
        before: &Entry,
        (client, head): (&str, &Head),
        now: u64,
    ) {
        let holders = format::decode(head, now).expect("a head that can be read").standings;
        let was = before.head.as_ref().map(|head| format::decode(head, now).unwrap().standings);
        let held: BTreeMap<RequestId, u64> =
            was.iter().flatten().map(|standing| (standing.id.clone(), standing.token)).collect();
        for new in &holders {
            if held.get(&new.id) == Some(&new.token) {
                continue;
            }
            let last = tokens.entry(name.clone()).or_default();
            assert!(new.token > *last, "a token that does not grow: {} after {last}", new.token);
        }
        for new in &holders {
            let last = tokens.entry(name.clone()).or_default();
            *last = (*last).max(new.token);
        }
        let granted = |new: &&Standing| !held.contains_key(&new.id);
        for new in holders.iter().filter(granted) {
            for (id, waiter) in &before.queue {
                let ahead = format::decode_waiter(waiter, 0).expect("a waiter that can be read");
                let lives = ahead.deadline.is_some_and(|end| end > now + 500);
                // Whoever writes this may give up what it waits for itself; and one that held stands
                // there by an append that came late.
                let passed = lives
                    && !held.contains_key(id)
                    && !id.to_string().starts_with(client)
                    && ahead.seq < new.seq
                    && !holders.iter().any(|holder| holder.id == *id)
                    && conflict(&parts(&ahead), &parts(new));
                assert!(!passed, "{} passes {id} on {name}", new.id);
            }
        }
        for (at, one) in holders.iter().enumerate() {
            for other in &holders[..at] {
                assert!(!conflict(&parts(one), &parts(other)), "two holders on {name}");
            }
        }
    }
}

impl World {
    /// Whoever holds and still stands in the queue, because that is not written yet, has passed no other
    /// client's that lives.
    fn passes_nobody(&self, id: &RequestId, wants: &[Part]) {
        let (now, client) = (self.now(), client_of(id));
        let mut state = self.state.lock();
        let mut early = false;
        for (name, entry) in &state.names {
            let Some(place) = entry.queue.iter().position(|(one, _)| one == id) else { continue };
            let holders = entry.head.as_ref().and_then(|head| format::decode(head, now));
            let holders = holders.map_or(Vec::new(), |holders| holders.standings);
            if holders.iter().any(|holder| holder.id == *id) {
                // It stands there by an append that came late.
                continue;
            }
            early = true;
            for (ahead, waiter) in &entry.queue[..place] {
                let standing = format::decode_waiter(waiter, 0).expect("a waiter");
                let passed = standing.deadline.is_some_and(|end| end > now + 500)
                    && client_of(ahead) != client
                    && !holders.iter().any(|holder| holder.id == *ahead)
                    && conflict(&parts(&standing), wants);
                assert!(!passed, "{id} passes {ahead} on {name}");
            }
        }
        state.early += u64::from(early);
    }
}

/// The first part of an id.
fn client_of(id: &RequestId) -> String {
    id.to_string().split_once('-').expect("a client and more").0.to_string()
}

fn parts(standing: &Standing) -> Vec<Part> {
    standing.parts.iter().map(|part| Part::new(part.resource.clone(), part.mode)).collect()
}

fn conflict(one: &[Part], other: &[Part]) -> bool {
    one.iter().any(|one| other.iter().any(|other| rules::conflict(one, other, false)))
}

/// One client's way to the store.
#[derive(Clone)]
struct Way {
    client: u64,
    world: Arc<World>,
    /// It has died: nothing of it arrives any more, nor comes back.
    dead: Arc<AtomicBool>,
    told: Arc<Mutex<Option<mpsc::UnboundedReceiver<Told>>>>,
}

impl Way {
    fn new(world: &Arc<World>, client: u64) -> Way {
        let (send, told) = mpsc::unbounded_channel();
        world.state.lock().told.push(send);
        let told = Arc::new(Mutex::new(Some(told)));
        Way { client, world: Arc::clone(world), dead: Arc::default(), told }
    }

    /// A call with all that may happen to it.
    fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&World) -> T + Send + 'static,
    ) -> Pending<Result<T, StoreError>> {
        let (world, dead) = (Arc::clone(&self.world), Arc::clone(&self.dead));
        Box::pin(async move {
            let error = |text: &str, unknown| Err(StoreError { text: text.into(), unknown });
            if dead.load(Ordering::SeqCst) {
                return std::future::pending().await;
            }
            sleep(Duration::from_millis(world.below(3))).await;
            if world.happens() {
                return error("refused", false);
            }
            if world.happens() {
                // Carried out some time after the caller has given up.
                let after = Duration::from_millis(world.below(6_000));
                let later = Arc::clone(&world);
                tokio::spawn(async move {
                    sleep(after).await;
                    work(&later);
                });
                sleep(Duration::from_millis(world.below(1_500))).await;
                return error("no answer", true);
            }
            if world.happens() {
                // A stall on the way there.
                sleep(Duration::from_millis(world.below(8_000))).await;
            }
            if dead.load(Ordering::SeqCst) {
                return std::future::pending().await;
            }
            let done = work(&world);
            if world.happens() {
                return error("the answer was lost", true);
            }
            let back = if world.happens() { 4_000 } else { 3 };
            sleep(Duration::from_millis(world.below(back))).await;
            Ok(done)
        })
    }
}

impl Store for Way {
    fn read(&self, names: Vec<Name>) -> Pending<Result<View, StoreError>> {
        self.call(move |world| world.view(&world.state.lock(), names.into_iter()))
    }

    fn read_all(&self) -> Pending<Result<View, StoreError>> {
        self.call(|world| {
            let state = world.state.lock();
            world.view(&state, state.names.keys().cloned().collect::<Vec<_>>().into_iter())
        })
    }

    fn commit(&self, change: Change) -> Pending<Result<Committed, StoreError>> {
        let client = format!("client{}-", self.client);
        self.call(move |world| world.commit(&client, &change))
    }

    fn touch(
        &self,
        waiters: Vec<(Stand, Vec<Name>)>,
        live_ms: u64,
    ) -> Pending<Result<Vec<bool>, StoreError>> {
        self.call(move |world| {
            let now = world.now();
            let mut state = world.state.lock();
            let touch = |(stand, names): &(Stand, Vec<Name>)| {
                names.iter().all(|name| {
                    let Some(entry) = state.names.get_mut(name) else { return false };
                    let mut same = entry.queue.iter_mut().map(|(_, waiter)| waiter);
                    let Some(waiter) = same.find(|waiter| waiter.seq == stand.seq) else {
                        return false;
                    };
                    if waiter.alive_until <= now && world.sabotage != Sabotage::Revive {
                        return false;
                    }
                    if world.sabotage != Sabotage::Silence {
                        waiter.alive_until = now + live_ms;
                    }
                    true
                })
            };
            waiters.iter().map(touch).collect()
        })
    }

    fn most_removed(&self) -> usize {
        self.world.most_removed
    }

    fn told(&self) -> mpsc::UnboundedReceiver<Told> {
        self.told.lock().take().expect("asked for once")
    }
}

/// Who believes that it holds what, until when.
#[derive(Default)]
struct Beliefs(Mutex<Vec<Belief>>, Mutex<Vec<(Vec<Part>, u64)>>);

struct Belief {
    id: RequestId,
    parts: Vec<Part>,
    ends: Instant,
}

impl Beliefs {
    fn begin(&self, world: &World, ask: &Acquire, token: u64, ends: Instant) {
        let (id, parts) = (&ask.id, &ask.parts().cloned().collect::<Vec<_>>());
        let mut beliefs = self.0.lock();
        let now = Instant::now();
        if ends <= now {
            // The answer came after the lease, and says so.
            return;
        }
        world.passes_nobody(id, parts);
        let mut tokens = self.1.lock();
        for (earlier, other) in tokens.iter() {
            let fenced = !conflict(earlier, parts) || token > *other;
            assert!(fenced, "{id} has {token}, which is not larger than {other}");
        }
        tokens.push((parts.clone(), token));
        for other in beliefs.iter().filter(|other| other.ends > now) {
            let conflicts = other.id != *id && conflict(&other.parts, parts);
            assert!(!conflicts, "both {} and {id} believe that they hold {parts:?}", other.id);
        }
        if std::env::var_os("KEYLATCH_TRACE").is_some() {
            eprintln!("{id} believes for {:?}", ends - now);
        }
        beliefs.push(Belief { id: id.clone(), parts: parts.clone(), ends });
    }

    fn end(&self, id: &RequestId) {
        self.0.lock().retain(|belief| belief.id != *id);
    }

    fn end_of(&self, client: &str) {
        self.0.lock().retain(|belief| !belief.id.to_string().starts_with(client));
    }
}

/// What one client asks for next; `plain` is what most people want.
fn ask(random: &mut StdRng, id: RequestId, plain: bool) -> Acquire {
    let resource = |random: &mut StdRng, name: &str| {
        let field = match random.random_range(0..4) {
            0 => ANY,
            1 => Field::Text("a"),
            _ => Field::Text("b"),
        };
        match name {
            // One that everyone wants, and one with fields.
            "k" => Resource::plain(name).unwrap(),
            _ => Resource::new(name, &[field]).unwrap(),
        }
    };
    let names = ["k", "k", "k", "m", "n"];
    if plain && random.random_range(0..5) > 0 {
        let mut ask = Acquire::new(id, resource(random, "k"), Party::client("client"));
        ask.wait_ms = [50, 5_000, 600_000, 600_000][random.random_range(0..4)];
        ask.lease_ms = 2_500;
        return ask;
    }
    let first = names[random.random_range(0..names.len())];
    let mut ask = Acquire::new(id, resource(random, first), Party::client("client"));
    let mode = if random.random_range(0..2) == 0 { Mode::Shared } else { Mode::Exclusive };
    ask.part.mode = mode;
    if random.random_range(0..5) == 0 {
        let other = names.iter().find(|name| **name != first).unwrap();
        ask.also.push(Part::new(resource(random, other), mode));
    }
    ask.wait_ms = [0, 50, 5_000, 600_000][random.random_range(0..4)];
    ask.lease_ms = random.random_range(1_000..4_000);
    ask
}

/// What all tasks of a client have.
#[derive(Clone)]
struct Client {
    world: Arc<World>,
    beliefs: Arc<Beliefs>,
    number: u64,
    way: Way,
    records: Arc<Records<Way>>,
    /// Most want one key, alone.
    plain: bool,
}

async fn client(world: Arc<World>, beliefs: Arc<Beliefs>, number: u64, seed: u64, rounds: u64) {
    let mut random = StdRng::seed_from_u64(seed ^ (number << 32));
    let way = Way::new(&world, number);
    let (losses, _lost) = mpsc::unbounded_channel();
    let records = Arc::new(Records::new(way.clone(), losses));
    let plain = (seed / 4).is_multiple_of(2);
    let client = Client { world, beliefs: Arc::clone(&beliefs), number, way, records, plain };
    let count = if plain { random.random_range(1..5) } else { 1 };
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..count {
        let random = StdRng::seed_from_u64(random.random());
        tasks.spawn(client.clone().run(task, random, rounds));
    }
    while let Some(done) = tasks.join_next().await {
        if !done.expect("a check failed") {
            // It dies. What it holds is believed by nobody; its places in queues and its leases end.
            client.way.dead.store(true, Ordering::SeqCst);
            beliefs.end_of(&format!("client{number}-"));
            return;
        }
    }
}

impl Client {
    /// One of several tasks of a client; false if the client dies.
    async fn run(self, task: u64, mut random: StdRng, rounds: u64) -> bool {
        let Client { world, beliefs, number, records, plain, .. } = self;
        for round in 0..rounds {
            let id = RequestId::new(&format!("client{number}-{task}-{round}"));
            let ask = ask(&mut random, id.clone(), plain);
            let lease = ask.lease_ms;
            let wanted = records.acquire(ask.clone());
            // Some give up, as their callers do.
            let patience = Duration::from_millis(random.random_range(0..20_000));
            let gives_up = random.random_range(0..10) == 0;
            let granted = if gives_up {
                let Ok(granted) = tokio::time::timeout(patience, wanted).await else {
                    records.release(&id, Counted::new(&Arc::default())).await;
                    continue;
                };
                granted
            } else {
                wanted.await
            };
            let Ok(granted) = granted else {
                records.release(&id, Counted::new(&Arc::default())).await;
                continue;
            };
            let waited = granted.grant.waited_ms + granted.grant.lease_ms.unwrap_or(lease);
            let left = granted.since.after(Duration::from_millis(waited)).left().mul_f64(0.99);
            beliefs.begin(&world, &ask, granted.grant.token, Instant::now() + left);
            if world.below(100) < 3 && world.faults.load(Ordering::SeqCst) > 0 {
                return false;
            }
            let hold = if random.random_range(0..10) == 0 { lease * 2 } else { 30 };
            sleep(Duration::from_millis(random.random_range(0..hold))).await;
            beliefs.end(&id);
            records.release(&id, Counted::new(&Arc::default())).await;
        }
        true
    }
}

/// One run; how many commits and mismatches, and how many held before it was written.
fn run(seed: u64, sabotage: Sabotage) -> (u64, u64, u64) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let mut random = StdRng::seed_from_u64(seed);
        let clients = random.random_range(2..7);
        let world = Arc::new(World {
            state: Mutex::default(),
            start: Instant::now(),
            faults: AtomicU64::new([0, 5, 20, 50][random.random_range(0..4)]),
            most_removed: [1, 2, 3, usize::MAX][(seed % 4) as usize],
            random: Mutex::new(random),
            sabotage,
        });
        let beliefs = Arc::new(Beliefs::default());
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..clients {
            let (world, beliefs) = (Arc::clone(&world), Arc::clone(&beliefs));
            tasks.spawn(client(world, beliefs, number, seed, 12));
        }
        // After a while nothing goes wrong any more, and then all must end.
        let quiet = Arc::clone(&world);
        tokio::spawn(async move {
            sleep(Duration::from_mins(2)).await;
            quiet.faults.store(0, Ordering::SeqCst);
        });
        let all = async {
            while let Some(done) = tasks.join_next().await {
                done.expect("a check failed");
            }
        };
        tokio::time::timeout(Duration::from_mins(10), all).await.expect("somebody waits for ever");
        // What came late has come; whoever comes now finds everything free.
        sleep(Duration::from_mins(1)).await;
        world.faults.store(0, Ordering::SeqCst);
        let (losses, _lost) = mpsc::unbounded_channel();
        let last = Records::new(Way::new(&world, clients), losses);
        for name in ["k", "m", "n"] {
            let id = RequestId::new(&format!("last-{name}"));
            let everything = match name {
                "k" => Resource::plain(name).unwrap(),
                _ => Resource::new(name, &[ANY]).unwrap(),
            };
            let ask = Acquire::new(id.clone(), everything, Party::client("last"));
            last.acquire(ask).await.expect("everything is free in the end");
            last.release(&id, Counted::new(&Arc::default())).await;
        }
        // The dead leave a few at a time, the last of them perhaps after what was asked for is answered.
        sleep(Duration::from_millis(100)).await;
        let state = world.state.lock();
        assert!(state.names.is_empty(), "something stays behind: {:?}", state.names);
        (state.commits, state.mismatches, state.early)
    })
}

fn seeds(all: impl Iterator<Item = u64>, sabotage: Sabotage) -> Option<u64> {
    let mut all = all;
    all.find(|seed| {
        let ran = std::panic::catch_unwind(|| run(*seed, sabotage));
        if ran.is_err() {
            eprintln!("{sabotage:?}: seed {seed}");
        }
        ran.is_err()
    })
}

/// `KEYLATCH_SEEDS=100000` for the long run, `KEYLATCH_SEED=N` for one.
#[test]
fn nobody_is_wronged() {
    if let Some(seed) = std::env::var("KEYLATCH_SEED").ok().and_then(|seed| seed.parse().ok()) {
        println!("{:?}", run(seed, Sabotage::None));
        return;
    }
    let count = std::env::var("KEYLATCH_SEEDS").ok().and_then(|count| count.parse().ok());
    assert_eq!(seeds(0..count.unwrap_or(300), Sabotage::None), None);
}

/// What is passed on inside of a process is among what is simulated.
#[test]
fn some_hold_before_it_is_written() {
    let early: u64 = (0..20).map(|seed| run(seed, Sabotage::None).2).sum();
    assert!(early > 20, "{early} in 20 runs");
}

/// The checks catch what they are there for.
#[test]
fn each_rule_is_needed() {
    use Sabotage::{LastSeq, OneNumber, OwnCounter, Versions};
    for sabotage in [Versions, LastSeq, OwnCounter, OneNumber] {
        assert!(seeds(0..3_000, sabotage).is_some(), "{sabotage:?} is not noticed");
    }
}
