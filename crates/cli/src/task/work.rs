//! `keylatch task work`: a command for each task.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use keylatch::{
    ChangeError, Claim, ClaimError, ClaimTask, ListError, NextClaim, TaskError, TaskState, Tasks,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::attempt::{Attempt, attempt};
use super::progress::Progress;
use crate::place::{BUSY, Place, block_on};
use crate::signals::{self, Signals};
use crate::time;

const EXAMPLES: &str = "\
Examples:
  keylatch task work emails -- ./send.sh                 for ever, one after the other
  keylatch task work emails --parallel 8 -- ./send.sh    eight at a time
  keylatch task work emails --drain -- ./send.sh         until nothing is free
  keylatch task work emails --wait 10m -- ./send.sh      until nothing has come for ten minutes
  keylatch task work emails --once -- sh -c 'mail \"$(cat)\" < text'

The command has the task's body on its standard input, and KEYLATCH_TASK_POOL, KEYLATCH_TASK_KEY,
KEYLATCH_TASK_ATTEMPTS (how often it was put back before), KEYLATCH_TASK_TOKEN and KEYLATCH_TASK_VERSION
(as it was when it was claimed: renewals change it) in its environment. The token is larger than that of every earlier claim of this task: give it to what you
write to.

If the command succeeds the task is done. If not, it is put back with the end of what the command said on
standard error, and tried again later: after 1 s, then 2 s, then 4 s, up to 5 min (--backoff). After its
last attempt it is failed, until `keylatch task retry`. The claim is renewed while the command runs. If it is lost,
or is about to be because nobody answers, the command and everything it started in its process group is
stopped before the lease ends, and the task is left to others.

While there is no task it waits for one, and says so on standard error if there is none at first.
--drain does not wait, and --wait not for ever.

Standard output is the commands' own. What is said of them is on standard error, with -o json as one
object a line.

On INT, TERM, HUP or QUIT nothing more is claimed, and what runs is waited for. A second signal stops it:
those tasks are free at once, and the attempt does not count.

Exit codes: 0 all that was claimed is done, or a signal came and what ran has finished; 1 some was put
back or lost, or any other error; with --once that of the command, or 75 if there was no task in time;
126 the command cannot be executed; 127 it is not found; 2 a mistake on the command line; 128 + N after
a second signal N.";

/// Run a command for each task of a pool.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Work {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The pool.
    pool: String,
    /// How many commands run at a time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    parallel: u16,
    /// Who works on it, for others to see; by default user, host and process
    #[arg(long)]
    owner: Option<String>,
    /// How long a task is claimed without being renewed; 0 is for ever. [default: 60s]
    #[arg(long, value_parser = time::read, allow_hyphen_values = true, value_name = "TIME")]
    lease: Option<Duration>,
    /// When to try again: after the first time, doubled each time, up to the second.
    #[arg(long, value_parser = Backoff::read, allow_hyphen_values = true, value_name = "TIME..TIME", default_value = "1s..5m")]
    backoff: Backoff,
    /// End when nothing has become free for so long. [default: never]
    #[arg(long, value_parser = time::read, allow_hyphen_values = true, value_name = "TIME")]
    wait: Option<Duration>,
    /// End when nothing is free; the same as --wait 0.
    #[arg(long, conflicts_with = "wait")]
    drain: bool,
    /// One task, and then end; it is waited for, unless --wait or --drain says otherwise.
    #[arg(long, conflicts_with = "parallel")]
    once: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Backoff {
    first: Duration,
    most: Duration,
}

impl Backoff {
    fn read(text: &str) -> Result<Backoff, String> {
        let (first, most) = text.split_once("..").unwrap_or((text, text));
        let backoff = Backoff { first: time::read(first)?, most: time::read(most)? };
        if backoff.first > backoff.most {
            return Err(format!("'{text}' ends before it begins"));
        }
        Ok(backoff)
    }

    fn after(self, attempts: u32) -> Duration {
        let factor = 2_u32.checked_pow(attempts).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.most)
    }
}

