//! What clients do all the time, each in a thread of its own. All of them tell the judge.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use keylatch_wire::Value;

use crate::client::{Client, Shared, Unanswered, number, text};
use crate::judge::{Grant, Judge, Queued};
use crate::random::Random;

/// Keys that all fight for.
const KEYS: u64 = 4;
/// Longer than any run: such a lease is not judged by time.
const LONG_MS: u64 = 7 * 24 * 3_600_000;
/// Long enough to be cut short by a mistake, short enough to end.
const LAPSE: Duration = Duration::from_millis(1_500);
/// What a keeper has at a time.
const KEPT: usize = 40;
/// Who waits in a queue whose order is judged.
const QUEUE: usize = 4;

/// What the load has in common.
#[derive(Default)]
pub(crate) struct Load {
    pub(crate) shared: Shared,
    pub(crate) judge: Judge,
    /// Nobody begins anything.
    pub(crate) resting: AtomicBool,
    /// Everybody ends what it has begun.
    pub(crate) over: AtomicBool,
    /// How many are in the middle of something.
    busy: AtomicUsize,
}

/// What one does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    /// Locks and releases what others want too.
    Contends,
    /// Takes locks without a lease, and gives them back much later.
    Keeps,
    /// Lets leases end.
    Lapses,
    /// Makes queues.
    Queues,
}

impl Load {
    /// One client of some kind, until the end.
    pub(crate) fn work(&self, part: Part, seed: u64) {
        let mut worker = Worker {
            load: self,
            client: Client::new(&self.shared, seed as usize),
            random: Random(seed),
            name: format!("{part:?}-{seed}").to_lowercase(),
            round: 0,
            kept: VecDeque::new(),
        };
        while !self.over.load(Ordering::SeqCst) {
            // Counted before it looks: who rests afterwards finds nobody busy.
            self.busy.fetch_add(1, Ordering::SeqCst);
            let rests = self.resting.load(Ordering::SeqCst);
            let done = if rests { Ok(()) } else { worker.turn(part) };
            self.busy.fetch_sub(1, Ordering::SeqCst);
            match done {
                Ok(()) if rests => std::thread::sleep(Duration::from_millis(20)),
                Ok(()) => {}
                Err(Unanswered::Aborted) => return,
                Err(Unanswered::Hang(what)) => {
                    self.judge
                        .condemns(format!("no answer, and no end of waiting for one: {what}"));
                    self.shared.aborted.store(true, Ordering::SeqCst);
                    return;
                }
            }
        }
        while let Some(id) = worker.kept.pop_front() {
            if worker.release(&id).is_err() {
                return;
            }
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.busy.load(Ordering::SeqCst) == 0
    }
}

struct Worker<'a> {
    load: &'a Load,
    client: Client<'a>,
    random: Random,
    name: String,
    round: u64,
    /// Ids of what it keeps.
    kept: VecDeque<String>,
}

