//! What can go wrong with the log, and what to do about it.
//!
//! Opening returns [`StoreError`] itself; the running calls wrap it in an [`io::Error`] whose kind
//! tells the two cases apart that a caller treats differently: `StorageFull` means that nothing
//! happened and the call may be repeated, everything else that the store is finished.

use std::io;
use std::path::{Path, PathBuf};

/// Why the log could not be opened or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// Another process, or another `Store` of this one, has the directory open.
    #[error(
        "the log in {dir} is in use by another process: stop that one first, or give this server \
         a data directory of its own",
        dir = dir.display()
    )]
    Locked { dir: PathBuf },
    /// Bytes that were once durable are wrong or gone. A torn tail is not damage; it is cut.
    #[error(
        "{file} is damaged at byte {offset}: {what}. Nothing was changed. Restore the \
         directory from a backup; or, of a member of a cluster, move it away and let this member join \
         again from a snapshot of another member",
        file = file.display()
    )]
    Damaged { file: PathBuf, offset: u64, what: String },
    /// A later release wrote this log.
    #[error(
        "{file} has log format version {version}, which is newer than this build reads: start the \
         release that wrote it, or a later one",
        file = file.display()
    )]
    Version { file: PathBuf, version: u32 },
    /// The operating system refused something while opening.
    #[error("cannot {doing} {path}: {source}; correct that and start again", path = path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    /// There is no room for a new segment. Nothing was written and the store is as before.
    #[error(
        "no room for the log in {dir}: {source}; free space on that disk, then try again",
        dir = dir.display()
    )]
    Full { dir: PathBuf, source: io::Error },
    /// A batch above the limit of the format. Nothing was written.
    #[error("a batch of {bytes} bytes is too large for the log; split it (limit {limit})")]
    TooLarge { bytes: u64, limit: u64 },
    /// This call broke the store: what is on disk is unknown until it is read again.
    #[error(
        "cannot {doing} {path}: {source}; what is on disk is unknown now, so the log takes no more \
         writes: check the disk and restart",
        path = path.display()
    )]
    Failed { doing: &'static str, path: PathBuf, source: io::Error },
    /// An earlier call broke the store. Repeating an fsync would report success for pages that the
    /// kernel has already dropped, so nothing is ever repeated.
    #[error("an earlier write or fsync of the log failed; check the disk and restart")]
    Poisoned,
}

impl StoreError {
    /// For `map_err` while opening.
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
        move |source| StoreError::Io { doing, path: path.into(), source }
    }
}

impl From<StoreError> for io::Error {
    fn from(error: StoreError) -> io::Error {
        let kind = match error {
            StoreError::Full { .. } => io::ErrorKind::StorageFull,
            StoreError::TooLarge { .. } => io::ErrorKind::InvalidInput,
            // Also when the cause was a full disk: after bytes have reached the file it must not
            // look like the harmless case.
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

/// A quota is a disk of one's own that is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
