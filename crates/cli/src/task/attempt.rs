//! One attempt at a task: the command runs while the claim is held.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::process::{ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use keylatch::{Claim, LostClaim};
use tokio::sync::watch;

use super::progress::Progress;
use crate::run::group::{self, Group};
use crate::run::{GRACE, about_to_end, margin};

/// Bytes of what a command complained about last that are kept with the task.
const TAIL: usize = 900;

/// How an attempt went.
pub(super) enum Attempt {
    /// The command has ended: with success, or why not, and with which exit code.
    Succeeded(Claim),
    Failed(Claim, String, u8),
    /// The claim was lost, or was about to be, and the command was stopped.
    Lost(Claim, String),
    /// Somebody told us to stop it.
    Killed(Claim),
    /// It could not be started.
    NotStarted(Claim, io::Error),
}

/// Stops when `kill` turns true.
pub(super) async fn attempt(
    pool: &str,
    words: &[OsString],
    claim: Claim,
    kill: &mut watch::Receiver<bool>,
    progress: &Arc<Progress>,
) -> Attempt {
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .env("KEYLATCH_TASK_POOL", pool)
        .env("KEYLATCH_TASK_KEY", &**claim.key())
        .env("KEYLATCH_TASK_ATTEMPTS", claim.attempts().to_string())
        .env("KEYLATCH_TASK_TOKEN", claim.token().to_string())
        .env("KEYLATCH_TASK_VERSION", claim.version().to_string())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped());
    let mut group = match Group::start(command) {
        Ok(group) => group,
        Err(error) => return Attempt::NotStarted(claim, error),
    };
    let (input, complaints) = group.take_pipes();
    if let Some(mut input) = input {
        let body = claim.bytes().to_vec();
        // In a thread: a command may take its time to read it, or not read it at all.
        std::thread::spawn(move || drop(input.write_all(&body)));
    }
    let tail = complaints.map(|pipe| Tail::listen(pipe, Arc::clone(progress)));
    let margin = margin(claim.ends());
    let stop = tokio::select! {
        biased;
        () = group.ended() => Stop::Ended,
        lost = claim.lost() => Stop::Lost(lost),
        () = about_to_end(|| claim.ends(), margin) => Stop::Ends,
        _ = kill.wait_for(|kill| *kill) => Stop::Told,
    };
    let (reason, patience) = match stop {
        Stop::Ended => return ended(claim, group, tail).await,
        Stop::Told => {
            group.stop(GRACE).await;
            return Attempt::Killed(claim);
        }
        // Half of what is left is for the command, the other half is to be sure.
        Stop::Ends => {
            let patience = claim.ends().unwrap_or_default().saturating_sub(margin / 2);
            ("the claim is about to end: no renewal came in time".into(), patience)
        }
        Stop::Lost(lost @ (LostClaim::Expired | LostClaim::Unreachable)) => {
            (lost.to_string(), Duration::ZERO)
        }
        Stop::Lost(lost) => (lost.to_string(), GRACE),
    };
    group.stop(patience).await;
    Attempt::Lost(claim, reason)
}

/// Why a command runs no more.
enum Stop {
    Ended,
    Lost(LostClaim),
    /// The lease is about to end.
    Ends,
    Told,
}

async fn ended(claim: Claim, mut group: Group, tail: Option<Tail>) -> Attempt {
    match group.status() {
        Ok(status) if status.success() => Attempt::Succeeded(claim),
        Ok(status) => {
            let said = match tail {
                Some(tail) => tail.end().await,
                None => String::new(),
            };
            Attempt::Failed(claim, describe(status, &said), group::code(status))
        }
        Err(error) => Attempt::Failed(claim, error.to_string(), 1),
    }
}

fn describe(status: ExitStatus, said: &str) -> String {
    let said = said.trim();
    match said.is_empty() {
        true => status.to_string(),
        false => format!("{status}: {said}"),
    }
}

/// Passes on what a command complains about, and keeps the end of it.
struct Tail {
    kept: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Tail {
    fn listen(mut pipe: ChildStderr, progress: Arc<Progress>) -> Tail {
        let kept: Arc<Mutex<Vec<u8>>> = Arc::default();
        let keeps = Arc::clone(&kept);
        let thread = std::thread::spawn(move || {
            let mut room = [0; 4_096];
            while let Ok(count @ 1..) = pipe.read(&mut room) {
                progress.write(&room[..count]);
                let mut kept = keeps.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                kept.extend_from_slice(&room[..count]);
                let over = kept.len().saturating_sub(TAIL);
                kept.drain(..over);
            }
        });
        Tail { kept, thread }
    }

    /// What was said by the end of the command. Others of its group may go on and have the pipe still:
    /// they are not waited for.
    async fn end(self) -> String {
        let until = std::time::Instant::now() + Duration::from_millis(200);
        while !self.thread.is_finished() && std::time::Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let kept = self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Bytes that are no text become longer ones.
        let text = String::from_utf8_lossy(&kept).replace(char::REPLACEMENT_CHARACTER, "?");
        text.chars().filter(|letter| !letter.is_control() || *letter == '\n').collect()
    }
}
