//! Signals to this process, one after the other.

use std::io;
use std::process::ExitCode;

use rustix::process::{Signal, getpid, kill_current_process_group, kill_process};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use tokio::sync::mpsc;

pub(crate) struct Signals(mpsc::UnboundedReceiver<i32>);

impl Signals {
    /// Those that end a program. One that is ignored stays so (`nohup`, background jobs of scripts).
    pub(crate) fn that_end() -> io::Result<Signals> {
        Signals::listen(&[SIGINT, SIGTERM, SIGHUP, SIGQUIT])
    }

    /// Those, and what job control sends.
    pub(crate) fn for_child() -> io::Result<Signals> {
        Signals::listen(&[SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT])
    }

    fn listen(wanted: &[i32]) -> io::Result<Signals> {
        let ignored = ignored();
        let heard = wanted.iter().filter(|signal| ignored & (1 << (**signal - 1)) == 0);
        let mut signals = signal_hook::iterator::Signals::new(heard)?;
        let (send, receiver) = mpsc::unbounded_channel();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in signals.forever() {
                let _ = send.send(signal);
            }
        })?;
        Ok(Signals(receiver))
    }

    pub(crate) async fn next(&mut self) -> i32 {
        match self.0.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }

    /// The next one that ends a program; one that stops it stops it.
    pub(crate) async fn next_end(&mut self) -> i32 {
        loop {
            match self.next().await {
                SIGTSTP => stop(),
                SIGCONT => {}
                signal => return signal,
            }
        }
    }

    /// One that ends a program and has come already.
    pub(crate) fn pending(&mut self) -> Option<i32> {
        std::iter::from_fn(|| self.0.try_recv().ok())
            .find(|signal| ![SIGTSTP, SIGCONT].contains(signal))
    }
}

/// Stops this process until somebody continues it.
pub(crate) fn stop() {
    let _ = kill_process(getpid(), Signal::STOP);
}

/// Ends this process as ^C would have, with all of its group: a script that runs it ends too. The
/// exit code is for the case that even that does not end it.
pub(crate) fn interrupt_us() -> ExitCode {
    let _ = kill_current_process_group(Signal::INT);
    let _ = signal_hook::low_level::emulate_default_handler(SIGINT);
    ExitCode::from(code(SIGINT))
}

/// The exit code of what a signal has ended.
pub(crate) fn code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// The signals that this process was started to ignore, a bit each; none where that cannot be read.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
