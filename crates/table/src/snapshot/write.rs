//! Writing a snapshot, at once or in pieces while the table goes on.
//!
//! What can be long (requests, parties, tasks) is kept by its slabs as it was when the snapshot
//! began, and is walked from there. The rest is bounded and is written when the snapshot begins.

use std::collections::HashMap;
use std::hash::Hasher;

use twox_hash::XxHash3_64;

use super::{MAGIC, VERSION, write_time};
use crate::board::also_slot;
use crate::board::ended::{End, EndedId};
use crate::board::slab::{NONE, Slab};
use crate::codec::Writer;
use crate::command_bytes::{write_extras, write_party, write_settings};
use crate::task::snapshot::{TaskWalk, write_task};
use crate::{Cause, Table, Text};

impl Table {
    /// The table as bytes.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut writer = SnapshotWriter::new(self, None);
        let mut bytes = Vec::new();
        let progress = writer.piece(self, usize::MAX, &mut bytes);
        assert_eq!(progress, Progress::Done, "the whole table at once");
        bytes
    }
}

/// Writes a snapshot in pieces: the table as it is when this begins, though commands are applied in
/// between. At most one at a time; a later one takes the place of an earlier one.
pub struct SnapshotWriter {
    /// The number of the moment; none for the present.
    moment: Option<u64>,
    phase: Phase,
    /// How many requests there are, and the first in the order of arrival.
    requests: (usize, u32),
    numbers: Numbers,
    /// The parties met so far.
    parties: Writer,
    /// The ended ids.
    ended: Writer,
    tasks: TaskWalk,
    checksum: XxHash3_64,
}

/// How far a snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is more to write.
    More,
    /// That was the last piece.
    Done,
    /// Another snapshot of this table has begun since, or it is another table: this one is void.
    Overtaken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Head,
    /// Each distinct party once, in the order in which the requests first name it.
    Parties(u32),
    Requests(u32),
    Tasks,
    End,
}

impl SnapshotWriter {
    /// Begins a snapshot of the table as it is now.
    pub fn begin(table: &mut Table) -> SnapshotWriter {
        table.moment += 1;
        table.board.keep_past();
        table.tasks.keep_past();
        SnapshotWriter::new(table, Some(table.moment))
    }

    fn new(table: &Table, moment: Option<u64>) -> SnapshotWriter {
        let mut ended = Writer::default();
        let list: Vec<_> = table.board.ended.iter().collect();
        ended.list(list.into_iter(), |to, (at, ended)| write_ended(to, at, ended));
        SnapshotWriter {
            moment,
            phase: Phase::Head,
            requests: (table.board.requests.len(), table.board.first_arrival()),
            numbers: Numbers::default(),
            parties: head(table),
            ended,
            tasks: TaskWalk::new(&table.tasks),
            checksum: XxHash3_64::new(),
        }
    }

    /// Writes the next piece: about so many records.
    pub fn write(&mut self, table: &mut Table, records: usize, out: &mut Vec<u8>) -> Progress {
        if self.moment != Some(table.moment) || !table.board.has_past() {
            return Progress::Overtaken;
        }
        let progress = self.piece(table, records, out);
        if progress == Progress::Done {
            table.board.drop_past();
            table.tasks.drop_past();
        }
        progress
    }

    fn piece(&mut self, table: &Table, records: usize, out: &mut Vec<u8>) -> Progress {
        let mut to = Writer { bytes: std::mem::take(out) };
        let start = to.bytes.len();
        let mut left = records.max(1);
        while left > 0 && self.phase != Phase::End {
            left -= 1;
            self.step(table, &mut to);
        }
        *out = to.bytes;
        self.checksum.write(&out[start..]);
        if self.phase != Phase::End {
            return Progress::More;
        }
        out.extend_from_slice(&self.checksum.finish().to_le_bytes());
        Progress::Done
    }

