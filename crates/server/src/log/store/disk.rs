//! The calls that change the disk, as a trait so that tests can make each of them fail.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// What the store asks of the operating system when it writes.
pub(crate) trait Disk: Debug + Send + Sync {
    /// Writes at most all of `bytes`; returns how many.
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Makes content and length of a file durable.
    fn sync_data(&self, file: &File) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &File) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// A file for writes of whole blocks that do not go through the page cache; `None` where there is no such thing.
    fn open_past_the_cache(&self, _: &Path) -> Option<File> {
        None
    }
}

/// What every disk that is known writes at once, or a multiple of that.
pub(super) const BLOCK: usize = 4096;

/// The real one.
#[derive(Debug)]
pub(crate) struct Os;

impl Disk for Os {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(bytes, offset)
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    // Not `sync_data`: whether fdatasync covers the entries of a directory is left to each file
    // system.
    fn sync_dir(&self, dir: &File) -> io::Result<()> {
        dir.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    #[cfg(target_os = "linux")]
    fn open_past_the_cache(&self, path: &Path) -> Option<File> {
        use std::os::unix::fs::OpenOptionsExt;
        let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
        let mut options = fs::OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(direct).open(path).ok()?;
        // Some say so only when it comes to it.
        let mut buffer = vec![0; 2 * BLOCK];
        let skip = buffer.as_ptr().align_offset(BLOCK);
        let read = file.read_at(&mut buffer[skip..skip + BLOCK], 0).ok()?;
        (read == BLOCK).then_some(file)
    }
}

/// The disk of this process.
pub(super) fn here() -> Arc<dyn Disk> {
    #[cfg(test)]
    if let Some(disk) = crate::log::raft::sim::disk() {
        return disk;
    }
    Arc::new(Os)
}

/// A write that did not finish.
#[derive(Debug)]
pub(super) struct Unfinished {
    /// Some bytes reached the file.
    pub(super) touched: bool,
    pub(super) error: io::Error,
}

/// One `pwrite` unless the kernel takes less.
pub(super) fn write_all(
    disk: &dyn Disk,
    file: &File,
    bytes: &[u8],
    offset: u64,
) -> Result<(), Unfinished> {
    let mut done = 0;
    while done < bytes.len() {
        match disk.write_at(file, &bytes[done..], offset + done as u64) {
            Ok(0) => {
                let error = io::ErrorKind::WriteZero.into();
                return Err(Unfinished { touched: done > 0, error });
            }
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Unfinished { touched: done > 0, error }),
        }
    }
    Ok(())
}
