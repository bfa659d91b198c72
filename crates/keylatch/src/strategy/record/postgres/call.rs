//! Changes as the arguments of `keylatch.commit`, and what it answers.

use std::collections::BTreeMap;

use tokio_postgres::Row;
use tokio_postgres::types::{FromSqlOwned, ToSql, Type};

use super::super::store::{
    Change, Committed, Done, Expect, Found, Head, Name, Record, StoreError, View, Waiter, Write,
};

const COMMIT: &str = "CALL keylatch.commit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, \
    $15, $16, $17, $18, $19, $20, $21, \
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)";

/// The arguments, named as there.
#[derive(Default)]
pub(super) struct Call<'a> {
    names: Vec<&'a Name>,
    locks: Vec<i32>,
    c_numbers: Vec<i64>,
    c_names: Vec<i32>,
    c_appends: Vec<i32>,
    c_durable: Vec<bool>,
    n_name: Vec<&'a [u8]>,
    n_expect: Vec<i64>,
    n_last: Vec<Option<i64>>,
    n_write: Vec<i16>,
    n_bytes: Vec<Option<&'a [u8]>>,
    n_keep_ms: Vec<Option<i64>>,
    n_tell: Vec<bool>,
    n_own: Vec<i64>,
    n_removes: Vec<i32>,
    r_seq: Vec<i64>,
    r_id: Vec<Vec<u8>>,
    a_id: Vec<Vec<u8>>,
    a_bytes: Vec<&'a [u8]>,
    a_live_ms: Vec<i64>,
    a_names: Vec<i32>,
    t_n: Vec<i32>,
}

impl<'a> Call<'a> {
    pub(super) fn new(changes: impl IntoIterator<Item = &'a Change>) -> Call<'a> {
        let mut call = Call::default();
        for change in changes {
            call.add(change);
        }
        call.locks = locks(call.names.iter().copied());
        call
    }

    fn add(&mut self, change: &'a Change) {
        self.c_numbers.push(change.numbers.max(1).cast_signed());
        self.c_names.push(count(change.names.len()));
        self.c_appends.push(count(change.appends.len()));
        self.c_durable.push(is_durable(change));
        let first = self.names.len();
        for (name, one) in &change.names {
            self.names.push(name);
            self.n_name.push(name.as_bytes());
            self.n_expect.push(expect(one.expect));
            self.n_last.push(one.last_seq.map(u64::cast_signed));
            let (write, bytes, keep_ms) = write(&one.head);
            self.n_write.push(write);
            self.n_bytes.push(bytes);
            self.n_keep_ms.push(keep_ms);
            self.n_tell.push(one.tell);
            self.n_own.push(one.own_up_to.unwrap_or(0).cast_signed());
            self.n_removes.push(count(one.remove.len()));
            for stand in &one.remove {
                self.r_seq.push(stand.seq.cast_signed());
                self.r_id.push(stand.id.to_string().into_bytes());
            }
        }
        for append in &change.appends {
            self.a_id.push(append.id.to_string().into_bytes());
            self.a_bytes.push(&append.bytes);
            self.a_live_ms.push(life(append.live_ms));
            // Its names are among those of the change, which are sorted. PostgreSQL counts from one.
            let at = append.to.iter().filter_map(|to| {
                let position = self.names[first..].binary_search(&to).ok()?;
                Some(count(first + position + 1))
            });
            let at: Vec<i32> = at.collect();
            self.a_names.push(count(at.len()));
            self.t_n.extend(at);
        }
    }

    pub(super) fn text() -> &'static str {
        COMMIT
    }

    pub(super) fn params(&self) -> [(&(dyn ToSql + Sync), Type); 21] {
        [
            (&self.locks, Type::INT4_ARRAY),
            (&self.c_numbers, Type::INT8_ARRAY),
            (&self.c_names, Type::INT4_ARRAY),
            (&self.c_appends, Type::INT4_ARRAY),
            (&self.c_durable, Type::BOOL_ARRAY),
            (&self.n_name, Type::BYTEA_ARRAY),
            (&self.n_expect, Type::INT8_ARRAY),
            (&self.n_last, Type::INT8_ARRAY),
            (&self.n_write, Type::INT2_ARRAY),
            (&self.n_bytes, Type::BYTEA_ARRAY),
            (&self.n_keep_ms, Type::INT8_ARRAY),
            (&self.n_tell, Type::BOOL_ARRAY),
            (&self.n_own, Type::INT8_ARRAY),
            (&self.n_removes, Type::INT4_ARRAY),
            (&self.r_seq, Type::INT8_ARRAY),
            (&self.r_id, Type::BYTEA_ARRAY),
            (&self.a_id, Type::BYTEA_ARRAY),
            (&self.a_bytes, Type::BYTEA_ARRAY),
            (&self.a_live_ms, Type::INT8_ARRAY),
            (&self.a_names, Type::INT4_ARRAY),
            (&self.t_n, Type::INT4_ARRAY),
        ]
    }

