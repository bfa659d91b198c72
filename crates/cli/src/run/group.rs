//! A command in a process group of its own, so that whatever it starts is reached with it.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, ChildStdin, Command, ExitStatus};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid,
};
use tokio::sync::watch;

use crate::signals;

pub(crate) struct Group {
    child: Child,
    id: Pid,
    /// What was last seen of the command.
    state: watch::Receiver<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Runs,
    /// It was stopped by this signal; it may have been continued since.
    Stopped(i32),
    /// It has ended, and is not reaped, so its id stays its own.
    Ended,
}

/// How often it is looked whether the others of the group have ended too.
const LOOK: Duration = Duration::from_millis(10);

impl Group {
    pub(crate) fn spawn<const N: usize>(
        words: &[OsString],
        environment: [(&str, String); N],
    ) -> io::Result<Group> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).envs(environment);
        Group::start(command)
    }

    pub(crate) fn start(mut command: Command) -> io::Result<Group> {
        let child = command.process_group(0).spawn()?;
        let id = Pid::from_child(&child);
        let (tell, state) = watch::channel(State::Runs);
        let mut group = Group { child, id, state };
        let wait = move || {
            while let Some(signal) = next_stop(id) {
                let _ = tell.send(State::Stopped(signal));
            }
            let _ = tell.send(State::Ended);
        };
        // A command that nobody looks after must not run.
        if let Err(error) = std::thread::Builder::new().name("child".into()).spawn(wait) {
            group.signal(Signal::KILL);
            drop(group.child.wait());
            return Err(error);
        }
        Ok(group)
    }

    /// Where it reads from and what it complains to, if they are pipes.
    pub(crate) fn take_pipes(&mut self) -> (Option<ChildStdin>, Option<ChildStderr>) {
        (self.child.stdin.take(), self.child.stderr.take())
    }

    /// To all of it. Without effect if all of it has ended.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.id, signal);
    }

    /// The command itself has ended. Cancel safe.
    pub(crate) async fn ended(&mut self) {
        drop(self.state.wait_for(|state| *state == State::Ended).await);
    }

    /// What becomes of the command itself. Cancel safe.
    pub(crate) async fn next(&mut self) -> State {
        // If nobody can tell any more, the last has been told, and that was its end.
        drop(self.state.changed().await);
        *self.state.borrow_and_update()
    }

    pub(crate) fn id(&self) -> Pid {
        self.id
    }

    /// TERM, and KILL for what is left after that time.
    pub(crate) async fn stop(&mut self, patience: Duration) {
        if !patience.is_zero() {
            self.signal(Signal::TERM);
            // What is stopped would not hear it.
            self.signal(Signal::CONT);
            let gone = async {
                self.ended().await;
                drop(self.child.wait());
                // As long as there are others the id of the group is not given to anyone else.
                while test_kill_process_group(self.id).is_ok() {
                    tokio::time::sleep(LOOK).await;
                }
            };
            if tokio::time::timeout(patience, gone).await.is_ok() {
                return;
            }
        }
        self.signal(Signal::KILL);
        self.ended().await;
    }

    /// How it ended. To be called when it has.
    pub(crate) fn status(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

/// As a shell has it.
pub(crate) fn code(status: ExitStatus) -> u8 {
    let code = status.code().map(|code| u8::try_from(code).unwrap_or(u8::MAX));
    code.or_else(|| status.signal().map(signals::code)).unwrap_or(u8::MAX)
}

/// Waits until a process is stopped, and by which signal; `None` if it has ended.
fn next_stop(id: Pid) -> Option<i32> {
    loop {
        let either = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(id), either) {
            Err(Errno::INTR) | Ok(None) => {}
            Ok(Some(status)) if status.stopped() => {
                // Taken, so that it is told once. It may have been continued or killed meanwhile.
                let taken = waitid(WaitId::Pid(id), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
                if let Ok(Some(taken)) = taken
                    && let Some(signal) = taken.stopping_signal()
                {
                    return Some(signal);
                }
            }
            Ok(Some(_)) | Err(_) => return None,
        }
    }
}