/// Whoever has found no task by then says that it waits.
const FIRST: Duration = Duration::from_millis(300);
/// Between two tries while nobody answers.
const AGAIN: Duration = Duration::from_secs(1);
/// How often a worker looks whether anybody answers, and how long an answer may take.
const LOOK: Duration = Duration::from_secs(5);

impl Work {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut signals = Signals::that_end()?;
        block_on(async {
            let locks = self.place.connect().await?;
            let tasks = locks.tasks(self.pool.as_str());
            let (stop, stopping) = watch::channel(false);
            let (kill, killing) = watch::channel(false);
            let progress = Arc::new(Progress::default());
            let slots = self.parallel;
            let work = Arc::new(self);
            let mut running = JoinSet::new();
            for _ in 0..slots {
                running.spawn(
                    Slot {
                        work: Arc::clone(&work),
                        tasks: tasks.clone(),
                        next: None,
                        stopping: stopping.clone(),
                        killing: killing.clone(),
                        progress: Arc::clone(&progress),
                    }
                    .run(),
                );
            }
            let (mut told, mut killed_by) = (false, None);
            let mut code = 0;
            let mut failure = None;
            let shown = progress.show(&tasks);
            let mut shown = std::pin::pin!(shown);
            let looked = work.look(&tasks, &progress);
            let mut looked = std::pin::pin!(looked);
            let waits = work.say_that_it_waits(&progress);
            let mut waits = std::pin::pin!(waits);
            loop {
                tokio::select! {
                    ended = running.join_next() => match ended {
                        None => break,
                        Some(Ok(Ok(worst))) => code = code.max(worst),
                        Some(Ok(Err(error))) => {
                            // The others finish what they are at.
                            failure.get_or_insert(error);
                            stop.send_replace(true);
                        }
                        Some(Err(panicked)) => return Err(panicked.into()),
                    },
                    signal = signals.next_end() => {
                        if told {
                            killed_by = Some(signal);
                            kill.send_replace(true);
                        } else {
                            told = true;
                            stop.send_replace(true);
                            if progress.running.load(Ordering::SeqCst) > 0 {
                                let text = "finishing what runs; once more stops it";
                                work.tell(&progress, &json!({"status": "stopping"}), text);
                            }
                        }
                    }
                    () = &mut shown => {}
                    () = &mut looked => {}
                    () = &mut waits => {}
                }
            }
            drop(tokio::time::timeout(crate::run::RELEASE, locks.close()).await);
            if !work.once {
                let [done, back, lost] = [&progress.done, &progress.back, &progress.lost]
                    .map(|count| count.load(Ordering::SeqCst));
                let json = json!({"status": "ended", "done": done, "back": back, "lost": lost});
                work.tell(&progress, &json, &progress.summary());
            }
            if let Some(error) = failure {
                let Some(not_started) = error.downcast_ref::<NotStarted>() else {
                    return Err(error);
                };
                let text = error.to_string();
                work.tell(&progress, &json!({"status": "not started", "error": text}), &text);
                return Ok(ExitCode::from(not_started.code()));
            }
            // One that works until it is told to end has done well if it ends then.
            let code = if told && !work.once { 0 } else { code };
            Ok(ExitCode::from(killed_by.map_or(code, signals::code)))
        })
    }

    /// Says that there is no task, once, so that nobody takes it for a command that hangs. Never ends.
    async fn say_that_it_waits(&self, progress: &Progress) {
        tokio::time::sleep(FIRST).await;
        let waits = !self.drain && self.wait != Some(Duration::ZERO);
        if waits && !progress.has_begun() {
            let limit = self.wait.map(|wait| time::show(wait.as_millis() as u64));
            let limit = limit.map_or_else(String::new, |limit| format!(", for {limit} at most"));
            let text = format!("waiting for a task in {}{limit}", self.pool);
            self.tell(progress, &json!({"status": "waiting", "pool": self.pool}), &text);
        }
        std::future::pending::<()>().await;
    }

    /// Says when nobody answers, and when somebody does again: who waits for a task would not notice. For ever.
    async fn look(&self, tasks: &Tasks, progress: &Progress) {
        let mut away = false;
        loop {
            tokio::time::sleep(LOOK).await;
            let looked = tokio::time::timeout(LOOK, tasks.list().limit(1).into_future()).await;
            let why = match looked {
                Ok(Err(ListError::Unreachable(why))) => Some(why),
                Ok(_) => None,
                Err(_) => Some(format!("no answer within {}", time::show(LOOK.as_millis() as u64))),
            };
            match why {
                Some(why) if !away => {
                    let text = format!("nobody answers: {why}; still trying");
                    self.tell(progress, &json!({"status": "waiting", "error": why}), &text);
                    away = true;
                }
                None if away => {
                    self.tell(progress, &json!({"status": "answered"}), "is answered again");
                    away = false;
                }
                _ => {}
            }
        }
    }

    /// How long a claim waits; nothing is for ever.
    fn wait(&self) -> Option<Duration> {
        if self.drain { Some(Duration::ZERO) } else { self.wait }
    }

    fn ask(&self, tasks: &Tasks) -> ClaimTask {
        let owner = self.owner.clone().unwrap_or_else(crate::wanted::who);
        let mut ask = tasks.claim().owner(owner);
        if let Some(wait) = self.wait() {
            ask = ask.wait(wait);
        }
        if let Some(lease) = self.lease {
            ask = ask.lease(lease);
        }
        ask
    }

    fn tell(&self, progress: &Progress, json: &Value, text: &str) {
        progress.write(b"");
        self.place.tell(json, text);
    }
}

