//! What a worker that is a script does: claim, update, done, back; and delete and retry.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use super::{BodyOptions, Content, with_body};
use crate::place::{BUSY, Place, block_on};
use crate::signals::Signals;
use crate::time;

const CLAIM: &str = "\
Examples:
  keylatch task claim emails                     any free task, now
  keylatch task claim emails --wait 1m           or within a minute
  keylatch task claim emails welcome-42 --wait 1h   this one, also if it does not exist yet

The first line that it prints is version, token and key; the body follows as it is. With -o json all of
it is one object. Nobody renews the claim after this command has ended: it is yours until its lease
ends, or as long as `keylatch task update POOL KEY VERSION` comes in time; each prints the version for
the next. `keylatch task work` does all of that for a command. The token is larger than that of every
earlier claim of this task: give it to what you write to.

Exit codes: 0 claimed, 75 nothing free (in time), 1 any other error.";

/// Claim a free task, and keep it after this command.
#[derive(Args, Debug)]
#[command(after_help = CLAIM)]
pub(crate) struct Claim {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The pool.
    pool: String,
    /// This task and no other. [default: the one with the highest priority, then the one that has
    /// waited longest]
    key: Option<String>,
    /// Who works on it, for others to see; by default user, host and process
    #[arg(long)]
    owner: Option<String>,
    /// How long to wait for one: 500ms, 5s, 2m, 1h. [default: 0, not at all]
    #[arg(long, value_parser = time::read_wait, allow_hyphen_values = true, value_name = "TIME")]
    wait: Option<Duration>,
    /// How long it is claimed without being renewed; 0 is for ever. [default: 60s]
    #[arg(long, value_parser = time::read, allow_hyphen_values = true, value_name = "TIME")]
    lease: Option<Duration>,
}

impl Claim {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut signals = Signals::that_end()?;
        block_on(async {
            let locks = self.place.connect().await?;
            let tasks = locks.tasks(self.pool.as_str());
            let ask =
                self.key.as_ref().map_or_else(|| tasks.claim(), |key| tasks.claim_key(&**key));
            let owner = self.owner.clone().unwrap_or_else(crate::wanted::who);
            let mut ask = ask.owner(owner).wait(self.wait.unwrap_or_default()).no_renew();
            if let Some(lease) = self.lease {
                ask = ask.lease(lease);
            }
            let claimed = tokio::select! {
                claimed = ask.into_future() => claimed?,
                signal = signals.next_end() => {
                    // It has been withdrawn, which should be known before this ends.
                    drop(tokio::time::timeout(crate::run::RELEASE, locks.close()).await);
                    return Ok(ExitCode::from(self.place.cancelled(signal)));
                }
            };
            let Some(claim) = claimed else {
                let waited = self.wait.is_some_and(|wait| !wait.is_zero());
                let (status, text) = match waited {
                    true => ("timeout", "nothing became free in time"),
                    false => ("nothing", "nothing is free"),
                };
                match self.place.is_json() {
                    true => self.place.print(&json!({"status": status}), "")?,
                    false => self.place.tell(&Value::Null, text),
                }
                return Ok(ExitCode::from(BUSY));
            };
            if let Err(error) = self.print(&claim) {
                // If nobody learns the version, nobody can work on it.
                drop(claim.release().await);
                return Err(error.into());
            }
            Ok(ExitCode::SUCCESS)
        })
    }

    fn print(&self, claim: &keylatch::Claim) -> std::io::Result<()> {
        if !self.place.is_json() {
            let mut out = std::io::stdout().lock();
            writeln!(out, "{} {} {}", claim.version(), claim.token(), claim.key())?;
            out.write_all(claim.bytes())?;
            return out.flush();
        }
        let json = json!({
            "status": "claimed",
            "key": &**claim.key(),
            "version": claim.version(),
            "token": claim.token(),
            "attempts": claim.attempts(),
            "lease_ms": claim.ends().map(|left| left.as_millis() as u64),
        });
        self.place.print(&with_body(json, claim.body()), "")
    }
}

/// A task at a version.
#[derive(Args, Debug)]
struct Checked {
    /// The pool.
    pool: String,
    /// The task's key.
    key: String,
    /// The version that the command before printed.
    version: u64,
}

