//! Snapshot files: what they say of themselves, then the table; written beside the old one and renamed
//! over it. `docs/log-format.md` has the form.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use keylatch_table::Table;
use openraft::alias::SnapshotMetaOf;

use super::bytes;
use super::origins::Origins;
use super::types::{StoredMembership, Types};

const MAGIC: &[u8; 8] = b"KLSNAP01";
const NAME: &str = "snapshot";
/// While one is written: of the own table, or as another member has sent it. Both may be under way at once.
pub(crate) const OWN: &str = "snapshot.new";
pub(crate) const SENT: &str = "snapshot.sent";
/// Magic and checksum.
const HEADER: usize = 12;
/// More than what a snapshot says of itself: a few numbers and the members' addresses.
const HEAD_MOST: u64 = 64 * 1024;

pub(crate) type Meta = SnapshotMetaOf<Types>;

/// A file that is being written.
pub(crate) struct Writing {
    file: File,
    path: PathBuf,
    sum: crc32fast::Hasher,
}

impl Writing {
    pub(crate) fn begin(path: PathBuf, meta: &Meta, origins: &Origins) -> io::Result<Writing> {
        // Another file, not the same one anew: one that was given up may still be written to.
        remove(&path)?;
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        let mut file = options.open(&path)?;
        file.write_all(MAGIC)?;
        // The checksum is known at the end.
        file.write_all(&[0; 4])?;
        let mut writing = Writing { file, path, sum: crc32fast::Hasher::new() };
        writing.add(&head(meta, origins))?;
        Ok(writing)
    }

    pub(crate) fn add(&mut self, piece: &[u8]) -> io::Result<()> {
        self.sum.update(piece);
        self.file.write_all(piece)
    }

    /// Makes it durable, and the one that counts.
    pub(crate) fn finish(mut self, dir: &Path) -> io::Result<File> {
        self.file.seek(SeekFrom::Start(MAGIC.len() as u64))?;
        self.file.write_all(&self.sum.finalize().to_le_bytes())?;
        self.file.sync_all()?;
        std::fs::rename(&self.path, dir.join(NAME))?;
        File::open(dir)?.sync_all()?;
        self.file.rewind()?;
        Ok(self.file)
    }
}

/// A file for a snapshot that another member sends. Nobody else finds it: it has no name once it is open,
/// so nothing is left of it if it is not finished.
pub(crate) fn begin_incoming(dir: &Path, from: u64) -> io::Result<File> {
    let path = dir.join(format!("{NAME}.from-{from}"));
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Removes what an attempt has left behind: on a full disk every byte counts.
pub(crate) fn remove_new(dir: &Path) {
    for name in [OWN, SENT] {
        if let Err(error) = remove(&dir.join(name)) {
            tracing::warn!(%error, "a snapshot that was not finished could not be removed");
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The last snapshot, if there is one.
pub(crate) fn open(dir: &Path) -> io::Result<Option<File>> {
    match File::open(dir.join(NAME)) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Everything that is in a snapshot, checked.
pub(crate) fn read(file: &mut File, hash_seed: u64) -> io::Result<(Meta, Origins, Table)> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    from_bytes(&bytes, hash_seed).map_err(damaged)
}

/// The same of its bytes, wherever they come from; or what of them is damaged.
pub(crate) fn from_bytes(
    bytes: &[u8],
    hash_seed: u64,
) -> Result<(Meta, Origins, Table), &'static str> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("its beginning")?;
    let (sum, body) = rest.split_at_checked(4).ok_or("its length")?;
    if sum != crc32fast::hash(body).to_le_bytes() {
        return Err("its checksum");
    }
    let (meta, length) = read_head(body)?;
    let origins = bytes::decode_origins(body[0], &body[length..]);
    let (origins, more) = origins.map_err(|_| "the members")?;
    let table = Table::restore(&body[length + more..], hash_seed);
    Ok((meta, origins, table.map_err(|_| "the table")?))
}

/// A snapshot as the bytes of its file.
pub(crate) fn to_bytes(meta: &Meta, origins: &Origins, table: &Table) -> Vec<u8> {
    let mut bytes = [MAGIC.as_slice(), &[0; 4]].concat();
    bytes.extend_from_slice(&head(meta, origins));
    bytes.extend_from_slice(&table.snapshot());
    let sum = crc32fast::hash(&bytes[HEADER..]);
    bytes[MAGIC.len()..HEADER].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn head(meta: &Meta, origins: &Origins) -> Vec<u8> {
    let (last, membership) = (meta.last_log_id.as_ref(), &meta.last_membership);
    let at = membership.log_id().as_ref();
    bytes::encode_snapshot_head(last, at, membership.membership(), origins)
}

/// What a snapshot that has been read before says of itself.
pub(crate) fn read_meta(file: &mut File) -> io::Result<Meta> {
    let mut bytes = Vec::new();
    file.take(HEAD_MOST).read_to_end(&mut bytes)?;
    file.rewind()?;
    let head = bytes.get(HEADER..).ok_or_else(|| damaged("its length"))?;
    Ok(read_head(head).map_err(damaged)?.0)
}

fn read_head(body: &[u8]) -> Result<(Meta, usize), &'static str> {
    let head = bytes::decode_snapshot_head(body).map_err(|_| "its head")?;
    let (last_log_id, membership_at, membership, length) = head;
    let last_membership = StoredMembership::new(membership_at, membership);
    Ok((Meta { last_log_id, last_membership }, length))
}

fn damaged(what: &str) -> io::Error {
    let text = format!(
        "the file `{NAME}` of the data directory is damaged ({what}). Nothing was changed. Restore the \
         data directory from a backup, or start with an empty one if nothing in it matters"
    );
    io::Error::new(io::ErrorKind::InvalidData, text)
}