/// One of those that run at a time.
struct Slot {
    work: Arc<Work>,
    tasks: Tasks,
    /// A claim that was asked for already.
    next: Option<NextClaim>,
    stopping: watch::Receiver<bool>,
    killing: watch::Receiver<bool>,
    progress: Arc<Progress>,
}

impl Slot {
    /// Until it is told to stop, or nothing is free. The exit code.
    async fn run(mut self) -> Result<u8> {
        let mut code = 0;
        loop {
            let Some(claim) = self.claim().await? else {
                let stopped = *self.stopping.borrow();
                return Ok(if self.work.once && !stopped { BUSY } else { code });
            };
            Progress::count(&self.progress.running);
            let tried = self.attempt(claim).await;
            self.progress.running.fetch_sub(1, Ordering::SeqCst);
            let tried = tried?;
            code = if self.work.once { tried } else { code.max(tried.min(1)) };
            if self.work.once || *self.killing.borrow() {
                return Ok(code);
            }
        }
    }

    async fn claim(&mut self) -> Result<Option<Claim>> {
        let wait = self.work.wait();
        loop {
            if *self.stopping.borrow() {
                return Ok(None);
            }
            let (ask, next) = (self.work.ask(&self.tasks), self.next.take());
            let claim = async {
                match next {
                    Some(next) => next.await,
                    None => ask.await,
                }
            };
            let claimed = tokio::select! {
                claimed = claim => Some(claimed),
                _ = self.stopping.wait_for(|stop| *stop) => None,
            };
            // Without one it is withdrawn.
            let Some(claimed) = claimed else { return Ok(None) };
            match claimed {
                Ok(None) if wait.is_none() => {}
                // A worker that is to go on for ever outlives a server that is away.
                Err(error) if wait.is_none() && passes(&error) => {
                    self.tell(
                        &json!({"status": "waiting", "error": error.to_string()}),
                        &error.to_string(),
                    );
                    tokio::time::sleep(AGAIN).await;
                }
                claimed => return Ok(claimed?),
            }
        }
    }

    /// Together with the claim of the next one, if there is to be one.
    async fn done(&mut self, claim: Claim) -> Result<u64, ChangeError> {
        if self.work.once || *self.stopping.borrow() {
            return claim.done().await;
        }
        let (done, next) = claim.done_and(self.work.ask(&self.tasks)).await;
        self.next = Some(next);
        done
    }

