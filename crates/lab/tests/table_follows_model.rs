//! The table against the model: every reply, every event and everything that can be read, over
//! random scripts. `KEYLATCH_SEEDS=from..to` and `KEYLATCH_STEPS` make it longer.

use std::sync::atomic::{AtomicU64, Ordering};

use keylatch_lab::{
    compare::{Subject, run},
    generate::Profile,
};
use keylatch_table::{
    Answer, Applied, Command, Progress, Query, Reply, Settings, SnapshotWriter, Table,
};

/// A table that comes back from each restart with another hash seed, that answers refusals without
/// applying them, as a server does that writes no refusal to its log, and that is always writing a
/// snapshot of some earlier moment.
struct Restarting {
    table: Table,
    hash_seed: u64,
    snapshot: Option<InPieces>,
}

struct InPieces {
    writer: SnapshotWriter,
    written: Vec<u8>,
    /// What the whole table was when this began.
    expected: Vec<u8>,
}

impl InPieces {
    fn begin(table: &mut Table) -> InPieces {
        let expected = table.snapshot();
        InPieces { writer: SnapshotWriter::begin(table), written: Vec::new(), expected }
    }
}

/// Refusals that were answered so, over all scripts: were there none, nothing would be tested.
static REFUSED: AtomicU64 = AtomicU64::new(0);

impl Restarting {
    fn new(settings: Settings, token: u64) -> Restarting {
        Restarting { table: Table::new(settings, token, 1), hash_seed: 1, snapshot: None }
    }
}

impl Restarting {
    fn write_a_piece(&mut self) {
        let mut snapshot = self.snapshot.take().unwrap_or_else(|| InPieces::begin(&mut self.table));
        match snapshot.writer.write(&mut self.table, 1, &mut snapshot.written) {
            Progress::More => self.snapshot = Some(snapshot),
            Progress::Done => {
                assert!(snapshot.written == snapshot.expected, "a snapshot in pieces is another");
            }
            // A restart made another table.
            Progress::Overtaken => {}
        }
    }
}

impl Subject for Restarting {
    fn apply(&mut self, at: u64, command: Command) -> Applied {
        self.write_a_piece();
        if let Command::Acquire(ask) = &command
            && let Some(reply) = self.table.refusal(at, ask)
        {
            REFUSED.fetch_add(1, Ordering::Relaxed);
            // Only time passes.
            let Applied { events, .. } = self.table.apply(at, Command::Tick);
            return Applied { reply, events };
        }
        if let Command::Task(task) = &command
            && let Some(reply) = self.table.task_refusal(at, task)
        {
            let Applied { events, .. } = self.table.apply(at, Command::Tick);
            return Applied { reply: Reply::Task(reply), events };
        }
        self.table.apply(at, command)
    }

    fn query(&self, at: u64, query: &Query) -> Answer {
        self.table.query(at, query)
    }

    fn restart(&mut self) {
        self.hash_seed += 1;
        let before = self.table.state_hash();
        self.table = Table::restore(&self.table.snapshot(), self.hash_seed).expect("its own bytes");
        assert_eq!(self.table.state_hash(), before, "a restart changed the state");
    }

    fn check(&self) {
        self.table.check();
    }
}

fn from_environment() -> (std::ops::Range<u64>, usize) {
    let seeds = std::env::var("KEYLATCH_SEEDS").unwrap_or_else(|_| "0..20".into());
    let (from, to) = seeds.split_once("..").expect("KEYLATCH_SEEDS is from..to");
    let number = |text: &str| text.parse().expect("KEYLATCH_SEEDS has numbers");
    let steps = std::env::var("KEYLATCH_STEPS").unwrap_or_else(|_| "600".into());
    (number(from)..number(to), steps.parse().expect("KEYLATCH_STEPS is a number"))
}

fn agrees(profile: Profile) {
    let (seeds, steps) = from_environment();
    for seed in seeds {
        if let Err(failure) = run(seed, profile, steps, Restarting::new) {
            panic!("{failure}");
        }
    }
    assert!(REFUSED.load(Ordering::Relaxed) > 0, "no request was refused");
}

macro_rules! agrees {
    ($($name:ident: $profile:ident,)*) => {
        $(#[test]
        fn $name() {
            agrees(Profile::$profile);
        })*
    };
}

agrees! {
    agrees_on_some_of_everything: Mixed,
    agrees_on_wildcards: Wildcards,
    agrees_on_deadlocks: Deadlocks,
    agrees_on_a_hot_key: HotKey,
    agrees_on_promotions: Optimistic,
    agrees_on_keys_with_values: Keys,
    agrees_on_detached_waiters: Detached,
    agrees_on_bounds: Bounds,
    agrees_on_tasks: Tasks,
}