    /// What came of each change.
    pub(super) fn answer(&self, row: &Row) -> Result<Vec<Committed>, tokio_postgres::Error> {
        let now = row.try_get::<_, i64>(0)?.cast_unsigned();
        let versions: Vec<Option<i64>> = list(row, 1)?;
        let found_version: Vec<i64> = list(row, 2)?;
        let found_last: Vec<i64> = list(row, 3)?;
        let mut records = records(row)?;
        let (mut all, mut at) = (Vec::with_capacity(versions.len()), 0);
        for (version, count) in versions.iter().zip(&self.c_names) {
            let range = at..at + place(*count);
            at = range.end;
            let names = range.clone().map(|n| self.names[n].clone());
            if let Some(version) = version {
                let found = range.map(|n| Found {
                    version: found_version[n].cast_unsigned(),
                    last_seq: found_last[n].cast_unsigned(),
                });
                let (version, names) = (version.cast_unsigned(), names.zip(found).collect());
                all.push(Committed::Done(Done { version, now, names }));
            } else {
                let records = range.map(|n| records.remove(&n).unwrap_or_default());
                let names = names.zip(records).collect();
                all.push(Committed::Mismatch(View { now, names }));
            }
        }
        Ok(all)
    }
}

/// The arguments of `keylatch.commit_one`: one change of one name that concerns nobody else.
pub(super) struct CallOne<'a> {
    name: &'a Name,
    raw: &'a [u8],
    lock: i32,
    expect: i64,
    write: i16,
    bytes: Option<&'a [u8]>,
    keep_ms: Option<i64>,
    durable: bool,
}

impl<'a> CallOne<'a> {
    /// If the change is like that. Whoever does not care who waits has most likely seen somebody.
    pub(super) fn new(change: &'a Change) -> Option<CallOne<'a>> {
        let (name, one) = change.names.first_key_value()?;
        let alone = change.names.len() == 1
            && change.appends.is_empty()
            && change.numbers <= IN_ONE_DRAW
            && one.remove.is_empty()
            && !one.tell
            && one.last_seq.map_or(one.expect == Expect::Absent, |seq| seq == 0);
        let (write, bytes, keep_ms) = write(&one.head);
        (alone && write != KEEP).then(|| CallOne {
            name,
            raw: name.as_bytes(),
            lock: lock(name),
            expect: expect(one.expect),
            write,
            bytes,
            keep_ms,
            durable: is_durable(change),
        })
    }

    pub(super) fn text() -> &'static str {
        "SELECT * FROM keylatch.commit_one($1, $2, $3, $4, $5, $6, $7)"
    }

    pub(super) fn params(&self) -> [(&(dyn ToSql + Sync), Type); 7] {
        [
            (&self.lock, Type::INT4),
            (&self.raw, Type::BYTEA),
            (&self.expect, Type::INT8),
            (&self.write, Type::INT2),
            (&self.bytes, Type::BYTEA),
            (&self.keep_ms, Type::INT8),
            (&self.durable, Type::BOOL),
        ]
    }

    /// What came of it; nothing, if somebody else is concerned.
    pub(super) fn answer(&self, row: &Row) -> Result<Option<Committed>, tokio_postgres::Error> {
        let number = |at: usize| Ok(row.try_get::<_, Option<i64>>(at)?.map(i64::cast_unsigned));
        let Some(now) = number(0)? else { return Ok(None) };
        let found = number(2)?;
        if let Some(version) = number(1)? {
            let found = Found { version: found.unwrap_or_default(), last_seq: 0 };
            let names = [(self.name.clone(), found)].into();
            return Ok(Some(Committed::Done(Done { version, now, names })));
        }
        let head = match found {
            Some(version) => {
                let time = number(3)?.unwrap_or_default();
                Some(Head { version, time, bytes: row.try_get(4)?, alive: None })
            }
            None => None,
        };
        let names = [(self.name.clone(), Record { head, queue: Vec::new() })].into();
        Ok(Some(Committed::Mismatch(View { now, names })))
    }
}

/// How many numbers one draw of the sequence gives.
const IN_ONE_DRAW: u64 = 8;
const KEEP: i16 = 0;

fn expect(expect: Expect) -> i64 {
    match expect {
        Expect::Absent => -1,
        Expect::There => 0,
        Expect::Version(version) => version.cast_signed(),
    }
}

/// What to do with a head, the bytes to put, and for how long.
fn write(write: &Write) -> (i16, Option<&[u8]>, Option<i64>) {
    match write {
        Write::Keep => (KEEP, None, None),
        Write::Put(put) => (1, Some(&put.bytes), put.keep_ms.map(life)),
        Write::Delete => (2, None, None),
    }
}

