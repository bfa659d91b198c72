//! `keylatch task create`: one, or many from standard input.

use std::io::{BufRead, BufReader};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use keylatch::{CreateTask, Tasks};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{BodyOptions, Content};
use crate::place::{Place, block_on};
use crate::time;

const EXAMPLES: &str = "\
Examples:
  keylatch task create emails welcome-42 --body ann@example.org
  keylatch task create reports 2026-11 --body-file report.json --json --priority 5
  keylatch task create emails reminder-42 --delay 1d
  seq 1000 | jq -c '{key: tostring, body: {page: .}}' | keylatch task create crawl -

With `-` instead of a key, each line of standard input is an object with `key` and, if wanted, `body`,
`priority`, `delay_ms` and `attempts`: the options --priority, --delay and --attempts are for lines that
say nothing else. A body that is a string is its text; any other value is JSON.

A key that exists stays as it is, also if that task is done, and this says so: to create the same tasks
twice does no harm.

Exit codes: 0 it exists now, 1 any error.";

/// Tasks that are made together; what is read before they are.
const TOGETHER: usize = 1_000;

/// Make a task, or many.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Create {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The pool.
    pool: String,
    /// The task's key, which no other task of the pool has; `-` for many on standard input.
    key: String,
    #[command(flatten)]
    body: BodyOptions,
    /// Higher is claimed first. [default: 0]
    #[arg(long, allow_hyphen_values = true, value_name = "N")]
    priority: Option<i32>,
    /// Not claimed before this has passed: 500ms, 5s, 2m, 1h.
    #[arg(long, value_parser = time::read, allow_hyphen_values = true, value_name = "TIME")]
    delay: Option<Duration>,
    /// How often it may be put back until it is failed; 0 is for ever. [default: 25]
    #[arg(long, value_name = "N")]
    attempts: Option<u32>,
}

impl Create {
    pub(crate) fn run(self) -> Result<ExitCode> {
        block_on(async {
            let tasks = self.place.connect().await?.tasks(self.pool.as_str());
            if self.key == "-" {
                if self.body.is_given() {
                    bail!(
                        "with - each line has its own body: leave out --body, --body-file and --json"
                    );
                }
                return self.many(&tasks).await;
            }
            let mut create = self.with_options(tasks.create(self.key.as_str()));
            match self.body.read()? {
                None => {}
                Some(Content::Bytes(bytes)) => create = create.body(bytes),
                Some(Content::Json(text)) => create = create.json(text),
            }
            let version = create.await?;
            let status = if version.is_some() { "created" } else { "exists" };
            let json = json!({"status": status, "key": self.key, "version": version});
            let text = version.map_or("exists".into(), |version| format!("created {version}"));
            self.place.print(&json, text)?;
            Ok(ExitCode::SUCCESS)
        })
    }

    fn with_options(&self, mut create: CreateTask) -> CreateTask {
        if let Some(priority) = self.priority {
            create = create.priority(priority);
        }
        if let Some(delay) = self.delay {
            create = create.delay(delay);
        }
        if let Some(attempts) = self.attempts {
            create = create.attempts(attempts);
        }
        create
    }

    async fn many(&self, tasks: &Tasks) -> Result<ExitCode> {
        let mut lines = BufReader::new(std::io::stdin()).lines().enumerate();
        let (mut created, mut existed) = (0, 0);
        loop {
            let some: Vec<_> = lines.by_ref().take(TOGETHER).collect();
            if some.is_empty() {
                break;
            }
            let lines = (some[0].0 + 1, some[some.len() - 1].0 + 1);
            let (mut new, mut wrong) = (Vec::new(), None);
            for (at, line) in some {
                match line.map_err(Into::into).and_then(|line| self.one(tasks, &line)) {
                    Ok(one) => new.extend(one),
                    Err(error) => {
                        wrong = Some(error.context(format!("line {}", at + 1)));
                        break;
                    }
                }
            }
            // What stands before a mistake is made, so that its line says where to go on.
            let made = tasks.create_many(new).await.with_context(|| {
                format!(
                    "lines {} to {}: some of their tasks have been created and some not. When the mistake is \
                     mended give all of them again: what exists is left as it is",
                    lines.0, lines.1
                )
            })?;
            let fresh = made.iter().flatten().count();
            (created, existed) = (created + fresh, existed + made.len() - fresh);
            match wrong {
                Some(wrong) if created + existed == 0 => return Err(wrong),
                Some(wrong) => return Err(wrong).context("the lines before have been created"),
                None => {}
            }
        }
        let json = json!({"status": "created", "created": created, "existed": existed});
        self.place.print(&json, format!("created {created}, {existed} existed"))?;
        Ok(ExitCode::SUCCESS)
    }

    /// Nothing for an empty line.
    fn one(&self, tasks: &Tasks, line: &str) -> Result<Option<CreateTask>> {
        if line.trim().is_empty() {
            return Ok(None);
        }
        let line: Line = serde_json::from_str(line)?;
        let mut create = self.with_options(tasks.create(line.key));
        match line.body {
            Value::Null => {}
            Value::String(text) => create = create.body(text),
            value => create = create.json(value.to_string()),
        }
        if let Some(priority) = line.priority {
            create = create.priority(priority);
        }
        if let Some(delay_ms) = line.delay_ms {
            create = create.delay(Duration::from_millis(delay_ms));
        }
        if let Some(attempts) = line.attempts {
            create = create.attempts(attempts);
        }
        Ok(Some(create))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: String,
    #[serde(default)]
    body: Value,
    priority: Option<i32>,
    delay_ms: Option<u64>,
    attempts: Option<u32>,
}
