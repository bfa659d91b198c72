//! Where the locks are, and how what is found out is said: the options of every command over a URL.

use std::fmt::{self, Debug, Display, Formatter};
use std::io::{self, Write};

use anyhow::Result;
use clap::{Args, ValueEnum};
use keylatch::{Blocker, Locks, State};
use serde_json::{Value, json};

use crate::signals;

/// The exit code of a lock that is busy or timed out, as in `sysexits.h` (try again later).
pub(crate) const BUSY: u8 = 75;

#[derive(Args)]
pub(crate) struct Place {
    /// Where the locks are: keylatch://HOST:PORT[,HOST:PORT..], postgres://.., redis://HOST:PORT,
    /// etcd://HOST:PORT or sqlite:PATH; with TLS, `keylatchs://HOST:PORT?ca=PATH&cert=PATH&key=PATH`. A server that wants a token has it from
    /// `keylatch://:TOKEN@HOST:PORT`, or else from `KEYLATCH_AUTH`. [default: `KEYLATCH_URL`, or
    /// `url` in ~/.config/keylatch/config.toml, or a file in the user's state directory]
    // Not read by clap: its help would show what may have a password in it.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    form: Form,
}

/// Without the URL, which may have a token in it.
impl Debug for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("form", &self.form).finish_non_exhaustive()
    }
}

/// How what is found out is said.
#[derive(Args, Debug)]
pub(crate) struct Form {
    /// How to say it: for people, or one JSON object a line.
    #[arg(short, long, value_enum, default_value = "text", value_name = "FORMAT")]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

impl Place {
    pub(crate) async fn connect(&self) -> Result<Locks> {
        Ok(match &self.url {
            Some(url) => Locks::connect(url).await?,
            None => Locks::open().await?,
        })
    }

    pub(crate) fn is_json(&self) -> bool {
        self.form.is_json()
    }

    /// A result, on standard output.
    pub(crate) fn print(&self, json: &Value, text: impl Display) -> io::Result<()> {
        self.form.print(json, text)
    }

    /// A signal ended the wait; its exit code. A person at a terminal knows already.
    pub(crate) fn cancelled(&self, signal: i32) -> u8 {
        if self.is_json() {
            self.tell(&json!({"status": "cancelled", "signal": signal}), "");
        }
        signals::code(signal)
    }

    /// Something besides, on standard error.
    pub(crate) fn tell(&self, json: &Value, text: impl Display) {
        self.form.tell(json, text);
    }
}

impl Form {
    pub(crate) fn is_json(&self) -> bool {
        self.output == Output::Json
    }

    /// A result, on standard output.
    pub(crate) fn print(&self, json: &Value, text: impl Display) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match self.output {
            Output::Json => writeln!(out, "{json}")?,
            Output::Text => writeln!(out, "{text}")?,
        }
        out.flush()
    }

    /// Something besides, on standard error. If nobody hears it, that is no failure.
    pub(crate) fn tell(&self, json: &Value, text: impl Display) {
        let mut out = io::stderr().lock();
        drop(match self.output {
            Output::Json => writeln!(out, "{json}"),
            Output::Text => writeln!(out, "keylatch: {text}"),
        });
    }
}

/// Runs a command over a URL.
pub(crate) fn block_on<T>(command: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}

/// Who is in the way, in the words of the protocol.
pub(crate) fn blocker_json(status: &str, blocker: Option<&Blocker>) -> Value {
    let mut value = json!({ "status": status });
    if let Some(blocker) = blocker {
        value["owner"] = (&*blocker.owner).into();
        value["mode"] = blocker.mode.letter().into();
        value["state"] = state(blocker.state).into();
        value["token"] = blocker.token.into();
        value["held_ms"] = blocker.held_ms.into();
        value["lease_ms"] = blocker.lease_ms.into();
    }
    value
}

pub(crate) fn state(state: State) -> &'static str {
    match state {
        State::Held => "held",
        State::Waiting => "waiting",
    }
}