impl Worker<'_> {
    fn turn(&mut self, part: Part) -> Result<(), Unanswered> {
        self.round += 1;
        match part {
            Part::Contends => self.contend(),
            Part::Keeps => self.keep(),
            Part::Lapses => self.lapse(),
            Part::Queues => self.queue(),
        }
    }

    fn id(&self) -> String {
        format!("{}-{}", self.name, self.round)
    }

    /// Takes something; its token, if it was granted.
    fn take(&mut self, key: &str, words: &str, shared: bool, lease: Option<Duration>) -> Took {
        let (id, asked) = (self.id(), Instant::now());
        let line = format!("LOCK {key} {words} ID {id}");
        // Some lose their patience, and come back for the same elsewhere.
        let impatient = self.random.percent(8);
        let patience = Duration::from_millis(self.random.between(1, 300));
        let answer = match impatient {
            true => self.client.ask_within(&line, patience)?,
            false => self.client.ask(&line)?,
        };
        if text(&answer, "status") != Some("granted") {
            let fine = ["timeout", "ended", "cancelled"];
            if !text(&answer, "status").is_some_and(|status| fine.contains(&status)) {
                self.load.judge.condemns(format!("{line}: {answer:?}"));
            }
            return Ok(None);
        }
        let token = number(&answer, "token").unwrap_or(0);
        self.load.judge.granted(Grant { key, id: &id, token, shared, asked, lease });
        Ok(Some((id, token)))
    }

    fn release(&mut self, id: &str) -> Result<(), Unanswered> {
        let answer = self.client.ask(&format!("UNLOCK {id}"))?;
        self.load.judge.released(id, answer == Value::Integer(1));
        Ok(())
    }

    fn contend(&mut self) -> Result<(), Unanswered> {
        let key = format!("key:{}", self.random.below(KEYS));
        let shared = self.random.percent(30);
        let mode = if shared { "S" } else { "X" };
        let words = format!("MODE {mode} WAIT 20000 LEASE {LONG_MS}");
        if let Some((id, _)) = self.take(&key, &words, shared, None)? {
            // Long enough for a second holder to show.
            std::thread::sleep(Duration::from_millis(self.random.below(4)));
            self.load.judge.releases(&key, &id);
            self.release(&id)?;
        }
        Ok(())
    }

    fn keep(&mut self) -> Result<(), Unanswered> {
        let key = format!("kept:{}", self.id());
        if let Some((id, token)) = self.take(&key, "LEASE 0", false, None)? {
            self.load.judge.keeps(&id, token);
            self.kept.push_back(id);
        }
        if self.kept.len() > KEPT {
            let id = self.kept.pop_front().expect("there are some");
            self.release(&id)?;
        }
        std::thread::sleep(Duration::from_millis(self.random.below(30)));
        Ok(())
    }

    fn lapse(&mut self) -> Result<(), Unanswered> {
        let key = format!("lapse:{}", self.random.below(2));
        let words = format!("WAIT 20000 LEASE {}", LAPSE.as_millis());
        if let Some((id, _)) = self.take(&key, &words, false, Some(LAPSE))? {
            self.load.judge.lapses(&id);
        }
        Ok(())
    }

    /// One holds, others come one after the other, and are served in that order.
    fn queue(&mut self) -> Result<(), Unanswered> {
        let key = format!("queue:{}", self.id());
        let words = format!("WAIT 20000 LEASE {LONG_MS}");
        let Some((holder, _)) = self.take(&key, &words, false, None)? else { return Ok(()) };
        let (load, name, first) = (self.load, self.id(), self.random.bits() as usize / 2);
        let queue = std::thread::scope(|scope| {
            let (mut waiting, mut seen) = (Vec::new(), Vec::new());
            let mut outcome = Ok(());
            for place in 0..QUEUE {
                let (id, of, at) = (format!("{name}-{place}"), key.clone(), first + place);
                waiting.push(scope.spawn(move || wait_in_line(load, &of, &id, at)));
                match self.is_seen_waiting(&key, &format!("{name}-{place}")) {
                    Ok(waits) => seen.push(waits),
                    Err(error) => {
                        outcome = Err(error);
                        break;
                    }
                }
            }
            load.judge.releases(&key, &holder);
            let released = self.release(&holder);
            let queue = waiting.into_iter().map(|one| one.join().expect("it does not panic"));
            let queue: Result<Vec<Option<Queued>>, Unanswered> = queue.collect();
            outcome.and(released).and(queue.map(|queue| (queue, seen)))
        })?;
        let granted = queue.0.into_iter().zip(queue.1);
        let granted: Vec<Queued> = granted
            .filter_map(|(one, seen)| {
                one.map(|one| Queued { uninterrupted: one.uninterrupted && seen, ..one })
            })
            .collect();
        load.judge.order(&key, &granted);
        Ok(())
    }

    /// Whether somebody is seen in the queue, sooner or later. If not, it is not known who came first.
    fn is_seen_waiting(&mut self, key: &str, id: &str) -> Result<bool, Unanswered> {
        for _ in 0..200 {
            let seen = self.client.ask(&format!("LOCKS NAME {key} WAITERS"))?;
            let Value::Array(seen) = seen else { return Ok(false) };
            if seen.iter().any(|one| text(one, "id") == Some(id)) {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(false)
    }
}

/// The id and the token of what was taken, if it was.
type Took = Result<Option<(String, i64)>, Unanswered>;

fn wait_in_line(load: &Load, key: &str, id: &str, at: usize) -> Result<Option<Queued>, Unanswered> {
    let mut client = Client::new(&load.shared, at);
    let asked = Instant::now();
    let line = format!("LOCK {key} ID {id} WAIT 60000 LEASE {LONG_MS}");
    let answer = client.ask_within(&line, Duration::from_secs(120))?;
    if text(&answer, "status") != Some("granted") {
        return Ok(None);
    }
    let (token, uninterrupted) = (number(&answer, "token").unwrap_or(0), !client.interrupted);
    load.judge.granted(Grant { key, id, token, shared: false, asked, lease: None });
    load.judge.releases(key, id);
    let answer = client.ask(&format!("UNLOCK {id}"))?;
    load.judge.released(id, answer == Value::Integer(1));
    Ok(Some(Queued { token, uninterrupted }))
}