/// What there is of names, by their place in `n_name`.
fn records(row: &Row) -> Result<BTreeMap<usize, Record>, tokio_postgres::Error> {
    let mut records = BTreeMap::<usize, Record>::new();
    let heads = list::<i32>(row, 4)?.into_iter().zip(list::<i64>(row, 5)?);
    let heads = heads.zip(list::<i64>(row, 6)?).zip(list::<Vec<u8>>(row, 7)?);
    for (((n, version), time), bytes) in heads {
        let (version, time) = (version.cast_unsigned(), time.cast_unsigned());
        let head = Head { version, time, bytes, alive: None };
        records.entry(place(n - 1)).or_default().head = Some(head);
    }
    let queue = list::<i32>(row, 8)?.into_iter().zip(list::<i64>(row, 9)?);
    let queue = queue.zip(list::<i64>(row, 10)?).zip(list::<i64>(row, 11)?);
    for ((((n, seq), time), until), bytes) in queue.zip(list::<Vec<u8>>(row, 12)?) {
        let (seq, time) = (seq.cast_unsigned(), time.cast_unsigned());
        let alive_until = until.cast_unsigned();
        let waiter = Waiter { seq, time, alive_until, came: None, bytes };
        records.entry(place(n - 1)).or_default().queue.push(waiter);
    }
    Ok(records)
}

/// An array; nothing is an empty one.
fn list<T: FromSqlOwned>(row: &Row, at: usize) -> Result<Vec<T>, tokio_postgres::Error> {
    Ok(row.try_get::<_, Option<Vec<T>>>(at)?.unwrap_or_default())
}

/// Whether it must survive a crash: it grants something, or lets it be held for longer. What only ends
/// something, or queues, need not: see `schema.sql`.
pub(super) fn is_durable(change: &Change) -> bool {
    change.names.values().any(|one| match &one.head {
        Write::Put(put) => put.holders.iter().any(|holder| holder.leased),
        Write::Keep | Write::Delete => false,
    })
}

/// The advisory locks of names, in the order in which everybody takes them.
pub(super) fn locks<'a>(names: impl Iterator<Item = &'a Name>) -> Vec<i32> {
    let mut locks: Vec<i32> = names.map(|name| lock(name)).collect();
    locks.sort_unstable();
    locks.dedup();
    locks
}

/// FNV-1a: every program of every version must come to the same.
pub(super) fn lock(name: &str) -> i32 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    ((hash >> 32) as u32 ^ hash as u32).cast_signed()
}

/// Numbers of PostgreSQL, which has none without a sign.
pub(super) fn place(number: i32) -> usize {
    usize::try_from(number).unwrap_or_default()
}

pub(super) fn count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// A time so long that it cannot be added to another one is as good as for ever.
pub(super) fn life(ms: u64) -> i64 {
    (ms.min(1 << 52)).cast_signed()
}

/// One who read, or was refused.
pub(super) fn nonsense(error: &tokio_postgres::Error) -> StoreError {
    StoreError { text: format!("PostgreSQL answers something else: {error}"), unknown: true }
}

/// Rows of a view: what (0 the time, 1 a head, 2 a waiter), name, numbers, bytes.
pub(super) fn view(
    names: impl IntoIterator<Item = Name>,
    rows: &[Row],
) -> Result<View, tokio_postgres::Error> {
    let number = |row: &Row, at: usize| row.try_get::<_, i64>(at).map(i64::cast_unsigned);
    let mut view = View::default();
    view.names.extend(names.into_iter().map(|name| (name, Record::default())));
    for row in rows {
        let (what, bytes) = (row.try_get::<_, i32>(0)?, row.try_get::<_, Option<Vec<u8>>>(1)?);
        // Only we write here; what is no text was written by somebody else, and is nobody's lock.
        let Ok(name) = String::from_utf8(bytes.unwrap_or_default()) else { continue };
        let (first, second, third) = (number(row, 2)?, number(row, 3)?, number(row, 4)?);
        let bytes = row.try_get::<_, Option<Vec<u8>>>(5)?.unwrap_or_default();
        match what {
            0 => view.now = first,
            1 => {
                let head = Head { version: first, time: second, bytes, alive: None };
                view.names.entry(name.into()).or_default().head = Some(head);
            }
            _ => {
                let (seq, time, alive_until) = (first, second, third);
                let waiter = Waiter { seq, time, alive_until, came: None, bytes };
                view.names.entry(name.into()).or_default().queue.push(waiter);
            }
        }
    }
    for record in view.names.values_mut() {
        record.queue.sort_by_key(|waiter| waiter.seq);
    }
    Ok(view)
}