    /// One record.
    fn step(&mut self, table: &Table, to: &mut Writer) {
        self.phase = match self.phase {
            Phase::Head => {
                to.bytes.append(&mut self.parties.bytes);
                Phase::Parties(self.requests.1)
            }
            Phase::Parties(NONE) => {
                to.u64(self.numbers.0.len() as u64);
                to.bytes.append(&mut self.parties.bytes);
                to.u64(self.requests.0 as u64);
                Phase::Requests(self.requests.1)
            }
            Phase::Parties(at) => {
                let request = self.slot(&table.board.requests, at);
                let known = self.numbers.0.len() as u64;
                if self.numbers.of(request.party) == known {
                    let node = self.slot(&table.board.parties.parties, request.party);
                    write_party(&mut self.parties, &node.party);
                }
                Phase::Parties(request.next)
            }
            Phase::Requests(NONE) => {
                to.bytes.append(&mut self.ended.bytes);
                Phase::Tasks
            }
            Phase::Requests(at) => Phase::Requests(self.write_request(table, at, to)),
            Phase::Tasks => match self.tasks.next(to) {
                Some(at) => {
                    write_task(to, self.slot(&table.tasks.tasks, at));
                    Phase::Tasks
                }
                None => Phase::End,
            },
            Phase::End => Phase::End,
        };
    }

    /// A slot as it was.
    fn slot<'a, T: Clone>(&self, slab: &'a Slab<T>, at: u32) -> &'a T {
        match self.moment {
            Some(_) => slab.past(at),
            None => &slab[at],
        }
    }

    /// Returns the next request.
    fn write_request(&mut self, table: &Table, at: u32, to: &mut Writer) -> u32 {
        let request = self.slot(&table.board.requests, at);
        to.id(&request.id);
        to.u64(request.seq);
        to.u64(request.token);
        to.u64(request.since);
        write_time(to, request.deadline);
        to.u32(request.waited_ms);
        to.u32(request.lease_ms);
        to.u64(self.numbers.of(request.party));
        to.bool(request.detect);
        to.bool(request.detached);
        let also = request.more.as_ref().map_or(&[][..], |more| &more.also);
        to.u64(1 + also.len() as u64);
        let also = also.iter().map(|part| self.slot(&table.board.also, also_slot(*part)));
        for part in std::iter::once(&request.first).chain(also) {
            to.resource(&self.slot(&table.board.resources.nodes, part.resource).key);
            to.mode(part.mode);
            to.mode(part.asked);
        }
        write_extras(to, &request.extra);
        to.u64(request.more.as_ref().map_or(0, |more| more.wait_ms));
        if request.waiting() {
            let wait = request.wait();
            to.u64(wait.asked);
            to.u64(wait.end);
            to.option(wait.grace, |to, (grace_ms, end)| {
                to.u64(grace_ms);
                to.u64(end);
            });
        }
        request.next
    }
}

fn head(table: &Table) -> Writer {
    let mut to = Writer::default();
    to.bytes.extend_from_slice(MAGIC);
    to.u32(VERSION);
    to.u32(table.rules);
    write_settings(&mut to, &table.settings);
    to.u64(table.now);
    to.u64(table.token);
    to.u64(table.seq);
    to
}

/// Numbers for parties in the order in which they are first met.
#[derive(Default)]
struct Numbers(HashMap<u32, u64>);

impl Numbers {
    fn of(&mut self, party: u32) -> u64 {
        let next = self.0.len() as u64;
        *self.0.entry(party).or_insert(next)
    }
}

fn write_ended(to: &mut Writer, at: u64, ended: &EndedId) {
    to.id(&ended.id);
    to.u64(at);
    let (code, by): (u8, Option<&Text>) = match &ended.end {
        End::Grant(Cause::Released, by) => (0, by.as_deref()),
        End::Grant(Cause::Expired, by) => (1, by.as_deref()),
        End::Grant(Cause::Superseded, by) => (2, by.as_deref()),
        End::Grant(Cause::Revoked, by) => (3, by.as_deref()),
        End::Released => (4, None),
        End::Cancelled => (5, None),
    };
    to.u8(code);
    to.option(by, |to, by| to.text(by));
}
