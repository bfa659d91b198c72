//! `keylatch run`: a command under a lock.

pub(crate) mod group;
mod job;
mod terminal;

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use keylatch::{Guard, LockError, Lost, Released};
use rustix::process::Signal;
use serde_json::json;

use crate::place::{BUSY, Place, block_on, blocker_json};
use crate::signals::{self, Signals};
use crate::wanted::{NotHeld, Wanted};
use group::{Group, State};
use job::Job;

const EXAMPLES: &str = "\
Examples:
  keylatch run backup -- ./backup.sh                 waits until it is free
  keylatch run backup --wait 0 -- ./backup.sh        now, or exit code 75
  keylatch run report --wait 5m --lease 1m -- make report
  keylatch run product --arg Computer --arg @ --shared -- ./list-computers
  keylatch run migrate -- sh -c 'psql -v token=$KEYLATCH_TOKEN -f up.sql'

The command has KEYLATCH_KEY, KEYLATCH_ID and KEYLATCH_TOKEN in its environment; the token is larger
than that of every earlier holder, so give it to what you write to. It is not the one that a server
knows you by: a command that uses locks itself has that from KEYLATCH_URL. The lease is renewed while the
command runs. If the lock is lost, or is about to be because nobody answers, the command and
everything it started in its process group is stopped: TERM, then KILL, before the lease ends.

Signals INT, TERM, HUP and QUIT are passed on to the command. If standard input is a terminal, the
command has it while it runs, so `keylatch run notes -- vim notes` works, ^C interrupts it, and ^Z
stops both until `fg`. A lease is not renewed while it is stopped: if it is over by then, the lock is
lost.

Exit codes: that of the command (128 + N if signal N ended it); 75 busy or not free in time (-E
changes it); 76 the lock was lost while the command ran; 126 it cannot be executed; 127 it is not
found; 1 any other error; 2 a mistake on the command line.";

/// The exit code of a lock that was lost.
const LOST: u8 = 76;
/// Between TERM and KILL, if the lock is somebody else's already.
pub(crate) const GRACE: Duration = Duration::from_secs(1);
/// A command is told to end when a fifth of the lease is left, but not earlier than this.
const MARGIN: Duration = Duration::from_secs(5);
/// How long the end may wait for an answer to the release. The lease ends it anyway.
pub(crate) const RELEASE: Duration = Duration::from_secs(3);

/// Run a command while holding a lock.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    wanted: Wanted,
    /// The exit code if the lock is busy or not free in time.
    #[arg(short = 'E', value_name = "CODE", default_value_t = BUSY)]
    busy: u8,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// How all of it ends.
enum End {
    Code(u8),
    /// The command had the terminal, and ^C ended it.
    Interrupted,
}

/// Why a command is stopped.
enum Stop {
    Lost(Lost),
    /// The lease is about to end.
    Ends,
}

impl Run {
    pub(crate) fn run(self) -> Result<ExitCode> {
        // Before anything else, so that a signal at any time is passed on or ends it properly.
        let mut signals = Signals::for_child()?;
        let end = block_on(async {
            let locks = self.place.connect().await?;
            match self.wanted.acquire(&self.place, &locks, None, &mut signals).await {
                Ok(guard) => self.hold(guard, &mut signals).await,
                Err(NotHeld::Signal(signal)) => {
                    // It has been withdrawn, which should reach the server before this ends.
                    drop(tokio::time::timeout(RELEASE, locks.close()).await);
                    Ok(End::Code(self.place.cancelled(signal)))
                }
                Err(NotHeld::Refused(error)) => self.refused(error).map(End::Code),
            }
        })?;
        match end {
            End::Code(code) => Ok(ExitCode::from(code)),
            End::Interrupted => Ok(signals::interrupt_us()),
        }
    }

    fn refused(&self, error: LockError) -> Result<u8> {
        let json = match &error {
            LockError::Busy(blocker) => blocker_json("busy", Some(blocker)),
            LockError::TimedOut(blocker) => blocker_json("timeout", blocker.as_ref()),
            _ => return Err(error.into()),
        };
        self.place.tell(&json, error);
        Ok(self.busy)
    }

