//! The terminal, lent to the command while it runs: it is in a process group of its own, and only the
//! foreground group may read from a terminal and is interrupted and stopped by its keys.
//!
//! | moment | who has the terminal |
//! |---|---|
//! | before the command | our group |
//! | it runs, and we were in the foreground | its group |
//! | it was stopped (^Z, or it wanted a terminal that it had not) | our group, which then stops too |
//! | continued in the foreground (`fg`) | its group again |
//! | continued in the background (`bg`), or started there | the shell's; nothing is lent |
//! | after the command | our group, if it was lent |

use std::cell::Cell;
use std::io::{IsTerminal, stdin};

use nix::sys::signal::{SigSet, Signal as Blocked};
use rustix::process::{Pid, Signal, getpgrp, getpid, kill_current_process_group};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

pub(super) struct Terminal {
    ours: Pid,
    /// As it was before the command did something to it.
    modes: Termios,
    /// The group that it is lent to.
    lent: Cell<Option<Pid>>,
}

impl Terminal {
    /// The one at standard input, if it is that of this session.
    pub(super) fn at_input() -> Option<Terminal> {
        if !stdin().is_terminal() {
            return None;
        }
        tcgetpgrp(stdin()).ok()?;
        let modes = tcgetattr(stdin()).ok()?;
        Some(Terminal { ours: getpgrp(), modes, lent: Cell::new(None) })
    }

    /// To a group, if we have it. To be called after that group was made, and before it is told to
    /// continue: it may have tried to read meanwhile, and been stopped for it.
    pub(super) fn lend(&self, group: Pid) {
        // Whoever changes the foreground group from the background is stopped otherwise, and so is
        // whoever writes under `stty tostop`. For the rest of this process: but not for the command,
        // which would inherit it.
        let mut stopping = SigSet::empty();
        stopping.add(Blocked::SIGTTOU);
        let blocked = stopping.thread_block().is_ok();
        let have_it = tcgetpgrp(stdin()) == Ok(self.ours);
        if blocked && have_it && tcsetpgrp(stdin(), group).is_ok() {
            self.lent.set(Some(group));
        }
    }

    pub(super) fn is_lent(&self) -> bool {
        self.lent.get().is_some()
    }

    /// Back from the command, if it has it. Not from a shell that took it meanwhile.
    pub(super) fn take_back(&self) {
        if self.lent.take().is_some() {
            // If it is gone altogether, there is nothing to take.
            let _ = tcsetpgrp(stdin(), self.ours);
        }
    }

    /// As it was, after a command that was killed and could not do it.
    pub(super) fn restore(&self) {
        let _ = tcsetattr(stdin(), OptionalActions::Drain, &self.modes);
    }

    /// Stops our whole group, as the key would have done if we had no group beside it: a script that
    /// runs us must not go on, and the shell that started it sees one job. Returns when somebody
    /// continues us, or at once (false) if there is nobody who could.
    pub(super) fn stop_us(&self) -> bool {
        self.take_back();
        if is_orphaned(self.ours) {
            return false;
        }
        kill_current_process_group(Signal::STOP).is_ok()
    }
}

/// Whether no shell looks after this group: no ancestor of ours is in this session and outside of the
/// group. So it is as the first process of a container.
fn is_orphaned(ours: Pid) -> bool {
    let ours = ours.as_raw_nonzero().get();
    let mut process = getpid().as_raw_nonzero().get();
    let session = Lineage::of(process).map(|lineage| lineage.session);
    while let Some(lineage) = Lineage::of(process) {
        if lineage.group != ours {
            return Some(lineage.session) != session;
        }
        process = lineage.parent;
    }
    true
}

struct Lineage {
    parent: i32,
    group: i32,
    session: i32,
}

impl Lineage {
    /// As `/proc` has it; `None` if there is no such process.
    fn of(process: i32) -> Option<Lineage> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // After the name, which may have anything in it, and the state.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(1);
        let mut next = || fields.next()?.parse().ok();
        Some(Lineage { parent: next()?, group: next()?, session: next()? })
    }
}
