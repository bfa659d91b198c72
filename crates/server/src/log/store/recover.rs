//! From files to state: reads every segment in order, replays its batches, and tells a torn tail
//! from damage. [`read`] never writes; [`repair`] does what it found necessary.
//!
//! | found | means | done |
//! |---|---|---|
//! | zeros behind the last batch | the end | nothing |
//! | anything else there, in the last file, nothing written later behind it | torn tail: the crash came before the fdatasync returned, so nobody was told that it is stored | overwritten with zeros |
//! | the same with a later batch or a later file behind it | damage | refused |
//! | the last file without one good batch, its number next in turn | torn creation | removed |
//! | a file or number missing, a bad header, records that contradict each other | damage | refused |

use std::collections::VecDeque;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use super::batch::{self, Record};
use super::disk::Disk;
use super::error::StoreError;
use super::segment::{self, Segment};

/// A torn tail that was cut when the log was opened. Not an error: it was never acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) file: PathBuf,
    /// Where the bytes began that were cut.
    pub(crate) offset: u64,
    /// How many there were, up to the last that was not zero.
    pub(crate) bytes: u64,
    pub(crate) why: &'static str,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cut { file, offset, bytes, why } = self;
        write!(f, "{bytes} bytes cut from {} at byte {offset}: {why}", file.display())
    }
}

/// What the records add up to. The running store keeps the same, so that a new segment can begin
/// with it.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The index of the last entry, or `purged` if there is none. Never below `purged`.
    pub(super) last: u64,
    pub(super) purged: u64,
    pub(super) purged_meta: Vec<u8>,
    pub(super) meta: Vec<u8>,
}

/// The result of reading.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) state: State,
    /// Contiguous; the first follows `state.purged`, the last is `state.last`.
    pub(super) entries: VecDeque<(u64, Vec<u8>)>,
    pub(super) segments: VecDeque<Segment>,
    /// The sequence number of the next batch.
    pub(super) sequence: u64,
    pub(super) fault: Option<Fault>,
    /// Entries up to here may be missing because their segments were deleted; by the end they must
    /// have been purged. Never above `state.last`.
    floor: u64,
}

/// What has to be changed before the log can be used.
#[derive(Debug)]
pub(super) enum Fault {
    /// Garbage at the end of the last segment.
    Tail(Cut),
    /// A last segment without content.
    Creation(Cut),
}

impl Fault {
    pub(super) fn cut(&self) -> &Cut {
        let (Fault::Tail(cut) | Fault::Creation(cut)) = self;
        cut
    }
}

fn damaged<T>(file: &Path, offset: usize, what: impl Into<String>) -> Result<T, StoreError> {
    Err(StoreError::Damaged { file: file.into(), offset: offset as u64, what: what.into() })
}

/// Reads the log in `dir` and changes nothing.
pub(super) fn read(dir: &Path) -> Result<Found, StoreError> {
    let mut files = segment::list(dir).map_err(StoreError::io("list", dir))?;
    let stillborn = pop_stillborn(&mut files)?;
    let mut found = Found { sequence: 1, ..Found::default() };
    for (at, (first, path)) in files.iter().enumerate() {
        let is_last = at + 1 == files.len() && stillborn.is_none();
        found.segment(*first, path, is_last)?;
    }
    if let Some((first, cut)) = stillborn {
        // Segments are created after everything before them is durable. If the numbers do not
        // meet, more than this file is missing; in particular a sole segment that is not the first
        // ever was once relied upon, or its predecessors would still be there.
        if first != found.sequence {
            return damaged(&cut.file, 0, missing(found.sequence, first));
        }
        found.fault = Some(Fault::Creation(cut));
    }
    if found.floor > found.state.purged
        && let Some((_, path)) = files.first()
    {
        let (from, to) = (found.state.purged + 1, found.floor);
        let what = format!("entries {from} to {to} are missing: they stood in older segments");
        return damaged(path, 0, what);
    }
    Ok(found)
}

fn missing(expected: u64, first: u64) -> String {
    format!("the segment starts with batch {first}, but batch {expected} should follow here")
}

/// Takes the last file off the list if there is no batch in it.
fn pop_stillborn(files: &mut Vec<(u64, PathBuf)>) -> Result<Option<(u64, Cut)>, StoreError> {
    let Some((first, path)) = files.last() else { return Ok(None) };
    let bytes = load(path)?;
    segment::read_header(path, &bytes)?;
    let behind = bytes.get(segment::HEADER..).unwrap_or_default();
    if batch::follower(behind, *first).is_some() {
        return Ok(None);
    }
    let why = "a new segment was not finished";
    let cut = Cut { file: path.clone(), offset: 0, bytes: significant(&bytes) as u64, why };
    let first = *first;
    files.pop();
    Ok(Some((first, cut)))
}

fn load(path: &Path) -> Result<Vec<u8>, StoreError> {
    fs::read(path).map_err(StoreError::io("read", path))
}

/// The length without the zeros at the end.
fn significant(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1)
}

