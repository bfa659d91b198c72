//! The end of the last segment, where batches go. It is written in whole blocks, those that are half full once more
//! with what comes behind: then the kernel need not keep them in its page cache, and a sync has less to do. Where
//! the file system wants no such writes they go through the cache, the same blocks.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::disk::{BLOCK, Disk, Unfinished, write_all};

/// A larger buffer is not kept.
const KEPT: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Tail {
    file: File,
    /// The length of the file.
    capacity: u64,
    /// Where the next batch goes.
    at: u64,
    /// What there is of the block that it goes to.
    begun: Vec<u8>,
    buffer: Vec<u8>,
}

impl Tail {
    /// Of a file of so many zeros.
    pub(super) fn of_zeros(disk: &dyn Disk, path: &Path, file: File, capacity: u64) -> Tail {
        let file = past_the_cache(disk, path, capacity).unwrap_or(file);
        Tail { file, capacity, at: 0, begun: Vec::new(), buffer: Vec::new() }
    }

    /// Of a segment with batches up to here, and zeros from there on.
    pub(super) fn open(disk: &dyn Disk, path: &Path, at: u64, capacity: u64) -> io::Result<Tail> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let begun = at % BLOCK as u64;
        let (start, mut begun) = (at - begun, vec![0; begun as usize]);
        let mut read = 0;
        while read < begun.len() {
            match file.read_at(&mut begun[read..], start + read as u64)? {
                // The padding of the last batch may be missing, which is zeros.
                0 => break,
                count => read += count,
            }
        }
        let file = past_the_cache(disk, path, capacity).unwrap_or(file);
        Ok(Tail { file, capacity, at, begun, buffer: Vec::new() })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Writes a batch, for which there is room. It counts once it is [`Tail::move_on`].
    pub(super) fn write(&mut self, disk: &dyn Disk, batch: &[u8]) -> Result<(), Unfinished> {
        let start = self.at - self.begun.len() as u64;
        let blocks = (self.begun.len() + batch.len()).next_multiple_of(BLOCK);
        // Zeros behind it are what is there.
        let length = blocks.min((self.capacity - start) as usize);
        self.buffer.clear();
        self.buffer.reserve(BLOCK + length);
        let skip = self.buffer.as_ptr().align_offset(BLOCK);
        self.buffer.resize(skip, 0);
        self.buffer.extend_from_slice(&self.begun);
        self.buffer.extend_from_slice(batch);
        self.buffer.resize(skip + length, 0);
        let written = write_all(disk, &self.file, &self.buffer[skip..], start);
        if self.buffer.capacity() > KEPT {
            self.buffer = Vec::new();
        }
        written
    }

    /// The batch that was written is durable: the next one goes behind it.
    pub(super) fn move_on(&mut self, batch: &[u8]) {
        self.at += batch.len() as u64;
        self.begun.extend_from_slice(batch);
        self.begun.drain(..self.begun.len() - (self.at % BLOCK as u64) as usize);
    }
}

/// The file once more, for whole blocks only, if it consists of such.
fn past_the_cache(disk: &dyn Disk, path: &Path, capacity: u64) -> Option<File> {
    capacity.is_multiple_of(BLOCK as u64).then(|| disk.open_past_the_cache(path)).flatten()
}
