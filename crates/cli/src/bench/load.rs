//! The loop over all connections: one thread, one read and one write a request.
//!
//! | a connection is | until |
//! |---|---|
//! | idle | its turn in an open loop |
//! | acquiring | the answer to its request |
//! | pausing | it tries again after a refusal (redis) |
//! | holding | the end of its hold |
//! | releasing | the answer to its release |
//! | done | for good: the load is over |

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use mio::net::TcpStream;

use super::keys::{KeyBook, Turn};
use super::plan::{End, Plan};
use super::report::{Report, Tally};
use super::sockets::Sockets;
use super::speak::{Answer, Speaker};
use super::timers::Timers;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Acquiring,
    Pausing,
    Holding,
    Releasing,
    Done,
}

struct Connection {
    stream: TcpStream,
    phase: Phase,
    turn: Turn,
    key: usize,
    /// What the lock is released by.
    id: Vec<u8>,
    /// From when its latency counts.
    since: Instant,
    /// An answer that has not come whole.
    input: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    WarmUp,
    Measuring,
    Draining,
}

struct Load<'p> {
    plan: &'p Plan,
    speaker: Speaker,
    sockets: Sockets,
    book: KeyBook,
    connections: Vec<Connection>,
    timers: Timers,
    /// Those that wait for their turn, the longest first.
    idle: VecDeque<usize>,
    /// When the next lock of an open loop is asked for.
    arrival: Instant,
    stage: Stage,
    stage_ends: Option<Instant>,
    tally: Tally,
    /// Any pair at all: from then on an error is counted and does not end the run.
    proven: bool,
    requests_named: u64,
    heard: Instant,
    busy: usize,
    name: Vec<u8>,
    out: Vec<u8>,
}

/// A server that says nothing for so long, beyond waits and holds, is given up.
const SILENCE: Duration = Duration::from_secs(30);
/// How long those who are under way at the end have to finish.
const DRAIN: Duration = Duration::from_secs(5);
const SECOND: Duration = Duration::from_secs(1);

/// Runs the load.
pub(crate) fn run(plan: &Plan) -> Result<Report> {
    let speaker = Speaker::meet(plan)?;
    let sockets = Sockets::new()?;
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let run = wall.as_micros() as u64 ^ (u64::from(std::process::id()) << 12);
    let run = format!("bench:{:06x}:", run & 0xff_ffff);
    let book = KeyBook::new(plan.keys, plan.connections, run);
    let mut connections = Vec::with_capacity(plan.connections);
    for number in 0..plan.connections {
        let failed = || format!("connection {} to {} failed", number + 1, plan.address);
        let stream = sockets.connect(plan.address, number).with_context(failed)?;
        let (turn, since) = (KeyBook::first_turn(number), Instant::now());
        let (id, input) = (Vec::new(), Vec::new());
        connections.push(Connection { stream, phase: Phase::Idle, turn, key: 0, id, since, input });
    }
    let now = Instant::now();
    let mut load = Load {
        plan,
        speaker,
        sockets,
        book,
        idle: (0..connections.len()).collect(),
        busy: connections.len(),
        tally: Tally::new(plan.connections, now),
        connections,
        timers: Timers::default(),
        arrival: now,
        stage: Stage::WarmUp,
        stage_ends: Some(now + plan.warm_up),
        proven: false,
        requests_named: 0,
        heard: now,
        name: Vec::new(),
        out: Vec::new(),
    };
    load.drive()?;
    let (double_grants, token_falls) = (load.book.double_grants, load.book.token_falls);
    Ok(Report::new(plan, load.tally, double_grants, token_falls))
}

