//! Commands over the URL of a server.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{HANG, Server};

/// The commands of `keylatch` over one URL.
pub(crate) struct Cli {
    url: String,
}

/// What a command has said, and how it ended.
#[derive(Debug)]
pub(crate) struct Done {
    /// `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A command that runs; killed when it is dropped.
pub(crate) struct Running {
    child: Child,
    out: Heard,
    err: Heard,
}

impl Cli {
    pub(crate) fn over(server: &Server) -> Cli {
        Cli::at(format!("keylatch://{}", server.resp))
    }

    pub(crate) fn at(url: String) -> Cli {
        Cli { url }
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keylatch"));
        command.args(words).env("KEYLATCH_URL", &self.url).env("RUST_BACKTRACE", "0");
        command
    }

    pub(crate) fn start(&self, words: &[&str]) -> Running {
        Running::start(self.command(words))
    }

    pub(crate) fn run(&self, words: &[&str]) -> Done {
        self.start(words).done()
    }

    /// The only line that a command which succeeds prints, as JSON.
    pub(crate) fn json(&self, words: &[&str]) -> serde_json::Value {
        let done = self.run(&[words, &["-o", "json"]].concat());
        assert_eq!(done.code, Some(0), "{done:?}");
        serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done:?}"))
    }
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = Heard::from(child.stdout.take().unwrap());
        let err = Heard::from(child.stderr.take().unwrap());
        Running { child, out, err }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.id(), name);
    }

    /// On its standard error, so far.
    pub(crate) fn has_said(&self, text: &str) -> bool {
        self.err.so_far().contains(text)
    }

    /// Waits for its end.
    pub(crate) fn done(mut self) -> Done {
        eventually("the command ends", || self.has_ended());
        let code = self.child.wait().unwrap().code();
        Done { code, out: self.out.all(), err: self.err.all() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What comes out of a command.
struct Heard {
    text: Arc<Mutex<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
}

impl Heard {
    fn from(mut pipe: impl Read + Send + 'static) -> Heard {
        let text = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&text);
        let thread = std::thread::spawn(move || {
            let mut room = [0; 4_096];
            while let Ok(count @ 1..) = pipe.read(&mut room) {
                heard.lock().unwrap().extend_from_slice(&room[..count]);
            }
        });
        Heard { text, thread: Some(thread) }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().unwrap()).into_owned()
    }

    fn all(&mut self) -> String {
        // Whoever the command has left behind may have its pipe open.
        let thread = self.thread.take().expect("once");
        eventually("its output ends", || thread.is_finished());
        self.so_far()
    }
}

pub(crate) fn signal(process: u32, name: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(process.to_string()).status();
    assert!(status.unwrap().success());
}

pub(crate) fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let since = Instant::now();
    while !happened() {
        assert!(since.elapsed() < HANG, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The state of a process as `/proc` has it; `None` if it has ended.
pub(crate) fn state_of(process: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let state = stat.rsplit_once(") ")?.1.chars().next()?;
    (state != 'Z').then_some(state)
}

/// A number that somebody writes to a file, once it is there.
pub(crate) fn number_in(file: &Path) -> u32 {
    let mut number = None;
    eventually("a number is written", || {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        number = text.strip_suffix('\n').and_then(|text| text.parse().ok());
        number.is_some()
    });
    number.unwrap()
}