    /// From the grant to the release, whatever happens between them.
    async fn hold(&self, guard: Guard, signals: &mut Signals) -> Result<End> {
        let resource = self.wanted.resource()?;
        if let Some(signal) = signals.pending() {
            self.release(guard).await;
            return Ok(End::Code(signals::code(signal)));
        }
        if let Some(lost) = guard.is_lost() {
            self.release(guard).await;
            return Ok(End::Code(self.lost(&format!("{lost} before the command began"))));
        }
        let environment = [
            ("KEYLATCH_KEY", resource.to_string()),
            ("KEYLATCH_ID", guard.id().to_string()),
            ("KEYLATCH_TOKEN", guard.token().to_string()),
        ];
        let mut group = match Group::spawn(&self.command, environment) {
            Ok(group) => group,
            Err(error) => {
                self.release(guard).await;
                let command = self.command[0].display();
                let json = json!({"status": "not started", "error": error.to_string()});
                self.place.tell(&json, format!("{command}: {error}"));
                let not_found = error.kind() == std::io::ErrorKind::NotFound;
                return Ok(End::Code(if not_found { 127 } else { 126 }));
            }
        };
        if self.place.is_json() {
            // Not its id, which is a secret: this may go to a log.
            let lease_ms = guard.ends().map(|left| left.as_millis() as u64);
            self.place.tell(
                &json!({"status": "granted", "token": guard.token(), "lease_ms": lease_ms}),
                "",
            );
        }
        let job = Job::begin(&group);
        let margin = margin(guard.ends());
        let stop = loop {
            tokio::select! {
                biased;
                state = group.next() => match state {
                    State::Ended => break guard.is_lost().map(Stop::Lost),
                    State::Stopped(signal) => job.stopped(&group, signal),
                    State::Runs => {}
                },
                lost = guard.lost() => break Some(Stop::Lost(lost)),
                () = about_to_end(|| guard.ends(), margin) => break Some(Stop::Ends),
                signal = signals.next() => job.forward(&group, signal),
            }
        };
        if let Some(stop) = stop {
            let patience = match &stop {
                // Half of what is left is for the command, the other half is to be sure.
                Stop::Ends => guard.ends().unwrap_or_default().saturating_sub(margin / 2),
                Stop::Lost(Lost::Expired | Lost::Unreachable) => Duration::ZERO,
                Stop::Lost(_) => GRACE,
            };
            let reason = match stop {
                Stop::Lost(lost) => lost.to_string(),
                Stop::Ends => {
                    "the lock is about to end: no renewal came in time, or it was held as \
                               long as allowed"
                        .into()
                }
            };
            let code = self.lost(&format!("{reason}; stopping the command"));
            group.stop(patience).await;
            job.killed();
            self.release(guard).await;
            return Ok(End::Code(code));
        }
        let status = group.status()?;
        if self.place.is_json() {
            self.place.tell(&json!({"status": "ended", "code": group::code(status)}), "");
        }
        let interrupted = job.ended() && status.signal() == Some(Signal::INT.as_raw());
        if self.release(guard).await == Released::NotHeld {
            return Ok(End::Code(
                self.lost("the lock was not held any more when the command ended"),
            ));
        }
        Ok(if interrupted { End::Interrupted } else { End::Code(group::code(status)) })
    }

    fn lost(&self, reason: &str) -> u8 {
        self.place.tell(&json!({"status": "lost", "reason": reason}), reason);
        LOST
    }

    async fn release(&self, guard: Guard) -> Released {
        let released = tokio::time::timeout(RELEASE, guard.release()).await;
        let released = released.unwrap_or(Released::Unknown);
        if released == Released::Unknown {
            self.place.tell(
                &json!({"status": "not released"}),
                "nobody answers the release; the lock ends with its lease",
            );
        }
        released
    }
}

/// What must be left of a lease for the command to run on.
pub(crate) fn margin(lease: Option<Duration>) -> Duration {
    lease.map_or(Duration::ZERO, |lease| (lease / 5).min(MARGIN))
}

/// When so little of the lease is left that it may not be renewed in time.
pub(crate) async fn about_to_end(ends: impl Fn() -> Option<Duration>, margin: Duration) {
    loop {
        let Some(left) = ends() else { return std::future::pending().await };
        if left <= margin {
            return;
        }
        // Looked at again and again: a sleep does not count while the machine is suspended.
        tokio::time::sleep(left.saturating_sub(margin).min(Duration::from_secs(1))).await;
    }
}
