//! A server under strace: what it writes, syncs and sends, and when; and syncs that fail.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::Start;

/// How long strace may take to write down what has happened.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server that is looked at, and what strace writes about it.
pub(crate) struct Traced {
    trace: tempfile::NamedTempFile,
    pub(crate) start: Start,
}

/// A call of the system, as strace shows it.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) thread: String,
    pub(crate) text: String,
    /// In seconds, on a clock that all servers of this machine share.
    pub(crate) began: f64,
    pub(crate) ended: f64,
}

impl Call {
    pub(crate) fn is_sync(&self) -> bool {
        self.text.starts_with("fdatasync(") || self.text.starts_with("fsync(")
    }

    pub(crate) fn is_write(&self) -> bool {
        self.text.starts_with("pwrite64(")
    }

    /// `1763359000.123456 fsync(7) = 0 <0.000123>`; without the end if the server was killed
    /// during the call, which may have had its effect all the same.
    fn read(thread: String, line: &str) -> Option<Call> {
        let (began, text) = line.split_once(' ')?;
        let began: f64 = began.parse().ok()?;
        let took = text.strip_suffix('>').and_then(|text| text.rsplit_once(" <"));
        let took = took.and_then(|(text, took)| Some((text, took.parse::<f64>().ok()?)));
        let (text, took) = took.unwrap_or((text, f64::INFINITY));
        Some(Call { thread, text: text.into(), began, ended: began + took })
    }
}

impl Traced {
    /// `when` is strace's word for which syncs of a thread fail.
    pub(crate) fn new(start: Start, when: Option<&str>) -> Traced {
        let trace = tempfile::NamedTempFile::new().unwrap();
        let path = trace.path().to_str().unwrap().to_string();
        // -D: the server is our child, and strace is beside it.
        let mut words = vec!["strace", "-D", "-f", "-q", "-ttt", "-T", "-s", "9000", "-o", &path];
        words.extend(["-e", "trace=fdatasync,fsync,pwrite64,sendto,write"]);
        let inject = when.map(|when| format!("inject=fdatasync,fsync:error=EIO:when={when}"));
        if let Some(inject) = &inject {
            words.extend(["-e", inject]);
        }
        let start = start.under(&words);
        Traced { trace, start }
    }

    /// What strace has written when the server, which has ended, has ended for strace too.
    fn text(&self) -> String {
        let since = Instant::now();
        loop {
            let text = std::fs::read(self.trace.path()).unwrap();
            let text = String::from_utf8_lossy(&text).into_owned();
            let lines = || text.lines().filter_map(|line| line.split_once(' '));
            let seen: BTreeSet<_> = lines().map(|(thread, _)| thread).collect();
            let gone = lines().filter(|(_, line)| line.contains(" +++ ") && line.ends_with(" +++"));
            let gone: BTreeSet<_> = gone.map(|(thread, _)| thread).collect();
            if !gone.is_empty() && seen == gone {
                return text;
            }
            assert!(since.elapsed() < PATIENCE, "strace still sees it: {text}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// All calls of a server that has ended, in the order in which they ended.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let text = self.text();
        // A call during which other threads did something is shown in two parts.
        let mut begun = BTreeMap::new();
        let mut calls = Vec::new();
        for (thread, line) in text.lines().filter_map(|line| line.split_once(' ')) {
            let (thread, line) = (thread.to_string(), line.trim());
            if let Some(front) = line.strip_suffix("<unfinished ...>") {
                begun.insert(thread, front.to_string());
            } else if let Some((_, back)) = line.split_once(" resumed>") {
                let front = begun.remove(&thread).unwrap_or_default();
                calls.extend(Call::read(thread, &(front + back)));
            } else {
                calls.extend(Call::read(thread, line));
            }
        }
        calls.extend(begun.into_iter().filter_map(|(thread, front)| Call::read(thread, &front)));
        calls
    }
}
