//! Segment files: their names, their header, and how one comes to be.
//!
//! A segment starts as `next-…`, full of zeros and durable, long before it is needed: an fdatasync
//! is cheaper when the room exists than when the file grows (measured: 0.22 ms against 0.29 ms),
//! and a full disk shows while nothing depends on it. Zeros are also what recovery takes for
//! "nothing written yet".

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::batch::{u32_at, u64_at};
use super::disk::{Disk, write_all};
use super::error::StoreError;
use super::tail::Tail;

const MAGIC: &[u8; 8] = b"KLATCHLG";
const VERSION: u32 = 1;
/// Magic, first sequence number, version, checksum: a multiple of the alignment of batches.
pub(super) const HEADER: usize = 24;
/// Zeros are written in pieces of this size: large enough to be fast, small enough to allocate.
const PIECE: usize = 1 << 20;

/// A segment in use.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) path: PathBuf,
    /// Where the next batch goes.
    pub(super) tail: u64,
    /// The length of the file.
    pub(super) capacity: u64,
    /// No live entry in this segment has a larger index; 0 if there is none.
    pub(super) highest: u64,
}

pub(super) fn path(dir: &Path, first: u64) -> PathBuf {
    dir.join(format!("{first:020}.log"))
}

/// The segments of a directory, oldest first, each with its first sequence number. Other files are
/// none of our business.
pub(super) fn list(dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let digits = name.strip_suffix(".log").unwrap_or_default();
        if digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            found.extend(digits.parse().ok().map(|first| (first, path)));
        }
    }
    found.sort_unstable();
    Ok(found)
}

pub(super) fn header(first: u64) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&first.to_le_bytes());
    bytes[16..20].copy_from_slice(&VERSION.to_le_bytes());
    let sum = crc32fast::hash(&bytes[..20]);
    bytes[20..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Checks the header of a segment. `Ok(None)` is a header that is not one.
pub(super) fn read_header(file: &Path, bytes: &[u8]) -> Result<Option<u64>, StoreError> {
    let Some(header) = bytes.get(..HEADER) else { return Ok(None) };
    if !header.starts_with(MAGIC) || u32_at(header, 20) != crc32fast::hash(&header[..20]) {
        return Ok(None);
    }
    match u32_at(header, 16) {
        VERSION => Ok(Some(u64_at(header, 8))),
        version => Err(StoreError::Version { file: file.into(), version }),
    }
}

/// A file of zeros, durable up to its name. What was there before is gone; after an error, too.
pub(super) fn zeros(disk: &dyn Disk, path: &Path, length: u64) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(true).open(path)?;
    // Each piece by itself: who syncs the log meanwhile waits behind one of them, not behind all.
    let filled = (0..length).step_by(PIECE).try_for_each(|from| {
        fill(disk, &file, from..length.min(from + PIECE as u64))?;
        disk.sync_data(&file)
    });
    match filled {
        Ok(()) => Ok(file),
        Err(error) => {
            // A half-made file would only make a full disk fuller.
            let _ = disk.remove(path);
            Err(error)
        }
    }
}

/// Zeros over a part of a file.
pub(super) fn fill(disk: &dyn Disk, file: &File, part: std::ops::Range<u64>) -> io::Result<()> {
    let piece = vec![0; PIECE.min((part.end - part.start) as usize)];
    let mut at = part.start;
    while at < part.end {
        let length = piece.len().min((part.end - at) as usize);
        write_all(disk, file, &piece[..length], at).map_err(|unfinished| unfinished.error)?;
        at += length as u64;
    }
    Ok(())
}

/// The work of making a segment, apart from the store so that another thread can do it while the
/// log goes on.
#[derive(Debug)]
pub(crate) struct Preparation {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) path: PathBuf,
    pub(super) capacity: u64,
    /// Nobody else may open the directory while this can still write to it.
    pub(super) _lock: Arc<File>,
}

/// A segment that waits for its first batch. One that is dropped leaves a file behind, which the
/// next opening removes.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(super) path: PathBuf,
    pub(super) end: Tail,
    pub(super) capacity: u64,
}

impl Preparation {
    /// Blocks while it writes and syncs as many bytes as a segment has.
    pub(crate) fn run(self) -> io::Result<Prepared> {
        let file = zeros(&*self.disk, &self.path, self.capacity)?;
        let end = Tail::of_zeros(&*self.disk, &self.path, file, self.capacity);
        Ok(Prepared { path: self.path, end, capacity: self.capacity })
    }
}

/// The name of a segment that is not in use yet; `number` keeps several apart.
pub(super) fn spare(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("next-{number}"))
}

/// Whether a path is one that `spare` makes.
pub(super) fn is_spare(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.strip_prefix("next-"))
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::super::disk::Os;
    use super::*;

    #[test]
    fn only_segments_are_listed_and_in_order() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["reserve", "lock", "next-1", "1.log", "0000000000000000000a.log", "x.log"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        for first in [200, 1, 30] {
            fs::write(path(dir.path(), first), "").unwrap();
        }
        let firsts: Vec<u64> = list(dir.path()).unwrap().into_iter().map(|(at, _)| at).collect();
        assert_eq!(firsts, [1, 30, 200]);
    }

    #[test]
    fn a_header_with_any_flipped_bit_is_none() {
        let file = Path::new("x");
        let bytes = header(77);
        assert_eq!(read_header(file, &bytes).unwrap(), Some(77));
        assert_eq!(read_header(file, &bytes[..HEADER - 1]).unwrap(), None);
        for bit in 0..HEADER * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_header(file, &flipped).unwrap(), None, "bit {bit}");
        }
    }

    #[test]
    fn a_newer_version_is_named() {
        let mut bytes = header(1);
        bytes[16] = 2;
        let sum = crc32fast::hash(&bytes[..20]);
        bytes[20..].copy_from_slice(&sum.to_le_bytes());
        let error = read_header(Path::new("x"), &bytes).unwrap_err();
        assert!(matches!(error, StoreError::Version { version: 2, .. }), "{error}");
    }

    #[test]
    fn zeros_replace_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = spare(dir.path(), 3);
        assert!(is_spare(&path));
        fs::write(&path, [7; 100]).unwrap();
        zeros(&Os, &path, PIECE as u64 + 5).unwrap();
        assert_eq!(fs::read(&path).unwrap(), vec![0; PIECE + 5]);
        assert!(!is_spare(&dir.path().join("next-")));
        assert!(!is_spare(&dir.path().join("next-1.log")));
    }
}
