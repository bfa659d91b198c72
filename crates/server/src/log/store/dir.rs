//! The directory as a whole: made, locked, tidied.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::disk::Disk;
use super::error::StoreError;
use super::segment;

/// Makes the directory and its name durable.
pub(super) fn make(disk: &dyn Disk, dir: &Path) -> Result<(), StoreError> {
    if dir.is_dir() {
        return Ok(());
    }
    // Ids in it are as good as the locks: nobody else needs to read it, also where the directory around it is open to all.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(StoreError::io("create", dir))?;
    let parent = match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let synced = File::open(parent).and_then(|handle| disk.sync_dir(&handle));
    synced.map_err(StoreError::io("sync", parent))
}

/// One process at a time: two writers would interleave their batches.
pub(super) fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join("lock");
    let open = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = open.map_err(StoreError::io("open", &path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::Locked { dir: dir.into() }),
        Err(error) => Err(StoreError::Io { doing: "lock", path, source: error.into() }),
    }
}

/// What was prepared for an earlier process, or written to and never named.
pub(super) fn remove_spares(disk: &dyn Disk, dir: &Path) -> Result<(), StoreError> {
    for entry in fs::read_dir(dir).map_err(StoreError::io("list", dir))? {
        let path = entry.map_err(StoreError::io("list", dir))?.path();
        if segment::is_spare(&path) {
            disk.remove(&path).map_err(StoreError::io("remove", &path))?;
        }
    }
    Ok(())
}