/// Renew a claim, and replace the body if one is given. Prints the version to use from now on. A task that nobody
/// has claimed stays free.
#[derive(Args, Debug)]
pub(crate) struct Update {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    of: Checked,
    #[command(flatten)]
    body: BodyOptions,
    /// For how long from now; 0 is for ever. [default: as the claim asked for]
    #[arg(long, value_parser = time::read, allow_hyphen_values = true, value_name = "TIME")]
    lease: Option<Duration>,
}

impl Update {
    pub(crate) fn run(self) -> Result<ExitCode> {
        block_on(async {
            let tasks = self.place.connect().await?.tasks(self.of.pool.as_str());
            let mut update = tasks.update(self.of.key.as_str(), self.of.version);
            match self.body.read()? {
                None => {}
                Some(Content::Bytes(bytes)) => update = update.body(bytes),
                Some(Content::Json(text)) => update = update.json(text),
            }
            if let Some(lease) = self.lease {
                update = update.lease(lease);
            }
            let updated = update.await?;
            let lease_ms = updated.lease.map(|lease| lease.as_millis() as u64);
            let version = updated.version;
            let json = json!({"status": "updated", "version": version, "lease_ms": lease_ms});
            self.place.print(&json, version)?;
            Ok(ExitCode::SUCCESS)
        })
    }
}

/// A claimed task is done: it is never claimed again, and stays until it is deleted.
#[derive(Args, Debug)]
pub(crate) struct Done {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    of: Checked,
}

impl Done {
    pub(crate) fn run(self) -> Result<ExitCode> {
        block_on(async {
            let tasks = self.place.connect().await?.tasks(self.of.pool.as_str());
            let version = tasks.done(&self.of.key, self.of.version).await?;
            self.place.print(&json!({"status": "done", "version": version}), "done")?;
            Ok(ExitCode::SUCCESS)
        })
    }
}

/// Put a claimed task back for another attempt. After the last one it is failed.
#[derive(Args, Debug)]
pub(crate) struct Back {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    of: Checked,
    /// Not claimed again before this has passed.
    #[arg(long, value_parser = time::read, allow_hyphen_values = true, value_name = "TIME")]
    delay: Option<Duration>,
    /// What went wrong, up to 1 KiB.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    error: Option<String>,
}

impl Back {
    pub(crate) fn run(self) -> Result<ExitCode> {
        block_on(async {
            let tasks = self.place.connect().await?.tasks(self.of.pool.as_str());
            let mut back = tasks.put_back(self.of.key.as_str(), self.of.version);
            if let Some(delay) = self.delay {
                back = back.delay(delay);
            }
            if let Some(error) = self.error {
                back = back.error(error);
            }
            let back = back.await?;
            let (state, attempts) = (back.state.word(), back.attempts);
            let json = json!({
                "status": "back", "version": back.version, "state": state, "attempts": attempts,
            });
            self.place.print(&json, format!("{state}, attempts: {attempts}"))?;
            Ok(ExitCode::SUCCESS)
        })
    }
}

/// Remove a task, whatever its state.
#[derive(Args, Debug)]
pub(crate) struct Delete {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The pool.
    pool: String,
    /// The task's key.
    key: String,
    /// Only if it still has this version.
    version: Option<u64>,
}

impl Delete {
    pub(crate) fn run(self) -> Result<ExitCode> {
        block_on(async {
            let tasks = self.place.connect().await?.tasks(self.pool.as_str());
            match self.version {
                Some(version) => tasks.delete_version(&self.key, version).await?,
                None if tasks.delete(&self.key).await? => {}
                None => return Err(keylatch::ChangeError::NotFound.into()),
            }
            self.place.print(&json!({"status": "deleted"}), "deleted")?;
            Ok(ExitCode::SUCCESS)
        })
    }
}

/// Free failed tasks again, with their attempts at 0: one, or all of the pool.
#[derive(Args, Debug)]
pub(crate) struct Retry {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The pool.
    pool: String,
    /// Only this task.
    key: Option<String>,
}

impl Retry {
    pub(crate) fn run(self) -> Result<ExitCode> {
        block_on(async {
            let tasks = self.place.connect().await?.tasks(self.pool.as_str());
            let count = match &self.key {
                Some(key) => u64::from(tasks.retry(key).await?),
                None => tasks.retry_all().await?,
            };
            let json = json!({"status": "retried", "count": count});
            self.place.print(&json, format!("{count} free again"))?;
            Ok(ExitCode::SUCCESS)
        })
    }
}
