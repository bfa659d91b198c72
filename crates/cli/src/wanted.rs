//! A lock that is asked for: the options of `run` and `lock`, and the wait for it.

use std::convert::Infallible;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::Args;
use keylatch::{
    Entry, Field, Guard, LockError, Locks, LocksQuery, Mode, Resource, ResourceError, overlap,
};
use serde_json::json;

use crate::place::Place;
use crate::signals::Signals;
use crate::time;

#[derive(Args, Debug)]
pub(crate) struct Wanted {
    /// What to lock, such as backup or user:42.
    key: String,
    /// A field of a composite key; several in their order. `@` is the wildcard, `\@` the letter.
    #[arg(long, value_name = "FIELD", allow_hyphen_values = true)]
    arg: Vec<String>,
    /// S shared, X exclusive, E exclusive but cumulative for one owner, O optimistic. [default: X]
    #[arg(long, value_parser = mode, conflicts_with = "shared")]
    mode: Option<Mode>,
    /// The same as --mode S.
    #[arg(long)]
    shared: bool,
    /// Who holds it, for others to see; by default user, host and process
    #[arg(long)]
    owner: Option<String>,
    /// How long to wait: 500ms, 5s, 2m, 1h; 0 is not at all.
    #[arg(long, value_parser = time::read_wait, allow_hyphen_values = true, value_name = "TIME")]
    wait: Option<Duration>,
    /// How long it is held without being renewed; 0 is for ever. [default: 30s]
    #[arg(long, value_parser = time::read, allow_hyphen_values = true, value_name = "TIME")]
    lease: Option<Duration>,
    /// How long it is held at most, renewals included.
    #[arg(long, value_parser = time::read, allow_hyphen_values = true, value_name = "TIME")]
    max_hold: Option<Duration>,
    /// Say who has it while waiting, also if standard error is not a terminal.
    #[arg(short, long)]
    verbose: bool,
}

/// Why there is no guard.
pub(crate) enum NotHeld {
    Refused(LockError),
    /// This signal came while it waited.
    Signal(i32),
}

fn mode(text: &str) -> Result<Mode, String> {
    let word = match text.to_ascii_lowercase().as_str() {
        "shared" => Some(Mode::Shared),
        "cumulative" => Some(Mode::Cumulative),
        "exclusive" => Some(Mode::Exclusive),
        "optimistic" => Some(Mode::Optimistic),
        _ => Mode::from_letter(text),
    };
    word.ok_or_else(|| format!("'{text}' is none of S, E, X and O"))
}

/// A field as it is written, as in the protocol; but what needs no escape to be understood need not have one.
fn field(text: &str) -> Field<'_> {
    match text.as_bytes() {
        b"@" => Field::Any,
        [b'\\', b'@' | b'\\', ..] => Field::Text(&text[1..]),
        _ => Field::Text(text),
    }
}

impl Wanted {
    pub(crate) fn resource(&self) -> Result<Resource, ResourceError> {
        let fields: Vec<Field<'_>> = self.arg.iter().map(|text| field(text)).collect();
        Resource::new(&self.key, &fields)
    }

    /// Waits as asked, or as `otherwise` says (`None`: until it is granted). A signal withdraws it.
    pub(crate) async fn acquire(
        &self,
        place: &Place,
        locks: &Locks,
        otherwise: Option<Duration>,
        signals: &mut Signals,
    ) -> Result<Guard, NotHeld> {
        let resource = self.resource();
        let mode = if self.shared { Mode::Shared } else { self.mode.unwrap_or_default() };
        let owner = self.owner.clone().unwrap_or_else(who);
        let mut ask = locks.lock(resource.clone()).mode(mode).owner(owner);
        if let Some(wait) = self.wait.or(otherwise) {
            ask = ask.wait(wait);
        }
        if let Some(lease) = self.lease {
            ask = ask.lease(lease);
        }
        if let Some(longest) = self.max_hold {
            ask = ask.max_hold(longest);
        }
        let progress = async {
            match resource {
                Ok(resource) if self.verbose || io::stderr().is_terminal() => {
                    show_progress(place, locks, &resource).await
                }
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            granted = ask.into_future() => granted.map_err(NotHeld::Refused),
            signal = signals.next_end() => Err(NotHeld::Signal(signal)),
            never = progress => match never {},
        }
    }
}

/// Who asks, if nobody says.
pub(crate) fn who() -> String {
    let name = |variable| std::env::var(variable).ok().filter(|name| !name.is_empty());
    let user = name("USER").or_else(|| name("LOGNAME"));
    let user = user.unwrap_or_else(|| rustix::process::getuid().as_raw().to_string());
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    format!("{user}@{host}:{}", std::process::id())
}

/// A lock that is free shows nothing.
const FIRST: Duration = Duration::from_millis(300);
const EVERY: Duration = Duration::from_secs(1);
/// More holders than this are not looked through.
const LOOK_AT: usize = 1_000;

/// Who has it and for how long, about once a second.
async fn show_progress(place: &Place, locks: &Locks, resource: &Resource) -> Infallible {
    let since = Instant::now();
    let mut line = Line { overwrite: io::stderr().is_terminal() && !place.is_json(), shown: false };
    let mut pause = FIRST;
    loop {
        tokio::time::sleep(pause).await;
        pause = EVERY;
        let name = Some(resource.name().into());
        let query = LocksQuery { name, limit: LOOK_AT, ..LocksQuery::default() };
        let Ok(mut holders) = locks.list(query).await else { continue };
        holders.retain(|holder| overlap(&holder.resource, resource));
        let waited = since.elapsed().as_millis() as u64;
        let key = resource.to_string();
        if place.is_json() {
            let holder = |entry: &Entry| {
                let mut json = crate::locks::entry_json(entry);
                // Their ids are theirs, and this may go to a log.
                json.as_object_mut().map(|fields| fields.remove("id"));
                json
            };
            let holders: Vec<_> = holders.iter().map(holder).collect();
            place.tell(
                &json!({"status": "waiting", "key": key, "waited_ms": waited, "holders": holders}),
                "",
            );
        } else {
            let waited = time::show(waited);
            line.write(&format!("waiting for {key} ({waited}): {}", describe(&holders)));
        }
    }
}

fn describe(holders: &[Entry]) -> String {
    let Some(first) = holders.first() else { return "others came first".into() };
    let lease = first.lease_ms.map_or_else(String::new, |left| {
        format!(", its lease ends in {} unless renewed", time::show(left))
    });
    let more = match holders.len() {
        1 => String::new(),
        count => format!(", and {} more", count - 1),
    };
    let held = time::show(first.held_ms);
    format!("{} has it ({}) for {held}{lease}{more}", first.owner, first.mode.letter())
}

/// One line that is written again and again on a terminal, and gone in the end.
struct Line {
    overwrite: bool,
    shown: bool,
}

impl Line {
    fn write(&mut self, text: &str) {
        self.shown = true;
        let mut out = io::stderr().lock();
        drop(match self.overwrite {
            true => write!(out, "\r\x1b[Kkeylatch: {text}"),
            false => writeln!(out, "keylatch: {text}"),
        });
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.overwrite && self.shown {
            drop(write!(io::stderr(), "\r\x1b[K"));
        }
    }
}