impl Found {
    fn segment(&mut self, first: u64, path: &Path, is_last: bool) -> Result<(), StoreError> {
        let bytes = load(path)?;
        match segment::read_header(path, &bytes)? {
            None => return damaged(path, 0, "the header of the segment is not readable"),
            Some(inside) if inside != first => {
                return damaged(path, 8, format!("it starts with batch {inside}: wrong file name"));
            }
            Some(_) => {}
        }
        let oldest = self.segments.is_empty();
        if oldest {
            self.sequence = first;
        } else if first != self.sequence {
            return damaged(path, 0, missing(self.sequence, first));
        }
        self.segments.push_back(Segment {
            path: path.into(),
            tail: segment::HEADER as u64,
            capacity: bytes.len() as u64,
            highest: 0,
        });
        let written = significant(&bytes);
        let mut at = segment::HEADER;
        while at < written {
            match batch::read(&bytes[at..]) {
                Ok(batch) if batch.sequence != self.sequence => {
                    let (is, should) = (batch.sequence, self.sequence);
                    return damaged(path, at, format!("batch {is} stands where {should} belongs"));
                }
                Ok(batch) => {
                    let start = (at == segment::HEADER).then_some(oldest);
                    self.apply(start, batch.payload).or_else(|what| damaged(path, at, what))?;
                    self.sequence += 1;
                    at += batch.size();
                }
                Err(why) => {
                    self.check_torn(path, &bytes, at, is_last, why)?;
                    break;
                }
            }
        }
        self.segments.back_mut().expect("pushed above").tail = at as u64;
        Ok(())
    }

    /// Bytes at `at` that are no batch: torn if nothing was written after them.
    fn check_torn(
        &mut self,
        file: &Path,
        bytes: &[u8],
        at: usize,
        is_last: bool,
        why: &'static str,
    ) -> Result<(), StoreError> {
        if let Some(ahead) = batch::follower(&bytes[at..], self.sequence) {
            return damaged(
                file,
                at,
                format!("{why}, and a later batch at {} is good", at + ahead),
            );
        }
        if !is_last {
            return damaged(file, at, format!("{why}, and later segments exist"));
        }
        let (offset, bytes) = (at as u64, (significant(bytes) - at) as u64);
        self.fault = Some(Fault::Tail(Cut { file: file.into(), offset, bytes, why }));
        Ok(())
    }

    /// `start` is set for the first batch of a segment, and true for the oldest segment.
    fn apply(&mut self, start: Option<bool>, payload: &[u8]) -> Result<(), &'static str> {
        let mut records = batch::records(payload);
        if let Some(oldest) = start {
            let Some(Record::Start { last }) = records.next().transpose()? else {
                return Err("the segment does not begin with its state");
            };
            if oldest {
                (self.state.last, self.floor) = (last, last);
            } else if last != self.state.last {
                return Err("the segment does not continue the one before");
            }
        }
        records.try_for_each(|record| self.record(record?))
    }

    fn record(&mut self, record: Record<'_>) -> Result<(), &'static str> {
        let state = &mut self.state;
        match record {
            Record::Start { .. } => return Err("a segment begins within a segment"),
            Record::Entry { index, bytes } => {
                if index != state.last + 1 {
                    return Err("an entry does not follow the one before");
                }
                state.last = index;
                self.entries.push_back((index, bytes.into()));
                self.segments.back_mut().expect("being read").highest = index;
            }
            Record::Truncate { last } => {
                if !(state.purged..=state.last).contains(&last) {
                    return Err("a truncation outside of the log");
                }
                state.last = last;
                self.floor = self.floor.min(last);
                while self.entries.back().is_some_and(|(index, _)| *index > last) {
                    self.entries.pop_back();
                }
                lower(&mut self.segments, last);
            }
            Record::Purge { upto, meta } => {
                if upto < state.purged {
                    return Err("a purge that goes back");
                }
                (state.purged, state.purged_meta) = (upto, meta.into());
                state.last = state.last.max(upto);
                while self.entries.front().is_some_and(|(index, _)| *index <= upto) {
                    self.entries.pop_front();
                }
            }
            Record::Meta { bytes } => state.meta = bytes.into(),
        }
        Ok(())
    }
}

/// After a truncation no segment holds a live entry behind `last`.
pub(super) fn lower(segments: &mut VecDeque<Segment>, last: u64) {
    for segment in segments {
        segment.highest = segment.highest.min(last);
    }
}

/// Makes what `read` found on disk what it reported: after this the end of the log is clean.
pub(super) fn repair(
    disk: &dyn Disk,
    dir: (&Path, &File),
    fault: &Fault,
) -> Result<(), StoreError> {
    let cut = fault.cut();
    match fault {
        // Left alone, garbage behind a shorter new batch could be taken for a follower one day.
        Fault::Tail(_) => OpenOptions::new()
            .write(true)
            .open(&cut.file)
            .and_then(|file| {
                segment::fill(disk, &file, cut.offset..cut.offset + cut.bytes)?;
                disk.sync_data(&file)
            })
            .map_err(StoreError::io("cut the torn tail of", &cut.file)),
        Fault::Creation(_) => {
            disk.remove(&cut.file).map_err(StoreError::io("remove", &cut.file))?;
            disk.sync_dir(dir.1).map_err(StoreError::io("sync", dir.0))
        }
    }
}