    /// 0 if the task is done, and otherwise not.
    async fn attempt(&mut self, claim: Claim) -> Result<u8> {
        let (key, token, attempts) = (claim.key().clone(), claim.token(), claim.attempts());
        let claimed =
            json!({"status": "claimed", "key": &*key, "token": token, "attempts": attempts});
        self.tell_json(&claimed);
        let work = Arc::clone(&self.work);
        let tried =
            attempt(&work.pool, &work.command, claim, &mut self.killing, &self.progress).await;
        let said = match tried {
            Attempt::Succeeded(claim) => match self.done(claim).await {
                Ok(_) => {
                    Progress::count(&self.progress.done);
                    self.tell_json(&json!({"status": "done", "key": &*key}));
                    return Ok(0);
                }
                Err(error) => return Ok(self.not_changed(&key, "the command succeeded", &error)),
            },
            Attempt::Failed(claim, reason, code) => {
                let delay = work.backoff.after(attempts);
                match claim.put_back().delay(delay).error(reason.as_str()).await {
                    Ok(back) => {
                        Progress::count(&self.progress.back);
                        self.tell_back(&key, &reason, back, delay);
                    }
                    Err(error) => drop(self.not_changed(&key, &reason, &error)),
                }
                return Ok(code);
            }
            Attempt::Lost(claim, reason) => {
                drop(claim);
                Progress::count(&self.progress.lost);
                reason
            }
            Attempt::Killed(claim) => {
                drop(claim.release().await);
                "stopped; the task is free again".into()
            }
            Attempt::NotStarted(claim, error) => {
                drop(claim.release().await);
                return Err(NotStarted(work.command[0].clone(), error).into());
            }
        };
        let json = json!({"status": "lost", "key": &*key, "reason": said});
        self.tell(&json, &format!("{key}: {said}"));
        Ok(1)
    }

    /// The command has ended, and the task is not ours any more, or nobody answers.
    fn not_changed(&self, key: &str, ended: &str, error: &ChangeError) -> u8 {
        Progress::count(&self.progress.lost);
        let json =
            json!({"status": "lost", "key": key, "ended": ended, "reason": error.to_string()});
        let ended = ended.lines().next().unwrap_or_default();
        self.tell(&json, &format!("{key}: {ended}, but that could not be noted: {error}"));
        1
    }

    fn tell_back(&self, key: &str, reason: &str, back: keylatch::Back, delay: Duration) {
        let delay_ms = delay.as_millis() as u64;
        let then = match back.state {
            TaskState::Failed => format!("failed after {} attempts", back.attempts),
            _ => format!("tried again in {}", time::show(delay_ms)),
        };
        let json = json!({
            "status": "back", "key": key, "state": back.state.word(), "attempts": back.attempts,
            "delay_ms": delay_ms, "error": reason,
        });
        let first = reason.lines().next().unwrap_or_default();
        self.tell(&json, &format!("{key}: {first}; {then}"));
    }

    fn tell_json(&self, json: &Value) {
        if self.work.place.is_json() {
            self.tell(json, "");
        }
    }

    fn tell(&self, json: &Value, text: &str) {
        self.work.tell(&self.progress, json, text);
    }
}

/// Whether it may be otherwise soon.
fn passes(error: &ClaimError) -> bool {
    let task =
        |error: &TaskError| matches!(error, TaskError::Unreachable(_) | TaskError::Unknown(_));
    match error {
        ClaimError::Task(error) => task(error),
        ClaimError::Cancelled | ClaimError::Ended => true,
        ClaimError::Refused(_) => false,
    }
}

/// A command that cannot be started ends the worker: it would fail every task.
#[derive(Debug)]
struct NotStarted(OsString, std::io::Error);

impl NotStarted {
    fn code(&self) -> u8 {
        if self.1.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }
    }
}

impl std::fmt::Display for NotStarted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.0.display(), self.1)
    }
}

impl std::error::Error for NotStarted {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_until_the_next_try_doubles_up_to_the_most() {
        let backoff = Backoff::read("1s..5m").unwrap();
        let after = |attempts| backoff.after(attempts).as_secs();
        assert_eq!([0, 1, 2, 8, 9, 40, u32::MAX].map(after), [1, 2, 4, 256, 300, 300, 300]);
        assert_eq!(Backoff::read("0").unwrap().after(7), Duration::ZERO);
        assert_eq!(Backoff::read("3s").unwrap().after(7), Duration::from_secs(3));
        for wrong in ["", "5m..1s", "1s..", "..1s", "1..2", "x"] {
            assert!(Backoff::read(wrong).is_err(), "{wrong}");
        }
    }
}
