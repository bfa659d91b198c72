//! The binary `keylatch`.

mod bench;
mod descriptors;
mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Locks come and go as small allocations: a fifth of the server's own time with that of the C library.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// One keyed lock, from one process to a cluster.
#[derive(Parser)]
#[command(name = "keylatch", version, about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a lock server.
    Serve(serve::Serve),
    /// Measure a lock server.
    Bench(bench::Bench),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Serve(serve) => serve.run(),
        Command::Bench(bench) => bench.run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("keylatch: {error:#}");
            ExitCode::FAILURE
        }
    }
}
