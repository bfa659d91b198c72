//! `keylatch bench`: locks are taken and released as fast as a server lets us, or at a given rate.
//!
//! `plan` is what was asked for, `speak` the protocols, `keys` which key is next and who holds it,
//! `load` the loop over all connections (`sockets`), `timers` what is due later, `report` what came of it.

mod keys;
mod load;
mod plan;
mod report;
mod sockets;
mod speak;
mod timers;

use std::io::IsTerminal;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use plan::Plan;

const EXAMPLES: &str = "\
Examples:
  keylatch bench                                   64 connections at a local server, 10 seconds
  keylatch bench --keys shared:8 --seconds 5       all of them want the same 8 keys
  keylatch bench --rate 20000 -o json              latency at a fixed load, for a script
  keylatch bench redis://127.0.0.1:6379            the same with SET NX PX and a release script
  keylatch bench 127.0.0.1:3721 --protocol enqueue

Without --rate each connection asks again as soon as it has its answer (closed loop). With it, locks
are asked for at fixed times whether the server keeps up or not, and latency counts from those times,
so that a stall shows in full (open loop).

The exit code is 1 if two connections ever held one key, or if tokens fell back.";

/// Measure a lock server: acquire and release, over and over.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Bench {
    /// One server: HOST:PORT, or a URL: keylatch://, redis:// or enqueue:// HOST:PORT. Of a cluster, any member.
    /// [default: 127.0.0.1 with the port of the protocol]
    address: Option<String>,
    /// What the server speaks. [default: resp, or what the URL says]
    #[arg(long, value_enum)]
    protocol: Option<Protocol>,
    /// How many connections, each with one request at a time.
    #[arg(long, short = 'c', value_name = "N", default_value_t = 64)]
    connections: usize,
    /// `own` or `own:N`: each connection has one key, or N in turn. `shared:N`: all share N keys.
    #[arg(long, value_name = "KEYS", default_value = "own")]
    keys: plan::Keys,
    /// How long to measure. [default: 10]
    #[arg(long, value_name = "S", conflicts_with = "pairs")]
    seconds: Option<f64>,
    /// Stop after so many pairs of acquire and release instead.
    #[arg(long, value_name = "N")]
    pairs: Option<u64>,
    /// Seconds that do not count, first. [default: 1, with --pairs 0]
    #[arg(long, value_name = "S")]
    warm_up: Option<f64>,
    /// Locks asked for a second, on all connections together (open loop).
    #[arg(long, value_name = "R")]
    rate: Option<f64>,
    /// How long each lock is held.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    hold_ms: u64,
    /// The lease of each lock.
    #[arg(long, value_name = "MS", default_value_t = 30_000)]
    lease_ms: u64,
    /// How long a request waits at the server; Redis has no waiting.
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    wait_ms: u64,
    /// How long until a refused SET is tried again (redis).
    #[arg(long, value_name = "MS", default_value_t = 1.0)]
    poll: f64,
    /// How to show the result.
    #[arg(long, short = 'o', value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Show progress also where standard error is not a terminal.
    #[arg(long)]
    progress: bool,
}

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// LOCK and UNLOCK.
    Resp,
    /// SET NX PX, and a script that deletes only its own value.
    Redis,
    /// The enqueue protocol, on connections that stay open.
    Enqueue,
}

/// How the result is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

impl Bench {
    pub(crate) fn run(self) -> Result<()> {
        let plan = Plan::new(&self)?;
        let result = load::run(&plan)?;
        match self.output {
            Output::Table => print!("{}", result.table()),
            Output::Json => println!("{}", serde_json::to_string_pretty(&result)?),
        }
        if result.double_grants > 0 {
            bail!("{} times two connections held one key at once", result.double_grants);
        }
        if result.token_falls > 0 {
            bail!("{} times a token was not above the one before on its key", result.token_falls);
        }
        Ok(())
    }

    fn shows_progress(&self) -> bool {
        self.progress || std::io::stderr().is_terminal()
    }
}
