//! A command in a process group of its own, so that whatever it starts is reached with it.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid,
};
use tokio::sync::watch;

use crate::signals;

pub(super) struct Group {
    child: Child,
    id: Pid,
    /// Becomes true when the command has ended. It is not reaped then, so its id stays its own.
    ended: watch::Receiver<bool>,
}

/// How often it is looked whether the others of the group have ended too.
const LOOK: Duration = Duration::from_millis(10);

impl Group {
    pub(super) fn spawn<const N: usize>(
        words: &[OsString],
        environment: [(&str, String); N],
    ) -> io::Result<Group> {
        let mut command = Command::new(&words[0]);
        let child = command.args(&words[1..]).envs(environment).process_group(0).spawn()?;
        let id = Pid::from_child(&child);
        let (end, ended) = watch::channel(false);
        let mut group = Group { child, id, ended };
        let wait = move || {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while matches!(waitid(WaitId::Pid(id), options), Err(Errno::INTR)) {}
            let _ = end.send(true);
        };
        // A command that nobody looks after must not run.
        if let Err(error) = std::thread::Builder::new().name("child".into()).spawn(wait) {
            group.signal(Signal::KILL);
            drop(group.child.wait());
            return Err(error);
        }
        Ok(group)
    }

    /// To all of it. Without effect if all of it has ended.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.id, signal);
    }

    /// The command itself has ended. Cancel safe.
    pub(super) async fn ended(&mut self) {
        drop(self.ended.wait_for(|ended| *ended).await);
    }

    /// TERM, and KILL for what is left after that time.
    pub(super) async fn stop(&mut self, patience: Duration) {
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

    /// As a shell has it. To be called when the command has ended.
    pub(super) fn code(&mut self) -> io::Result<u8> {
        let status: ExitStatus = self.child.wait()?;
        let code = status.code().map(|code| u8::try_from(code).unwrap_or(u8::MAX));
        Ok(code.or_else(|| status.signal().map(signals::code)).unwrap_or(u8::MAX))
    }
}
