//! Locks that outlive the command that takes them: `lock`, `unlock`, `renew`, `promote`, and the
//! administrator's `ls` and `revoke`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use keylatch::{Entry, Field, LockError, LocksQuery, PromoteError, Released, RequestId, State};
use serde_json::{Value, json};

use crate::failure::{NoGrant, NotReleased};
use crate::place::{self, BUSY, Place, block_on, blocker_json};
use crate::signals::Signals;
use crate::time;
use crate::wanted::{NotHeld, Wanted};

const LOCK: &str = "\
Examples:
  keylatch lock deploy --lease 10m               prints its id and its token
  set -- $(keylatch lock deploy --lease 10m --wait 1m) && ./deploy.sh --token $2; keylatch unlock $1

Nobody renews the lock after this command has ended: it is held until its lease ends, until `keylatch
unlock ID`, or as long as `keylatch renew ID` comes in time. `keylatch run` does all of that for a
command. Keep the id to yourself: whoever knows it can release the lock.

Exit codes: 0 held, 75 busy or not free in time, 1 any other error.";

const LS: &str = "\
Examples:
  keylatch ls                          who holds what, in the order of arrival
  keylatch ls --waiters --name deploy  and who waits for it
  keylatch ls -o json | jq -r 'select(.held_ms > 60000) | .token'";

/// Take a lock and keep it after this command.
#[derive(Args, Debug)]
#[command(after_help = LOCK)]
pub(crate) struct Lock {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    wanted: Wanted,
}

impl Lock {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut signals = Signals::that_end()?;
        block_on(async {
            let (place, locks) = (&self.place, self.place.connect().await?);
            let wait = Some(Duration::ZERO);
            let code = match self.wanted.acquire(place, &locks, wait, &mut signals).await {
                Ok(guard) => {
                    let (id, token) = (guard.id().to_string(), guard.token());
                    let lease_ms = guard.ends().map(|left| left.as_millis() as u64);
                    let json = json!({"status": "granted", "id": id, "token": token, "lease_ms": lease_ms});
                    if let Err(error) = place.print(&json, format!("{id} {token}")) {
                        // If nobody learns the id, nobody can release it.
                        guard.release().await;
                        return Err(error.into());
                    }
                    guard.keep();
                    0
                }
                Err(NotHeld::Signal(signal)) => place.cancelled(signal),
                Err(NotHeld::Refused(error)) => {
                    let json = match &error {
                        LockError::Busy(blocker) => blocker_json("busy", Some(blocker)),
                        LockError::TimedOut(blocker) => blocker_json("timeout", blocker.as_ref()),
                        _ => return Err(error.into()),
                    };
                    refuse(place, &json, &error)?
                }
            };
            locks.close().await;
            Ok(ExitCode::from(code))
        })
    }
}

/// A refusal is a result too: as JSON on standard output.
fn refuse(place: &Place, json: &Value, error: &impl std::fmt::Display) -> Result<u8> {
    match place.is_json() {
        true => place.print(json, "")?,
        false => place.tell(json, error),
    }
    Ok(BUSY)
}

/// Release a lock, or stop waiting for it, by its id.
#[derive(Args, Debug)]
pub(crate) struct Unlock {
    #[command(flatten)]
    pub(crate) place: Place,
    /// What `keylatch lock` printed.
    id: String,
}

impl Unlock {
    pub(crate) fn run(self) -> Result<ExitCode> {
        block_on(async {
            let locks = self.place.connect().await?;
            match locks.release(&RequestId::new(&self.id)).await {
                Released::Released => {
                    self.place.print(&json!({"status": "released"}), "released")?;
                    Ok(ExitCode::SUCCESS)
                }
                not_released => Err(NotReleased(not_released).into()),
            }
        })
    }
}

/// Lease a lock anew, by its id.
#[derive(Args, Debug)]
pub(crate) struct Renew {
    #[command(flatten)]
    pub(crate) place: Place,
    /// What `keylatch lock` printed.
    id: String,
    /// For how long from now, never shorter than it is already; 0 is for ever. [default: as first
    /// asked for]
    #[arg(long, value_parser = time::read, allow_hyphen_values = true, value_name = "TIME")]
    lease: Option<Duration>,
}

impl Renew {
    pub(crate) fn run(self) -> Result<ExitCode> {
        block_on(async {
            let locks = self.place.connect().await?;
            let left = locks.renew(&RequestId::new(&self.id), self.lease).await?;
            let lease_ms = left.map(|left| left.as_millis() as u64);
            let text = match lease_ms {
                Some(left) => format!("renewed for {}", time::show(left)),
                None => "renewed without an end".into(),
            };
            self.place.print(&json!({"status": "renewed", "lease_ms": lease_ms}), text)?;
            Ok(ExitCode::SUCCESS)
        })
    }
}

