//! The audit log: one line of JSON for each revocation and each refusal, in a file or through
//! `tracing` (target `keylatch::audit`). It has names and principals; never a secret, a request id,
//! or the fields of a resource.
//!
//! Whoever records something never waits: it goes to a queue, from which a thread of its own
//! writes. If the disk is slow the queue fills, refusals are dropped first, and the next line says
//! how many. [`super::throttle`] bounds what a flood of refusals can write.
//!
//! ```json
//! {"time":"2026-11-16T10:00:00Z","principal":"billing","address":"192.0.2.7","listener":"resp",
//!  "what":"LOCK","name":"payroll:7","outcome":"refused","reason":"this needs the right ..."}
//! ```
//!
//! `repeated` in a line is how often the same came again within a minute, `dropped` how many lines
//! are missing before it.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use keylatch_table::Text;
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};

use super::admit::Denied;
use super::throttle::{Counted, Throttle};
use super::time::rfc3339;
use crate::clock::wall;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Who asked, if that is known.
    pub principal: Option<Text>,
    /// From where; without the port, which changes with every connection.
    pub address: Option<IpAddr>,
    /// On which listener: `resp`, `http`, `enqueue`.
    pub listener: &'static str,
    /// The command's word, such as `REVOKE` or `AUTH`.
    pub what: &'static str,
    /// The name that it was about.
    pub name: Option<Text>,
    /// The token of the grant: public, and how a revocation names it.
    pub token: Option<u64>,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was done.
    Done,
    /// It was allowed, and there was nothing to do it to.
    Nothing,
    /// It was refused, and why.
    Refused(Text),
}

impl Outcome {
    /// Refused for this reason.
    pub fn refused(denied: &Denied) -> Outcome {
        Outcome::Refused(denied.to_string().into())
    }
}

/// Refusals that may wait to be written.
const REFUSALS: usize = 1_024;
/// Records that may wait, so that refusals never crowd out a revocation.
const RECORDS: usize = 8_192;

/// Bytes of a name or a reason: as the table's bound on names.
const TEXT_BYTES: usize = 512;

/// Where revocations and refusals are written down. It ends when it is dropped, with all written.
#[derive(Debug)]
pub struct AuditLog {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    /// When, and what. At most [`RECORDS`].
    records: VecDeque<(Duration, Record)>,
    /// Records that found no room since the last one that did.
    dropped: u64,
    closed: bool,
}

impl AuditLog {
    /// Appends to this file, which is made if it is not there (readable by its owner only); without
    /// one it goes through `tracing`.
    pub fn open(path: Option<&Path>) -> io::Result<AuditLog> {
        match path {
            Some(path) => AuditLog::start(Box::new(LogFile::open(path)?)),
            None => AuditLog::start(Box::new(Tracing)),
        }
    }

    pub(super) fn start(sink: Box<dyn Sink>) -> io::Result<AuditLog> {
        let shared = Arc::new(Shared::default());
        let queue = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("audit".into());
        let writer =
            thread.spawn(move || Writer { sink, throttle: Throttle::default() }.run(&queue))?;
        Ok(AuditLog { shared, writer: Some(writer) })
    }

    /// Writes this down, by and by. It never waits for a disk.
    pub fn record(&self, record: Record) {
        let mut queue = self.shared.queue.lock();
        let room = if record.is_refusal() { REFUSALS } else { RECORDS };
        if queue.records.len() >= room {
            queue.dropped += 1;
            return;
        }
        queue.records.push_back((wall(), record.cut()));
        drop(queue);
        self.shared.filled.notify_one();
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.filled.notify_one();
        if let Some(writer) = self.writer.take() {
            drop(writer.join());
        }
    }
}

impl Record {
    /// With texts that fit a line. What was refused has not met the table's bounds, so a name may be
    /// as long as a request.
    fn cut(mut self) -> Record {
        let cut = |text: &mut Text| {
            if text.len() > TEXT_BYTES {
                let end = (0..=TEXT_BYTES).rev().find(|at| text.is_char_boundary(*at));
                *text = format!("{}..", &text[..end.unwrap_or(0)]).into();
            }
        };
        self.name.iter_mut().for_each(cut);
        if let Outcome::Refused(reason) = &mut self.outcome {
            cut(reason);
        }
        self
    }

    fn is_refusal(&self) -> bool {
        matches!(self.outcome, Outcome::Refused(_))
    }

    fn json(&self, time: &str) -> Value {
        let (outcome, reason) = match &self.outcome {
            Outcome::Done => ("done", None),
            Outcome::Nothing => ("nothing", None),
            Outcome::Refused(reason) => ("refused", Some(&**reason)),
        };
        let mut line = json!({
            "time": time,
            "principal": self.principal.as_deref(),
            "address": self.address.map(|address| address.to_string()),
            "listener": self.listener,
            "what": self.what,
            "name": self.name.as_deref(),
            "outcome": outcome,
        });
        if let Some(token) = self.token {
            line["token"] = token.into();
        }
        if let Some(reason) = reason {
            line["reason"] = reason.into();
        }
        line
    }
}

