//! `keylatch task`: records that workers claim, one worker a record.

mod attempt;
mod change;
mod create;
mod list;
mod progress;
mod work;

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use base64::prelude::{BASE64_STANDARD, Engine};
use clap::{Args, Subcommand};
use keylatch::TaskState;

use crate::place::Place;

const EXAMPLES: &str = "\
Examples:
  keylatch task create emails welcome-42 --body ann@example.org
  keylatch task work emails --parallel 4 -- ./send.sh     the body is on its standard input
  keylatch task counts emails
  keylatch task ls emails --state failed
  keylatch task retry emails                              all that failed are free again

By hand, for workers that are scripts:
  keylatch task claim emails --wait 1m -o json            {\"key\": .., \"version\": .., \"body\": ..}
  keylatch task done emails KEY VERSION                   or: back, update

A task is free until somebody claims it, then claimed until it is done, put back, or its lease runs
out. Put back too often (25 times, or --attempts) it is failed. Each change checks the version that the
one before printed: if somebody else has claimed the task since, it changes nothing and says so.";

/// Tasks: records that workers claim, each by one of them.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Task {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Create(create::Create),
    Claim(change::Claim),
    Update(change::Update),
    Done(change::Done),
    Back(change::Back),
    Delete(change::Delete),
    Retry(change::Retry),
    Ls(list::Ls),
    Counts(list::Counts),
    Work(work::Work),
}

impl Task {
    pub(crate) fn place(&self) -> &Place {
        match &self.command {
            Command::Create(create) => &create.place,
            Command::Claim(claim) => &claim.place,
            Command::Update(update) => &update.place,
            Command::Done(done) => &done.place,
            Command::Back(back) => &back.place,
            Command::Delete(delete) => &delete.place,
            Command::Retry(retry) => &retry.place,
            Command::Ls(ls) => &ls.place,
            Command::Counts(counts) => &counts.place,
            Command::Work(work) => &work.place,
        }
    }

    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.command {
            Command::Create(create) => create.run(),
            Command::Claim(claim) => claim.run(),
            Command::Update(update) => update.run(),
            Command::Done(done) => done.run(),
            Command::Back(back) => back.run(),
            Command::Delete(delete) => delete.run(),
            Command::Retry(retry) => retry.run(),
            Command::Ls(ls) => ls.run(),
            Command::Counts(counts) => counts.run(),
            Command::Work(work) => work.run(),
        }
    }
}

/// What is to be done.
#[derive(Args, Debug)]
struct BodyOptions {
    /// What is to be done, up to 64 KiB; `-` reads it from standard input.
    #[arg(long, conflicts_with = "body_file", allow_hyphen_values = true)]
    body: Option<String>,
    /// A file that has it; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    body_file: Option<PathBuf>,
    /// The body is JSON.
    #[arg(long)]
    json: bool,
}

/// A body that was read.
enum Content {
    Bytes(Vec<u8>),
    Json(String),
}

impl BodyOptions {
    fn is_given(&self) -> bool {
        self.body.is_some() || self.body_file.is_some() || self.json
    }

    fn read(&self) -> Result<Option<Content>> {
        let bytes = match (&self.body, &self.body_file) {
            (None, None) if self.json => {
                bail!("--json is about a body: give --body or --body-file")
            }
            (None, None) => return Ok(None),
            (Some(body), _) if body != "-" => body.clone().into_bytes(),
            (None, Some(path)) if path.as_os_str() != "-" => {
                std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?
            }
            _ => {
                let mut bytes = Vec::new();
                std::io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
                bytes
            }
        };
        if !self.json {
            return Ok(Some(Content::Bytes(bytes)));
        }
        // The mistake is found here, not by a worker.
        serde_json::from_slice::<serde_json::Value>(&bytes).context("the body is not JSON")?;
        Ok(Some(Content::Json(String::from_utf8(bytes).context("the body is not JSON")?)))
    }
}

fn state(text: &str) -> Result<TaskState, String> {
    let known = TaskState::from_word(text);
    known.ok_or_else(|| format!("'{text}' is none of free, claimed, done and failed"))
}

/// With its body: as JSON if it is, as text if it is that, and else as `body_base64`, in the words of HTTP.
fn with_body(mut json: serde_json::Value, body: Option<&keylatch::Body>) -> serde_json::Value {
    json["body"] = serde_json::Value::Null;
    let Some(body) = body else { return json };
    let parsed = || serde_json::from_slice(&body.bytes).ok();
    let parsed: Option<serde_json::Value> = if body.json { parsed() } else { None };
    match (parsed, std::str::from_utf8(&body.bytes)) {
        (Some(parsed), _) => json["body"] = parsed,
        (None, Ok(text)) => json["body"] = text.into(),
        (None, Err(_)) => json["body_base64"] = BASE64_STANDARD.encode(&body.bytes).into(),
    }
    json
}
