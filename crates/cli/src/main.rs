//! The binary `keylatch`.

mod bench;
mod cluster;
mod descriptors;
mod failure;
mod locks;
mod place;
mod run;
mod serve;
mod signals;
mod table;
mod task;
mod telemetry;
mod time;
mod token;
mod wanted;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  keylatch serve --ephemeral                     a lock server on this machine
  export KEYLATCH_URL=keylatch://localhost:5625
  keylatch run backup -- ./backup.sh             one at a time, wherever it runs
  keylatch ls --waiters                          who holds, who waits
  keylatch task work emails -- ./send.sh         each task of a pool by one worker";

/// One keyed lock, from one process to a cluster.
#[derive(Parser)]
#[command(name = "keylatch", version, about, arg_required_else_help = true, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a lock server.
    Serve(Box<serve::Serve>),
    Run(run::Run),
    Lock(locks::Lock),
    Unlock(locks::Unlock),
    Renew(locks::Renew),
    Promote(locks::Promote),
    Ls(locks::Ls),
    Watch(watch::Watch),
    Revoke(locks::Revoke),
    Task(task::Task),
    Token(token::Token),
    Cluster(cluster::Cluster),
    /// Measure a lock server.
    Bench(bench::Bench),
    /// Print completions for a shell.
    Completions {
        /// Which one.
        shell: clap_complete::Shell,
    },
}

impl Command {
    fn is_json(&self) -> bool {
        match self {
            Command::Token(token) => token.is_json(),
            Command::Cluster(cluster) => cluster.is_json(),
            other => other.place().is_some_and(place::Place::is_json),
        }
    }

    /// Where the locks are, if it is one over a URL.
    fn place(&self) -> Option<&place::Place> {
        Some(match self {
            Command::Serve(_)
            | Command::Bench(_)
            | Command::Token(_)
            | Command::Cluster(_)
            | Command::Completions { .. } => return None,
            Command::Run(run) => &run.place,
            Command::Lock(lock) => &lock.place,
            Command::Unlock(unlock) => &unlock.place,
            Command::Renew(renew) => &renew.place,
            Command::Promote(promote) => &promote.place,
            Command::Ls(ls) => &ls.place,
            Command::Watch(watch) => &watch.place,
            Command::Revoke(revoke) => &revoke.place,
            Command::Task(task) => task.place(),
        })
    }
}

fn main() -> ExitCode {
    let command = match Arguments::try_parse() {
        Ok(arguments) => arguments.command,
        Err(error) => return misused(&error),
    };
    let is_json = command.is_json();
    let outcome = match command {
        Command::Serve(serve) => serve.run().map(|()| ExitCode::SUCCESS),
        Command::Bench(bench) => bench.run().map(|()| ExitCode::SUCCESS),
        Command::Run(run) => run.run(),
        Command::Lock(lock) => lock.run(),
        Command::Unlock(unlock) => unlock.run(),
        Command::Renew(renew) => renew.run(),
        Command::Promote(promote) => promote.run(),
        Command::Ls(ls) => ls.run(),
        Command::Watch(watch) => watch.run(),
        Command::Revoke(revoke) => revoke.run(),
        Command::Task(task) => task.run(),
        Command::Token(token) => token.run(),
        Command::Cluster(cluster) => cluster.run(),
        Command::Completions { shell } => {
            let mut command = Arguments::command();
            clap_complete::generate(shell, &mut command, "keylatch", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
    };
    outcome.unwrap_or_else(|error| {
        // Whoever read the output has had enough (`keylatch ls | head`): end as other programs do.
        let cause = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        if cause == Some(std::io::ErrorKind::BrokenPipe) {
            return ExitCode::from(signals::code(signal_hook::consts::SIGPIPE));
        }
        failure::tell(is_json, &error);
        ExitCode::FAILURE
    })
}

/// A mistake on the command line, or a question about it.
fn misused(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && failure::wants_json(std::env::args_os().skip(1)) {
        failure::tell_misuse(&error.to_string());
    } else {
        // If nobody reads it, the exit code is left.
        drop(error.print());
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}
