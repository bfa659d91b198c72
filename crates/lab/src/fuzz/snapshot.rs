//! Bytes of a snapshot. They are refused, or they make a table that is sound, has one form of bytes
//! and can be used: nothing that is done to it panics, and the hash seed shows nowhere.

use keylatch_table::{
    Acquire, Answer, Command, Detach, Entry, LocksQuery, Party, Query, Resource, Settings, Stats,
    Table, Target, Text,
    task::{Checked, Claim, Create, PutBack, TaskAction, TaskCommand},
};
use twox_hash::XxHash3_64;

use super::{LATEST, all_of};

/// How many requests, pools and tasks of a restored table are tried out.
const TRIED: usize = 12;
/// How many moments at which something ends are visited one by one.
const ENDS: usize = 24;

/// Bytes that are refused, or make a table that can be used, in each of their readings.
pub fn snapshot(data: &[u8]) {
    for bytes in readings(data) {
        restore_and_use(&bytes);
    }
}

/// The bytes as they are; with a checksum that matches, because otherwise nothing would get past it;
/// and as what follows the settings, which are most of a small snapshot and would take most of the
/// fuzzer's changes.
pub fn readings(data: &[u8]) -> [Vec<u8>; 3] {
    let without_checksum = &data[..data.len().saturating_sub(8)];
    let after_settings = [&head()[..], data].concat();
    [data.to_vec(), with_checksum(without_checksum), with_checksum(&after_settings)]
}

fn with_checksum(content: &[u8]) -> Vec<u8> {
    [content, &XxHash3_64::oneshot(content).to_le_bytes()].concat()
}

/// A snapshot's bytes up to and with the settings, which are the usual ones.
pub fn head() -> Vec<u8> {
    let mut bytes = Table::new(Settings::default(), 0, 1).snapshot();
    let settings = Command::Settings(Box::default()).encode();
    let settings = &settings[1..]; // the command's number
    let at = bytes.windows(settings.len()).position(|window| window == settings);
    bytes.truncate(at.expect("settings have one form") + settings.len());
    bytes
}

fn restore_and_use(bytes: &[u8]) {
    let Ok(table) = Table::restore(bytes, 1) else { return };
    table.check();
    assert_one_snapshot(bytes, &table);
    let Stats { now, token, seq, .. } = stats(&table);
    if now.max(token).max(seq) >= LATEST {
        return; // sound, but too late to do anything with it
    }
    let twin = Table::restore(bytes, 2).expect("restored before");
    Twins { at: now, tables: [table.clone(), twin.clone()] }.let_time_pass();
    Twins { at: now, tables: [table, twin] }.use_everything();
}

/// A table restored from these bytes writes exactly these bytes again, under any hash seed.
pub fn assert_one_snapshot(bytes: &[u8], table: &Table) {
    assert_eq!(table.snapshot(), bytes, "two snapshots of one table");
    let again = Table::restore(bytes, 3).expect("restored before");
    assert_eq!(again.snapshot(), bytes, "reading back changes the table");
    let checksum = bytes.last_chunk().map(|checksum| u64::from_le_bytes(*checksum));
    assert_eq!(Some(again.state_hash()), checksum, "the checksum is not the state hash");
}

fn stats(table: &Table) -> Stats {
    match table.query(0, &Query::Stats) {
        Answer::Stats(stats) => stats,
        other => unreachable!("{other:?}"),
    }
}

/// Two tables of one snapshot that differ in their hash seeds.
struct Twins {
    at: u64,
    tables: [Table; 2],
}

impl Twins {
    fn apply(&mut self, command: &Command) {
        let [one, other] =
            self.tables.each_mut().map(|table| table.apply(self.at, command.clone()));
        assert_eq!(one, other, "the hash seed shows at {command:?}");
    }

    fn query(&self, query: &Query) -> Answer {
        let [one, other] = self.tables.each_ref().map(|table| table.query(self.at, query));
        assert_eq!(one, other, "the hash seed shows at {query:?}");
        one
    }

