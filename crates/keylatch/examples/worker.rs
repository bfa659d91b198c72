//! A worker: claims tasks, several at a time, and tries again what failed.
//!
//! It works in memory on a few tasks that it makes itself, and ends when they are done. With
//! `KEYLATCH_URL` set it works where that says, beside all others that do, and goes on until it is stopped:
//! what it is at then is free again when its lease ends, and done by another one.
//!
//! `cargo run -p keylatch --example worker`

use std::time::Duration;

use keylatch::{ChangeError, Claim, Locks, Tasks};

const AT_A_TIME: usize = 3;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("KEYLATCH_URL");
    let locks = Locks::connect(url.as_deref().unwrap_or("memory:")).await?;
    let pages = locks.tasks("pages");
    // To make them twice does no harm.
    let new = (1..=9).map(|page| pages.create(format!("page-{page}")).body(page.to_string()));
    pages.create_many(new).await?;

    // Where others may make more it waits for them; alone there will be none.
    let wait = if url.is_ok() { Duration::from_secs(3_600) } else { Duration::from_millis(500) };
    let workers = (1..=AT_A_TIME).map(|number| tokio::spawn(work(pages.clone(), number, wait)));
    for worker in workers.collect::<Vec<_>>() {
        worker.await?;
    }
    println!("{:?}", pages.counts().await?);
    Ok(())
}

async fn work(pages: Tasks, number: usize, wait: Duration) {
    loop {
        let claim = pages.claim().owner(format!("worker {number}")).wait(wait).await;
        let claim = match claim {
            Ok(Some(claim)) => claim,
            Ok(None) => return,
            Err(error) => {
                eprintln!("worker {number}: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        if let Err(error) = attend(claim, number).await {
            // Somebody else has it, or nobody answers: in both cases it is not lost.
            eprintln!("worker {number}: {error}");
        }
    }
}

async fn attend(claim: Claim, number: usize) -> Result<(), ChangeError> {
    let key = claim.key().clone();
    let fetched = tokio::select! {
        fetched = fetch(&claim) => fetched,
        lost = claim.lost() => {
            // From now on it may be somebody else's: stop.
            eprintln!("worker {number}: {key}: {lost}");
            return Ok(());
        }
    };
    match fetched {
        Ok(size) => {
            claim.done().await?;
            println!("worker {number}: {key} has {size} bytes");
        }
        Err(error) => {
            let delay = Duration::from_millis(100 << claim.attempts().min(8));
            let back = claim.put_back().delay(delay).error(error).await?;
            println!(
                "worker {number}: {key}: {error}; {} after {}",
                back.state.word(),
                back.attempts
            );
        }
    }
    Ok(())
}

/// What is to be done. Whatever it writes to should be given `claim.token()`, and refuse older ones.
async fn fetch(claim: &Claim) -> Result<usize, &'static str> {
    let page: u64 = claim.text().and_then(|text| text.parse().ok()).ok_or("not a number")?;
    tokio::time::sleep(Duration::from_millis(50)).await;
    match page {
        4 if claim.attempts() == 0 => Err("no answer"),
        page => Ok(page as usize * 1_000),
    }
}