impl Load<'_> {
    fn drive(&mut self) -> Result<()> {
        let mut ready = Vec::new();
        let mut room = vec![0; 16 * 1024];
        let mut tick = Instant::now() + SECOND;
        loop {
            let now = Instant::now();
            if self.stage_ends.is_some_and(|at| at <= now) && !self.next_stage(now)? {
                return Ok(());
            }
            if tick <= now {
                tick += SECOND;
                self.tick(now)?;
            }
            while let Some(at) = self.timers.take(now) {
                self.go_on(at)?;
            }
            self.start_idle(now)?;
            if self.busy == 0 {
                return Ok(());
            }
            self.wait(tick)?;
            self.sockets.take_ready(&mut ready);
            for at in ready.drain(..) {
                self.read(at, &mut room)?;
            }
        }
    }

    /// False if that was the last one.
    fn next_stage(&mut self, now: Instant) -> Result<bool> {
        match self.stage {
            Stage::WarmUp => {
                self.stage = Stage::Measuring;
                self.tally = Tally::new(self.plan.connections, now);
                self.stage_ends = match self.plan.end {
                    End::After(time) => Some(now + time),
                    End::Pairs(_) => None,
                };
            }
            Stage::Measuring => self.drain(now)?,
            Stage::Draining => {
                self.tally.error(format!("{} requests were never answered", self.busy));
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Nothing new is begun; what is held is released.
    fn drain(&mut self, now: Instant) -> Result<()> {
        self.tally.close(now);
        if let Some(interval) = self.plan.interval {
            let late = now.saturating_duration_since(self.arrival).as_nanos();
            self.tally.unstarted = (late / interval.as_nanos().max(1)) as u64;
        }
        self.stage = Stage::Draining;
        self.stage_ends = Some(now + DRAIN);
        self.timers = Timers::default();
        for at in 0..self.connections.len() {
            match self.connections[at].phase {
                Phase::Idle | Phase::Pausing => self.done(at),
                Phase::Holding => self.release(at)?,
                Phase::Acquiring | Phase::Releasing | Phase::Done => {}
            }
        }
        Ok(())
    }

    fn tick(&mut self, now: Instant) -> Result<()> {
        let plan = self.plan;
        if plan.progress && self.stage != Stage::Draining {
            eprintln!("{}", self.tally.progress(now, self.stage == Stage::WarmUp));
        }
        let silence = SILENCE + plan.hold + Duration::from_millis(plan.wait_ms);
        let asks = |c: &Connection| matches!(c.phase, Phase::Acquiring | Phase::Releasing);
        if now.duration_since(self.heard) > silence && self.connections.iter().any(asks) {
            bail!("the server has not answered for {} seconds", silence.as_secs());
        }
        Ok(())
    }

    /// Until something has come, or something is due.
    fn wait(&mut self, tick: Instant) -> Result<()> {
        let open = self.plan.interval.is_some() && !self.idle.is_empty();
        let times = [self.timers.next(), open.then_some(self.arrival), self.stage_ends];
        self.sockets.wait(times.into_iter().flatten().fold(tick, Instant::min))
    }

    /// Gives idle connections something to do: at once, or what has come due in an open loop.
    fn start_idle(&mut self, now: Instant) -> Result<()> {
        while !self.idle.is_empty() && self.stage != Stage::Draining {
            let since = match self.plan.interval {
                None => now,
                Some(interval) if self.arrival <= now => {
                    let due = self.arrival;
                    self.arrival += interval;
                    due
                }
                Some(_) => return Ok(()),
            };
            let Some(at) = self.idle.pop_front() else { break };
            self.begin(at, since)?;
        }
        Ok(())
    }

    fn begin(&mut self, at: usize, since: Instant) -> Result<()> {
        let connection = &mut self.connections[at];
        connection.since = since;
        connection.key = self.book.next(at, &mut connection.turn);
        if self.speaker.names_requests() {
            self.requests_named += 1;
            connection.id.clear();
            write!(connection.id, "{}_{}", std::process::id(), self.requests_named)?;
        }
        self.acquire(at)
    }

    fn acquire(&mut self, at: usize) -> Result<()> {
        let connection = &mut self.connections[at];
        connection.phase = Phase::Acquiring;
        self.name.clear();
        self.out.clear();
        self.book.write_name(connection.key, &mut self.name);
        self.speaker.write_acquire(&self.name, &connection.id, &mut self.out);
        self.send(at)
    }

    fn release(&mut self, at: usize) -> Result<()> {
        let connection = &mut self.connections[at];
        connection.phase = Phase::Releasing;
        self.book.releasing(connection.key);
        self.name.clear();
        self.out.clear();
        self.book.write_name(connection.key, &mut self.name);
        self.speaker.write_release(&self.name, &connection.id, &mut self.out);
        self.send(at)
    }

    /// The request before is answered, so there is room for this one.
    fn send(&mut self, at: usize) -> Result<()> {
        self.tally.requests += 1;
        match self.connections[at].stream.write(&self.out) {
            Ok(count) if count == self.out.len() => Ok(()),
            Ok(_) => bail!("a connection does not take a request of {} bytes", self.out.len()),
            Err(error) => Err(error).with_context(|| self.lost()),
        }
    }

    fn lost(&self) -> String {
        match self.proven {
            true => format!("the server closed a connection after {} pairs", self.tally.pairs),
            false => "the server closed a connection before it answered".into(),
        }
    }

    /// One read takes the answer: there is only ever one, and a short read has emptied the socket.
    fn read(&mut self, at: usize, room: &mut [u8]) -> Result<()> {
        if self.connections[at].phase == Phase::Done {
            return Ok(());
        }
        let count = match self.connections[at].stream.read(room) {
            Ok(0) => bail!(self.lost()),
            Ok(count) => count,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(());
            }
            Err(error) => return Err(error).with_context(|| self.lost()),
        };
        let mut input = std::mem::take(&mut self.connections[at].input);
        if input.is_empty() {
            let taken = self.take(at, &room[..count])?;
            input.extend_from_slice(&room[taken..count]);
        } else {
            input.extend_from_slice(&room[..count]);
            let taken = self.take(at, &input)?;
            input.drain(..taken);
        }
        self.connections[at].input = input;
        Ok(())
    }

    /// Does what the answer means. Returns how many bytes it took.
    fn take(&mut self, at: usize, input: &[u8]) -> Result<usize> {
        let phase = self.connections[at].phase;
        let found = match phase {
            Phase::Acquiring => self.speaker.read_acquired(input)?,
            Phase::Releasing => self.speaker.read_released(input)?,
            _ => bail!("the server said {:?} unasked", String::from_utf8_lossy(input)),
        };
        let Some((answer, taken)) = found else { return Ok(0) };
        let now = Instant::now();
        self.heard = now;
        match answer {
            Answer::Granted { id, token } => self.granted(at, id, token, now)?,
            Answer::Refused => self.refused(at, now)?,
            Answer::Released => self.released(at, now)?,
            Answer::Error(text) if !self.proven => {
                let other = text.contains("unknown command 'LOCK'");
                let hint = if other { "; for a Redis say --protocol redis" } else { "" };
                bail!("the server answered: {text}{hint}")
            }
            Answer::Error(text) => {
                self.tally.error(text);
                self.next_pair(at, now)?;
            }
        }
        Ok(taken)
    }

    fn granted(
        &mut self,
        at: usize,
        id: Option<&[u8]>,
        token: Option<u64>,
        now: Instant,
    ) -> Result<()> {
        let connection = &mut self.connections[at];
        if let Some(id) = id {
            connection.id.clear();
            connection.id.extend_from_slice(id);
        }
        self.book.granted(connection.key, token);
        if self.stage == Stage::Measuring {
            self.tally.acquired(now.saturating_duration_since(connection.since));
        }
        if self.plan.hold.is_zero() || self.stage == Stage::Draining {
            return self.release(at);
        }
        connection.phase = Phase::Holding;
        self.timers.set(now + self.plan.hold, at);
        Ok(())
    }

    fn refused(&mut self, at: usize, now: Instant) -> Result<()> {
        self.tally.refused += 1;
        if self.stage == Stage::Draining {
            self.done(at);
        } else if self.speaker.polls() {
            self.connections[at].phase = Phase::Pausing;
            self.timers.set(now + self.plan.poll, at);
        } else {
            self.acquire(at)?;
        }
        Ok(())
    }

    fn released(&mut self, at: usize, now: Instant) -> Result<()> {
        self.proven = true;
        if self.stage == Stage::Measuring {
            self.tally.pair(at);
            if matches!(self.plan.end, End::Pairs(pairs) if self.tally.pairs >= pairs) {
                self.drain(now)?;
            }
        }
        self.next_pair(at, now)
    }

    fn next_pair(&mut self, at: usize, now: Instant) -> Result<()> {
        match (self.stage, self.plan.interval) {
            (Stage::Draining, _) => self.done(at),
            (_, None) => return self.begin(at, now),
            (_, Some(_)) => {
                self.connections[at].phase = Phase::Idle;
                self.idle.push_back(at);
            }
        }
        Ok(())
    }

    /// A time has come: to try again, or to release.
    fn go_on(&mut self, at: usize) -> Result<()> {
        match self.connections[at].phase {
            Phase::Pausing => self.acquire(at),
            Phase::Holding => self.release(at),
            _ => Ok(()),
        }
    }

    fn done(&mut self, at: usize) {
        self.connections[at].phase = Phase::Done;
        self.busy -= 1;
    }
}