    /// Visits what ends, then goes far ahead.
    fn let_time_pass(mut self) {
        for _ in 0..ENDS {
            let next = self.tables[0].next_deadline().filter(|next| *next < LATEST);
            let Some(next) = next else { break };
            self.at = next;
            self.apply(&Command::Tick);
        }
        self.at += 1 << 40;
        self.finish();
    }

    fn use_everything(mut self) {
        self.at += 1;
        let Answer::Entries(entries) =
            self.query(&Query::Locks(LocksQuery { waiters: true, ..LocksQuery::default() }))
        else {
            unreachable!("locks are entries")
        };
        for (at, entry) in entries.iter().take(TRIED).enumerate() {
            self.use_request(at, entry);
        }
        let Answer::Pools(pools) = self.query(&Query::Pools) else { unreachable!() };
        for pool in pools.iter().take(TRIED) {
            self.use_pool(&pool.pool);
        }
        self.apply(&Command::Detach(Detach { ids: None, grace_ms: 30 }));
        for entry in entries.iter().skip(1).step_by(2) {
            self.apply(&Command::Release(Target::Id(entry.id.clone())));
        }
        self.let_time_pass();
    }

    /// Others ask for what it has; then it does all that a holder or a waiter can do.
    fn use_request(&mut self, at: usize, entry: &Entry) {
        let ask = |id: String, resource: &Resource| Acquire {
            wait_ms: 40,
            detect: true,
            ..Acquire::new(id.as_str().into(), resource.clone(), Party::owner(&entry.owner))
        };
        self.apply(&Command::Acquire(ask(format!("fuzz {at}"), &entry.resource)));
        let target = || Target::Id(entry.id.clone());
        self.apply(&Command::Renew(target(), None));
        self.apply(&Command::Promote(target()));
        self.apply(&Command::Cancel(target()));
        self.apply(&Command::Acquire(ask(entry.id.to_string(), &entry.resource)));
        self.query(&Query::Request(entry.id.clone()));
        if entry.resource.arity() == 0 {
            self.query(&Query::Key(entry.resource.clone()));
        }
        if at.is_multiple_of(3) {
            self.apply(&Command::Revoke(entry.token, "fuzz".into()));
        }
    }

    fn use_pool(&mut self, pool: &Text) {
        let Answer::Tasks(tasks) = self.query(&Query::Tasks(all_of(pool))) else { unreachable!() };
        let claim = |key: Option<&Text>, wait_ms| {
            let (key, party) = (key.cloned(), Party::client("fuzz"));
            TaskAction::Claim(Claim { key, party, wait_ms, lease_ms: 20 })
        };
        self.task(pool, claim(None, 0));
        self.task(pool, claim(None, 50));
        for (at, task) in tasks.iter().take(TRIED).enumerate() {
            self.task(pool, claim(Some(&task.key), 50));
            let Answer::Task(Some(now)) = self.query(&Query::Task(pool.clone(), task.key.clone()))
            else {
                continue;
            };
            let checked = Checked { key: task.key.clone(), version: now.version };
            self.task(
                pool,
                match at % 4 {
                    0 => TaskAction::Update(checked, None, None),
                    1 => TaskAction::Finish(checked),
                    2 => TaskAction::PutBack(
                        checked,
                        PutBack { delay_ms: 10, error: Some("no".into()) },
                    ),
                    _ => TaskAction::Delete(task.key.clone(), None),
                },
            );
        }
        self.task(pool, TaskAction::Retry(None));
        let key = "fuzz".into();
        self.task(
            pool,
            TaskAction::Create(Create {
                key,
                body: None,
                priority: 1,
                delay_ms: 5,
                attempts: None,
            }),
        );
    }

    fn task(&mut self, pool: &Text, action: TaskAction) {
        let id = format!("fuzz {}", stats(&self.tables[0]).token);
        let id = id.as_str().into();
        self.apply(&Command::Task(TaskCommand { id, pool: pool.clone(), action }));
    }

    /// Whatever was done, the tables are equal and can be written down and read back.
    fn finish(mut self) {
        self.apply(&Command::Tick);
        let [one, other] = self.tables;
        one.check();
        assert_eq!(one.snapshot(), other.snapshot(), "the hash seed shows in the bytes");
        assert_one_snapshot(&one.snapshot(), &one);
    }
}