/// Where lines go.
pub(super) trait Sink: Send {
    /// Whole lines, each with its newline; `durably` waits until they are on the disk.
    fn write(&mut self, lines: &str, durably: bool) -> io::Result<()>;
}

struct Writer {
    sink: Box<dyn Sink>,
    throttle: Throttle,
}

impl Writer {
    fn run(mut self, shared: &Shared) {
        // Lines that could not be written.
        let mut lost = 0;
        loop {
            let Queue { records, dropped, closed } = self.next(shared);
            let mut lines = self.lines(records, closed);
            if dropped + lost > 0 {
                say_dropped(&mut lines, dropped + lost);
            }
            if !lines.is_empty() {
                let durably = lines.iter().any(|(_, durably)| *durably);
                let text = lines.iter().flat_map(|(line, _)| [line.to_string(), "\n".into()]);
                let text: String = text.collect();
                match self.sink.write(&text, durably) {
                    Ok(()) => lost = 0,
                    Err(error) => {
                        lost += dropped + lines.len() as u64;
                        tracing::error!(%error, lost, "the audit log cannot be written");
                    }
                }
            }
            if closed {
                return;
            }
        }
    }

    /// Waits until there is something to write, a window ends, or all of it does.
    fn next(&self, shared: &Shared) -> Queue {
        let mut queue = shared.queue.lock();
        while queue.records.is_empty() && !queue.closed {
            match self.throttle.ends() {
                None => shared.filled.wait(&mut queue),
                Some(end) => {
                    if shared.filled.wait_until(&mut queue, end).timed_out() {
                        break;
                    }
                }
            }
        }
        let closed = queue.closed;
        Queue { closed, ..std::mem::take(&mut *queue) }
    }

    /// The lines of these records, and which of them are to be on the disk at once.
    fn lines(&mut self, records: VecDeque<(Duration, Record)>, last: bool) -> Vec<(Value, bool)> {
        let now = Instant::now();
        let mut lines: Vec<(Value, bool)> = counts(self.throttle.ended(now));
        for (time, record) in records {
            if !record.is_refusal() || self.throttle.takes(now, &record) {
                lines.push((record.json(&rfc3339(time)), !record.is_refusal()));
            }
        }
        if last {
            lines.extend(counts(self.throttle.end()));
        }
        lines
    }
}

fn counts(counted: Vec<Counted>) -> Vec<(Value, bool)> {
    let time = rfc3339(wall());
    let line = |counted| match counted {
        Counted::Again(record, count) => {
            let mut line = record.json(&time);
            line["repeated"] = count.into();
            line
        }
        Counted::More((principal, address), count) => json!({
            "time": time,
            "principal": principal.as_deref(),
            "address": address.map(|address| address.to_string()),
            "outcome": "refused",
            "reason": "more refusals of this caller than are written down",
            "repeated": count,
        }),
        Counted::Others(count) => json!({
            "time": time,
            "outcome": "refused",
            "reason": "more refusals than are written down",
            "repeated": count,
        }),
    };
    counted.into_iter().map(|counted| (line(counted), false)).collect()
}

/// In the next line; in one of its own if there is none.
fn say_dropped(lines: &mut Vec<(Value, bool)>, dropped: u64) {
    match lines.first_mut() {
        Some((line, _)) => line["dropped"] = dropped.into(),
        None => lines.push((json!({"time": rfc3339(wall()), "dropped": dropped}), false)),
    }
}

/// A file that may be renamed by whoever rotates logs: then another one is begun.
struct LogFile {
    path: PathBuf,
    file: File,
}

impl LogFile {
    fn open(path: &Path) -> io::Result<LogFile> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        Ok(LogFile { path: path.into(), file })
    }

    fn is_there(&self) -> io::Result<bool> {
        let (mine, there) = (self.file.metadata()?, std::fs::metadata(&self.path));
        Ok(there.is_ok_and(|there| (there.dev(), there.ino()) == (mine.dev(), mine.ino())))
    }
}

impl Sink for LogFile {
    fn write(&mut self, lines: &str, durably: bool) -> io::Result<()> {
        if !self.is_there()? {
            *self = LogFile::open(&self.path)?;
        }
        self.file.write_all(lines.as_bytes())?;
        if durably { self.file.sync_data() } else { Ok(()) }
    }
}

struct Tracing;

impl Sink for Tracing {
    fn write(&mut self, lines: &str, _: bool) -> io::Result<()> {
        for line in lines.lines() {
            tracing::warn!(target: "keylatch::audit", "{line}");
        }
        Ok(())
    }
}