/// Turn an optimistic lock, or a shared one that nobody shares, into an exclusive one, by its id.
///
/// It prints the new token. Exit code 75 if somebody is in the way.
#[derive(Args, Debug)]
pub(crate) struct Promote {
    #[command(flatten)]
    pub(crate) place: Place,
    /// What `keylatch lock` printed.
    id: String,
}

impl Promote {
    pub(crate) fn run(self) -> Result<ExitCode> {
        block_on(async {
            let locks = self.place.connect().await?;
            match locks.promote(&RequestId::new(&self.id)).await {
                Ok(token) => {
                    self.place.print(&json!({"status": "promoted", "token": token}), token)?;
                    Ok(ExitCode::SUCCESS)
                }
                Err(error) => {
                    let PromoteError::Busy(blocker) = &error else { return Err(error.into()) };
                    let json = blocker_json("busy", Some(blocker));
                    refuse(&self.place, &json, &error).map(ExitCode::from)
                }
            }
        })
    }
}

/// End somebody's grant by its token, which `keylatch ls` shows. Its holder is told the reason.
#[derive(Args, Debug)]
pub(crate) struct Revoke {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The token of the grant.
    token: u64,
    /// Why, for its holder.
    #[arg(long)]
    reason: String,
}

impl Revoke {
    pub(crate) fn run(self) -> Result<ExitCode> {
        block_on(async {
            let locks = self.place.connect().await?;
            if !locks.revoke(self.token, &self.reason).await? {
                return Err(NoGrant(self.token).into());
            }
            self.place.print(&json!({"status": "revoked", "token": self.token}), "revoked")?;
            Ok(ExitCode::SUCCESS)
        })
    }
}

/// List who holds what, and who waits.
#[derive(Args, Debug)]
#[command(after_help = LS)]
pub(crate) struct Ls {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Only keys with this name.
    #[arg(long)]
    name: Option<String>,
    /// Only this owner.
    #[arg(long)]
    owner: Option<String>,
    /// Also those who wait.
    #[arg(long)]
    waiters: bool,
}

/// Requests asked for at a time.
const PAGE: usize = 1_000;

impl Ls {
    pub(crate) fn run(self) -> Result<ExitCode> {
        block_on(async {
            let locks = self.place.connect().await?;
            let mut query = LocksQuery {
                name: self.name.as_deref().map(Into::into),
                owner: self.owner.as_deref().map(Into::into),
                waiters: self.waiters,
                limit: PAGE,
                cursor: 0,
            };
            let mut rows = Vec::new();
            loop {
                let page = locks.list(query.clone()).await?;
                let Some(last) = page.last() else { break };
                query.cursor = last.seq;
                for entry in &page {
                    match self.place.is_json() {
                        true => self.place.print(&entry_json(entry), "")?,
                        false => rows.push(row(entry)),
                    }
                }
            }
            if !self.place.is_json() {
                let table = crate::table::lay_out(&HEAD, &rows);
                self.place.print(&Value::Null, table)?;
            }
            Ok(ExitCode::SUCCESS)
        })
    }
}

const HEAD: [&str; 7] = ["TOKEN", "KEY", "MODE", "OWNER", "STATE", "FOR", "LEASE"];

fn row(entry: &Entry) -> [String; 7] {
    let token = match entry.state {
        State::Held => entry.token.to_string(),
        State::Waiting => "-".into(),
    };
    [
        token,
        entry.resource.to_string(),
        entry.mode.letter().into(),
        (*entry.owner).into(),
        place::state(entry.state).into(),
        time::show(entry.held_ms),
        entry.lease_ms.map_or("-".into(), time::show),
    ]
}

/// In the words of `LOCKS`.
pub(crate) fn entry_json(entry: &Entry) -> Value {
    let field = |field: Field<'_>| match field {
        Field::Any => "@".to_owned(),
        Field::Text(text) if text.starts_with(['@', '\\']) => format!("\\{text}"),
        Field::Text(text) | Field::Number(text) => text.to_owned(),
        Field::Bool(value) => value.to_string(),
    };
    json!({
        "seq": entry.seq,
        "token": entry.token,
        "id": entry.id.to_string(),
        "name": entry.resource.name(),
        "argument": entry.resource.fields().map(field).collect::<Vec<_>>(),
        "mode": entry.mode.letter(),
        "owner": &*entry.owner,
        "state": place::state(entry.state),
        "held_ms": entry.held_ms,
        "lease_ms": entry.lease_ms,
        "meta": entry.meta.as_deref(),
    })
}
