//! The log on disk: numbered entries and one small metadata blob, durable when a call returns.
//! It lies under the Raft log; the driver of that one calls it from a single thread and hands the
//! recovered entries to its memory when the server starts. Nothing is read back while it runs.
//!
//! # Files of the directory
//!
//! | file | is |
//! |---|---|
//! | `lock` | carries the advisory lock: one process at a time |
//! | `00000000000000000001.log`, … | segments, named by the sequence number of their first batch |
//! | `next-0`, … | segments full of zeros that are not in use yet; removed by the next opening |
//! | `reserve` | bytes to give up when the disk is full |
//!
//! # Bytes
//!
//! All integers are little-endian; all checksums are CRC-32 (IEEE).
//!
//! ```text
//! segment   magic "KLATCHLG" | first sequence u64 | version u32 = 1 | crc u32 of the 20 bytes before
//!           batch, batch, …  each at a multiple of 8; then zeros up to the end of the file
//! batch     magic "KLB1" | payload length u32 | sequence u64 | crc u32 of these 16 bytes and payload
//!           payload: record, record, …    then zeros up to a multiple of 8, not in the length
//! record    kind u8 | index u64 | length u32 | bytes
//! ```
//!
//! | kind | record | index | bytes |
//! |---|---|---|---|
//! | 1 | start | index of the last entry at that moment | none |
//! | 2 | entry | its index, one more than the last | the entry |
//! | 3 | truncate | index of the entry that is the last now | none |
//! | 4 | purge | highest index that is not needed | blob that describes that entry |
//! | 5 | meta | 0 | the metadata |
//!
//! The first batch of a segment begins with the state (start, purge, meta) and goes on with what the
//! call has to say. `docs/log-format.md` says the same for people who read logs without this code.
//!
//! # Invariants
//!
//! - **L1** A call that returned `Ok` is found by every later opening; one that failed is found
//!   whole or not at all.
//! - **L2** Sequence numbers grow by one per batch across all segments, without a gap.
//! - **L3** Each segment can be the oldest one: it repeats the state, so those before it can go.
//! - **L4** A segment is deleted only when a durable purge covers every live entry in it and none
//!   before it is left; one after the other, so that a crash leaves no gap.
//! - **L5** A segment gets its name only after its first batch is durable.
//! - **L6** Behind the last batch there are zeros. Opening makes it so before anything is written.
//! - **L7** After a failed write or sync nothing is written any more: the kernel may have dropped
//!   the bytes and would report success the second time.

mod batch;
mod dir;
pub(crate) mod disk;
mod error;
mod recover;
mod segment;
mod tail;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use batch::Record;
use disk::Disk;
pub(crate) use error::StoreError;
pub(crate) use error::is_full;
pub(crate) use recover::Cut;
use recover::State;
use segment::Segment;
pub(crate) use segment::{Preparation, Prepared};
use tail::Tail;

/// Sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Segments are this large; a batch that needs more gets one of its own size.
    pub(crate) segment_bytes: u64,
    /// Size of the reserve; 0 for none.
    pub(crate) reserve_bytes: u64,
}

/// What the log notes by itself beside a batch: a vote, a purge, the state at the head of a segment.
const MARGIN: u64 = 4096;

/// What an opened log contained.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// All live entries: the first has index `purged + 1`, each other one more than that before.
    pub(crate) entries: Vec<(u64, Vec<u8>)>,
    /// The highest index that was purged; 0 if none ever was.
    pub(crate) purged: u64,
    /// What `purge` was given with that index.
    pub(crate) purged_meta: Vec<u8>,
    /// What `save_meta` was given last.
    pub(crate) meta: Vec<u8>,
    /// A torn tail that was cut; worth a line in the server's own log.
    pub(crate) cut: Option<Cut>,
}

/// The open log. Dropping it gives the directory free; there is nothing to flush.
#[derive(Debug)]
pub(crate) struct Store {
    dir: PathBuf,
    dir_handle: File,
    disk: Arc<dyn Disk>,
    options: Options,
    /// The advisory lock; preparations share it, since they write to the directory too.
    lock: Arc<File>,
    state: State,
    /// Oldest first; batches go to the last one. Empty until the first batch ever.
    segments: VecDeque<Segment>,
    /// The end of the last segment.
    end: Option<Tail>,
    /// The sequence number of the next batch (L2).
    sequence: u64,
    spare: Option<Prepared>,
    /// Numbers the names of spares, so that two preparations never share a file.
    spares: u64,
    /// The file `reserve` is there in full size.
    reserved: bool,
    /// L7.
    poisoned: bool,
}

