//! A lock, a second request that waits for it, and the hand-over:
//! `cargo run -p keylatch-table --example first_lock`.

use keylatch_table::{Acquire, Command, Event, Party, Reply, Resource, Settings, Table, Target};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The driver gives the time, the last token and a hash seed; the table itself has none of them.
    let mut table = Table::new(Settings::default(), 0, 42);
    let user = Resource::plain("user:42")?;

    let ann = Acquire::new("ann-1".into(), user.clone(), Party::owner("ann"));
    match table.apply(1_000, Command::Acquire(ann)).reply {
        Reply::Granted(grant) => println!("ann has user:42 under token {}", grant.token),
        other => return Err(format!("not granted: {other:?}").into()),
    }
    let bob = Acquire::new("bob-1".into(), user, Party::owner("bob"));
    match table.apply(1_200, Command::Acquire(Acquire { wait_ms: 5_000, ..bob })).reply {
        Reply::Waiting(on) => println!("bob waits for {}, held for {} ms", on.owner, on.held_ms),
        other => return Err(format!("not queued: {other:?}").into()),
    }
    let released = table.apply(1_500, Command::Release(Target::Id("ann-1".into())));
    for event in released.events {
        if let Event::Granted { grant, .. } = event {
            let (token, waited) = (grant.token, grant.waited_ms);
            println!("ann released; bob has it under token {token}, after {waited} ms");
        }
    }
    Ok(())
}
