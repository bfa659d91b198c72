//! The access file on the disk: one writer at a time, and a reader never sees half of a change.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};

/// A change takes milliseconds; whoever has the lock for longer is stuck.
const PATIENCE: Duration = Duration::from_secs(10);

/// The file, and the right to change it until this is dropped.
pub(super) struct Store {
    /// Where it really is: a link to it stays a link.
    path: PathBuf,
    text: String,
    /// Of a file beside it, because the file itself is replaced. It stays there: if it were removed,
    /// two could have the lock, one of them that of a file which is gone.
    _lock: File,
}

impl Store {
    /// The file as it is; one that is not there is empty.
    pub(super) fn open(path: &Path) -> Result<Store> {
        let dir = dir_of(path);
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.into());
        let lock = lock(&beside(&path, "lock"))?;
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        Ok(Store { path, text, _lock: lock })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Replaces the file as a whole: after a crash it is the old one or the new one.
    pub(super) fn write(&self, text: &str) -> Result<()> {
        let new = beside(&self.path, "new");
        self.replace(&new, text).with_context(|| {
            drop(fs::remove_file(&new));
            format!("cannot write {}", self.path.display())
        })
    }

    fn replace(&self, new: &Path, text: &str) -> std::io::Result<()> {
        // Left behind by one that was killed; we have the lock.
        match fs::remove_file(new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(new)?;
        if let Ok(old) = fs::metadata(&self.path) {
            let about = file.metadata()?;
            if (old.uid(), old.gid()) != (about.uid(), about.gid()) {
                // The server may run as another user than the one who makes tokens.
                fchown(&file, Some(old.uid()), Some(old.gid()))?;
            }
            // The owner writes; a group that could read can go on. Nobody else.
            let mode = old.mode() & 0o040 | 0o600;
            file.set_permissions(PermissionsExt::from_mode(mode))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(new, &self.path)?;
        File::open(dir_of(&self.path))?.sync_all()
    }
}

fn lock(path: &Path) -> Result<File> {
    let open = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = open.with_context(|| format!("cannot open {}", path.display()))?;
    let since = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if since.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => bail!(
                "another process has been changing the access file for {} s (it has {} locked): try \
                 again when it has ended",
                PATIENCE.as_secs(),
                path.display()
            ),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
    }
}

fn dir_of(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

/// `.access.toml.new` for `access.toml`.
fn beside(path: &Path, word: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{word}"))
}