impl Store {
    /// Opens the log in `dir`, which is made if it does not exist, and reads all of it. Cuts a torn
    /// tail; refuses a damaged log without having changed it.
    pub(crate) fn open(dir: &Path, options: Options) -> Result<(Store, Recovered), StoreError> {
        Store::open_on(disk::here(), dir, options)
    }

    fn open_on(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: Options,
    ) -> Result<(Store, Recovered), StoreError> {
        dir::make(&*disk, dir)?;
        let dir_handle = File::open(dir).map_err(StoreError::io("open", dir))?;
        let lock = Arc::new(dir::lock(dir)?);
        let found = recover::read(dir)?;
        let cut = found.fault.as_ref().map(|fault| fault.cut().clone());
        if let Some(fault) = &found.fault {
            recover::repair(&*disk, (dir, &dir_handle), fault)?;
        }
        dir::remove_spares(&*disk, dir)?;
        let end = match found.segments.back() {
            None => None,
            Some(Segment { path, tail, capacity, .. }) => {
                let end = Tail::open(&*disk, path, *tail, *capacity);
                Some(end.map_err(StoreError::io("open", path))?)
            }
        };
        let recovered = Recovered {
            entries: found.entries.into(),
            purged: found.state.purged,
            purged_meta: found.state.purged_meta.clone(),
            meta: found.state.meta.clone(),
            cut,
        };
        let mut store = Store {
            dir: dir.into(),
            dir_handle,
            disk,
            options,
            lock,
            state: found.state,
            segments: found.segments,
            end,
            sequence: found.sequence,
            spare: None,
            spares: 0,
            reserved: false,
            poisoned: false,
        };
        // The process may have ended between a purge and the deletions that follow from it.
        let source = |error| StoreError::Io { doing: "tidy", path: dir.into(), source: error };
        store.delete_dead().map_err(source)?;
        match store.restore_reserve() {
            Err(error) if error.kind() != io::ErrorKind::StorageFull => Err(source(error)),
            // A full disk is a reason to start, not a reason not to.
            _ => Ok((store, recovered)),
        }
    }

    /// Appends entries as one batch. Their indexes must follow the last one without a gap.
    ///
    /// An error of kind `StorageFull` means that nothing was written and the call may be repeated;
    /// after any other but `InvalidInput` (too large) the outcome is unknown and the store is
    /// finished. This holds for all calls that write.
    pub(crate) fn append(&mut self, entries: &[(u64, &[u8])]) -> io::Result<()> {
        for ((index, _), expected) in entries.iter().zip(self.state.last + 1..) {
            assert_eq!(*index, expected, "entries follow the last one without a gap");
        }
        let Some(&(last, _)) = entries.last() else { return self.usable() };
        let record = |&(index, bytes)| Record::Entry { index, bytes };
        self.commit(&entries.iter().map(record).collect::<Vec<_>>())?;
        self.state.last = last;
        self.segments.back_mut().expect("just written to").highest = last;
        Ok(())
    }

    /// Replaces the metadata.
    pub(crate) fn save_meta(&mut self, meta: &[u8]) -> io::Result<()> {
        self.commit(&[Record::Meta { bytes: meta }])?;
        self.state.meta = meta.into();
        Ok(())
    }

    /// Drops all entries behind `last`; the next one appended is `last + 1`. Does nothing if there
    /// are none. What is purged cannot be truncated.
    pub(crate) fn truncate_after(&mut self, last: u64) -> io::Result<()> {
        assert!(last >= self.state.purged, "purged entries cannot be truncated");
        if last >= self.state.last {
            return self.usable();
        }
        self.commit(&[Record::Truncate { last }])?;
        self.state.last = last;
        recover::lower(&mut self.segments, last);
        self.delete_dead()
    }

    /// Gives up all entries up to and including `upto`, which may lie behind the last one (after a
    /// snapshot of another member); then deletes the segments that hold nothing else. Does nothing
    /// if that much is purged already.
    pub(crate) fn purge(&mut self, upto: u64, purged_meta: &[u8]) -> io::Result<()> {
        if upto <= self.state.purged {
            return self.usable();
        }
        self.commit(&[Record::Purge { upto, meta: purged_meta }])?;
        self.state.purged = upto;
        self.state.purged_meta = purged_meta.into();
        self.state.last = self.state.last.max(upto);
        self.delete_dead()
    }

