//! Why a lock alone is not enough, and what a fence does about it.
//!
//! Two workers take one seat each from what is left. The first is paused in the middle (a long
//! garbage collection, a suspended machine) until its lease is over, so the second gets the lock
//! and takes its seat; then the first goes on and writes what it had worked out before. Without a
//! fence its write wipes out the second one's; with it, the store refuses the older token and the
//! first one begins again.
//!
//! `cargo run -p keylatch --example fence`

use std::time::Duration;

use keylatch::{Fence, Locks, Stale};

/// What the workers write to. It knows nothing of locks.
#[derive(Default)]
struct Store {
    seats: u32,
    fence: Fence,
}

impl Store {
    fn write(&mut self, seats: u32) {
        self.seats = seats;
    }

    /// The same, if nobody with a newer token has been here.
    fn write_fenced(&mut self, seats: u32, token: u64) -> Result<(), Stale> {
        self.fence.check(token)?;
        self.seats = seats;
        Ok(())
    }
}

const LEASE: Duration = Duration::from_millis(200);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = Locks::connect("memory:").await?;

    let left = without_a_fence(&locks).await?;
    println!("without a fence: two seats sold of ten, and {left} are left");
    assert_eq!(left, 9, "one update was lost");

    let left = with_a_fence(&locks).await?;
    println!("with a fence: two seats sold of ten, and {left} are left");
    assert_eq!(left, 8, "none was lost");
    Ok(())
}

async fn without_a_fence(locks: &Locks) -> Result<u32, keylatch::LockError> {
    let mut store = Store { seats: 10, ..Store::default() };
    let first = locks.lock("seats").lease(LEASE).no_renew().await?;
    let seen = store.seats;
    // Here the first one is paused; it is not renewed meanwhile, and somebody else gets the lock.
    let second = locks.lock("seats").await?;
    store.write(store.seats - 1);
    second.release().await;
    // The first one goes on, and does not look whether it still holds the lock.
    store.write(seen - 1);
    assert!(first.is_lost().is_some(), "it could have known, but a pause can come after the look");
    Ok(store.seats)
}

async fn with_a_fence(locks: &Locks) -> Result<u32, Box<dyn std::error::Error>> {
    let mut store = Store { seats: 10, ..Store::default() };
    let first = locks.lock("seats").lease(LEASE).no_renew().await?;
    let seen = store.seats;
    store.write_fenced(seen, first.token())?; // it may write as long as nobody newer has
    let second = locks.lock("seats").await?;
    store.write_fenced(store.seats - 1, second.token())?;
    second.release().await;
    match store.write_fenced(seen - 1, first.token()) {
        Ok(()) => panic!("an older token was let in"),
        Err(stale) => println!("refused: {stale}"),
    }
    // So it does what anyone does whose lock is lost: it begins again.
    let again = locks.lock("seats").await?;
    store.write_fenced(store.seats - 1, again.token())?;
    again.release().await;
    Ok(store.seats)
}
