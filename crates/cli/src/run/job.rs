//! What job control does to a command that runs, and to us with it. A command must not run on while
//! nobody renews its lease, so it is stopped first and we after it, and it is continued by us.

use std::cell::Cell;

use rustix::process::Signal;

use super::group::Group;
use super::terminal::Terminal;
use crate::signals;

pub(super) struct Job {
    /// If the command may use it.
    terminal: Option<Terminal>,
    /// We were told to stop and wait until the command has.
    stopping: Cell<bool>,
}

impl Job {
    pub(super) fn begin(group: &Group) -> Job {
        let job = Job { terminal: Terminal::at_input(), stopping: Cell::new(false) };
        if let Some(terminal) = &job.terminal {
            terminal.lend(group.id());
            // It may have wanted the terminal already, and been stopped.
            group.signal(Signal::CONT);
        }
        job
    }

    /// A signal came to us.
    pub(super) fn forward(&self, group: &Group, signal: i32) {
        let Some(signal) = Signal::from_named_raw(signal) else { return };
        if signal == Signal::CONT {
            return self.go_on(group);
        }
        group.signal(signal);
        if signal == Signal::TSTP {
            // One that does not hear it is stopped all the same.
            group.signal(Signal::STOP);
            self.stopping.set(true);
        }
    }

    /// The command was stopped.
    pub(super) fn stopped(&self, group: &Group, signal: i32) {
        let by_terminal = [Signal::TSTP, Signal::TTIN, Signal::TTOU].map(Signal::as_raw);
        let asked = self.stopping.take();
        let Some(terminal) = &self.terminal else {
            if asked {
                signals::stop();
            }
            return;
        };
        // The shell that runs us sees one job, and continues it as one. If somebody stopped only the
        // command, the lease is renewed for it as before.
        if (asked || by_terminal.contains(&signal)) && !terminal.stop_us() {
            self.go_on(group);
        }
    }

    /// Whoever has continued us means the command. The lease has been looked at before: signals come
    /// last.
    fn go_on(&self, group: &Group) {
        if let Some(terminal) = &self.terminal {
            terminal.lend(group.id());
        }
        group.signal(Signal::CONT);
    }

    /// The command has ended by itself. Whether it had the terminal.
    pub(super) fn ended(&self) -> bool {
        let Some(terminal) = &self.terminal else { return false };
        let had_it = terminal.is_lent();
        terminal.take_back();
        had_it
    }

    /// The command was killed by us, whatever it had done to the terminal.
    pub(super) fn killed(&self) {
        if let Some(terminal) = &self.terminal
            && self.ended()
        {
            terminal.restore();
        }
    }
}