    /// The bytes of all batches that are still on disk. The room prepared for later ones is not
    /// counted.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.tail).sum()
    }

    /// The work of making the next segment, to be run anywhere and given to [`Store::adopt`]; `None`
    /// if one is ready. A batch that comes first makes its own and waits for it. The directory stays
    /// locked until the work is done or dropped.
    pub(crate) fn preparation(&mut self) -> Option<Preparation> {
        let wanted = self.spare.is_none() && !self.poisoned;
        wanted.then(|| self.plan(self.options.segment_bytes))
    }

    /// Takes a segment that was prepared for this store.
    pub(crate) fn adopt(&mut self, prepared: Prepared) {
        if let Some(surplus) = self.spare.replace(prepared) {
            // If this fails, the next opening does it.
            let _ = self.disk.remove(&surplus.path);
        }
    }

    /// Sees to it that a batch of so many bytes, and what the log notes by itself, needs nothing more
    /// of the disk. The reserve is given up for this. `StorageFull` if it cannot be done.
    pub(crate) fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        self.usable()?;
        let needed = bytes + MARGIN;
        let ready = self.spare.as_ref().is_some_and(|spare| spare.capacity >= needed);
        if !ready && self.room() < needed {
            let prepared = self.take_spare(needed)?;
            self.adopt(prepared);
        }
        Ok(())
    }

    /// Whether little room is left that is certain: no segment is ready, and three quarters of the
    /// present one are used.
    pub(crate) fn is_short(&self) -> bool {
        self.spare.is_none() && self.room() < self.options.segment_bytes / 4
    }

    /// Bytes that still fit into the present segment.
    fn room(&self) -> u64 {
        self.segments.back().map_or(0, |segment| segment.capacity - segment.tail)
    }

    /// Whether the reserve is there.
    #[cfg(test)]
    pub(crate) fn has_reserve(&self) -> bool {
        self.reserved
    }

    /// Gives the reserve to the disk.
    fn release_reserve(&mut self) -> io::Result<()> {
        self.reserved = false;
        match self.disk.remove(&self.dir.join("reserve")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Takes the reserve again. An error, also of a full disk, leaves the store usable without it.
    pub(crate) fn restore_reserve(&mut self) -> io::Result<()> {
        let (path, length) = (self.dir.join("reserve"), self.options.reserve_bytes);
        if self.reserved || length == 0 {
            return Ok(());
        }
        // A crash while it was written leaves a shorter one.
        let there = fs::metadata(&path).is_ok_and(|metadata| metadata.len() == length);
        if !there {
            segment::zeros(&*self.disk, &path, length).map_err(|error| self.full_or(error))?;
        }
        self.reserved = true;
        Ok(())
    }

    fn usable(&self) -> io::Result<()> {
        if self.poisoned { Err(StoreError::Poisoned.into()) } else { Ok(()) }
    }

    /// Writes one batch and makes it durable: one `pwrite`, one `fdatasync`.
    fn commit(&mut self, records: &[Record<'_>]) -> io::Result<()> {
        self.usable()?;
        let payload = batch::payload_len(records);
        if payload > batch::MAX_PAYLOAD {
            let (bytes, limit) = (payload as u64, batch::MAX_PAYLOAD as u64);
            return Err(StoreError::TooLarge { bytes, limit }.into());
        }
        let size = (batch::HEADER + payload).next_multiple_of(batch::ALIGN);
        let fits = |at: &Segment| at.tail + size as u64 <= at.capacity;
        if !self.segments.back().is_some_and(fits) {
            return self.begin_segment(records);
        }
        let mut bytes = Vec::with_capacity(size);
        batch::write(&mut bytes, self.sequence, records.iter());
        let mut end = self.end.take().expect("open as long as there is a segment");
        let path = self.segments.back().expect("checked above").path.clone();
        let written = self.write_durably(&mut end, &path, &bytes);
        self.end = Some(end);
        written?;
        self.segments.back_mut().expect("checked above").tail += bytes.len() as u64;
        self.sequence += 1;
        Ok(())
    }

    /// Writes one batch, preceded by the state (L3), as the first of a new segment.
    fn begin_segment(&mut self, records: &[Record<'_>]) -> io::Result<()> {
        let first = self.sequence;
        let State { last, purged, purged_meta, meta } = &self.state;
        let state = [
            Record::Start { last: *last },
            Record::Purge { upto: *purged, meta: purged_meta },
            Record::Meta { bytes: meta },
        ];
        let mut bytes = segment::header(first).to_vec();
        batch::write(&mut bytes, first, state.iter().chain(records));

        let mut prepared = self.take_spare(bytes.len() as u64)?;
        if let Err(error) = self.write_durably(&mut prepared.end, &prepared.path, &bytes) {
            if !self.poisoned {
                self.adopt(prepared);
            }
            return Err(error);
        }
        // Only now, so that a segment with a name has content (L5).
        let path = segment::path(&self.dir, first);
        let named = self.disk.rename(&prepared.path, &path);
        named.map_err(|error| self.poison("name", &path, error))?;
        self.sync_dir()?;
        let (tail, capacity) = (bytes.len() as u64, prepared.capacity);
        self.segments.push_back(Segment { path, tail, capacity, highest: 0 });
        self.end = Some(prepared.end);
        self.sequence += 1;
        // The one before may have been kept only because it was the last.
        self.delete_dead()
    }

    /// A segment with room for `needed` bytes: the spare, or one made now. On a full disk it is a
    /// small one, in the place of the reserve: enough to note releases, a vote, or the purge that
    /// frees segments.
    fn take_spare(&mut self, needed: u64) -> io::Result<Prepared> {
        if let Some(spare) = self.spare.take_if(|spare| spare.capacity >= needed) {
            return Ok(spare);
        }
        let preparation = self.plan(needed.max(self.options.segment_bytes));
        match self.run(preparation) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                self.release_reserve()?;
                // A quarter of it, so that it lasts for more than one segment.
                let small = (self.options.reserve_bytes / 4).min(self.options.segment_bytes);
                let preparation = self.plan(needed.max(small));
                self.run(preparation)
            }
            result => result,
        }
    }

    fn plan(&mut self, capacity: u64) -> Preparation {
        let path = segment::spare(&self.dir, self.spares);
        self.spares += 1;
        Preparation { disk: self.disk.clone(), path, capacity, _lock: self.lock.clone() }
    }

    fn run(&mut self, preparation: Preparation) -> io::Result<Prepared> {
        let path = preparation.path.clone();
        preparation.run().map_err(|error| match is_full(&error) {
            true => self.full_or(error),
            // The log itself is untouched, but a disk that fails here has failed.
            false => self.poison("prepare", &path, error),
        })
    }

    fn write_durably(&mut self, end: &mut Tail, path: &Path, bytes: &[u8]) -> io::Result<()> {
        end.write(&*self.disk, bytes).map_err(|unfinished| {
            match is_full(&unfinished.error) && !unfinished.touched {
                true => self.full_or(unfinished.error),
                false => self.poison("write", path, unfinished.error),
            }
        })?;
        let synced = self.disk.sync_data(end.file());
        synced.map_err(|error| self.poison("fsync", path, error))?;
        end.move_on(bytes);
        Ok(())
    }

    /// Deletes segments from the oldest on while nothing in them is needed (L4).
    fn delete_dead(&mut self) -> io::Result<()> {
        while self.segments.len() > 1 && self.segments[0].highest <= self.state.purged {
            let path = self.segments[0].path.clone();
            let removed = self.disk.remove(&path);
            removed.map_err(|error| self.poison("delete", &path, error))?;
            self.sync_dir()?;
            self.segments.pop_front();
        }
        Ok(())
    }

    fn sync_dir(&mut self) -> io::Result<()> {
        let synced = self.disk.sync_dir(&self.dir_handle);
        synced.map_err(|error| self.poison("fsync", &self.dir.clone(), error))
    }

    fn poison(&mut self, doing: &'static str, path: &Path, source: io::Error) -> io::Error {
        self.poisoned = true;
        StoreError::Failed { doing, path: path.into(), source }.into()
    }

    fn full_or(&self, source: io::Error) -> io::Error {
        if !is_full(&source) {
            return source;
        }
        StoreError::Full { dir: self.dir.clone(), source }.into()
    }
}
