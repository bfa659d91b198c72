//! The first example of the README, which `tests/readme.rs` compares with this file.
//!
//! `cargo run -p keylatch --example first`

use std::time::Duration;

use keylatch::{ANY, Locks, resource};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Where KEYLATCH_URL says, or in a file of yours: nothing has to run for that.
    let locks = Locks::open().await?;

    let guard = locks.lock("user:42").wait(Duration::from_secs(5)).await?;
    println!("mine, with token {}", guard.token()); // renewed until it is released
    guard.release().await;

    // Around a task, which may fail or panic; all computers at once.
    let computers = resource("product", ["Computer".into(), ANY]);
    let counted = locks.run(computers, async || 7).await?;
    println!("{counted} computers, and nobody changed one meanwhile");
    Ok(())
}
