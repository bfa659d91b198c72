//! Who a member is: its cluster, its number and how often it was started, in the file `member` of its data
//! directory. A node that has lost that file has lost its log too, and comes back as another node: it must
//! not vote again where the old one has voted.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::bytes::Reader;
use super::outside;
use crate::log::store::is_full;

const NAME: &str = "member";
const NEW: &str = "member.new";
const MAGIC: &[u8; 8] = b"KLMEMB01";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) cluster: u128,
    pub(crate) node: u64,
    /// Grows with each start.
    pub(crate) incarnation: u64,
}

impl Identity {
    /// A new node of a cluster. Numbers are random, so that none is ever given twice; 0 is nobody and 1
    /// is a node that began alone.
    pub(crate) fn new(cluster: u128) -> Identity {
        let node = outside::random().max(2);
        Identity { cluster, node, incarnation: 0 }
    }

    /// The first node of a new cluster.
    pub(crate) fn first(node: u64) -> Identity {
        let cluster = u128::from(outside::random()) << 64 | u128::from(outside::random());
        Identity { cluster: cluster.max(1), node, incarnation: 0 }
    }

    /// The first node of a new cluster that is not the one which its data comes from, and nobody that was
    /// in that one.
    pub(crate) fn founder() -> Identity {
        Identity::first(Identity::new(0).node)
    }

    pub(crate) fn read(dir: &Path) -> io::Result<Option<Identity>> {
        let bytes = match std::fs::read(dir.join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let read = || {
            let rest = bytes.strip_prefix(MAGIC)?;
            let (sum, body) = rest.split_at_checked(4)?;
            let mut from = Reader(body);
            let identity = Identity {
                cluster: from.u128().ok()?,
                node: from.u64().ok()?,
                incarnation: from.u64().ok()?,
            };
            from.end().ok()?;
            (sum == crc32fast::hash(body).to_le_bytes()).then_some(identity)
        };
        let damaged = || {
            let path = dir.join(NAME);
            let text = format!(
                "{} is damaged: move the data directory away and join the cluster as a new member, or \
                 restore all of it from a backup",
                path.display()
            );
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        read().map(Some).ok_or_else(damaged)
    }

    /// One more start, durably: what an earlier one has said must not be taken for what this one says.
    pub(crate) fn begin(mut self, dir: &Path) -> io::Result<Identity> {
        self.incarnation += 1;
        let mut body = self.cluster.to_le_bytes().to_vec();
        body.extend_from_slice(&self.node.to_le_bytes());
        body.extend_from_slice(&self.incarnation.to_le_bytes());
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        match replace(dir, &bytes) {
            // There is room where the old one is. Disks write so few bytes all or not at all; should one not, the file
            // is known to be damaged.
            Err(error) if is_full(&error) && dir.join(NAME).exists() => {
                drop(std::fs::remove_file(dir.join(NEW)));
                let file = File::options().write(true).open(dir.join(NAME))?;
                file.write_all_at(&bytes, 0)?;
                file.sync_all()?;
            }
            other => other?,
        }
        Ok(self)
    }
}

/// The file as it should be, or as it was.
fn replace(dir: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(dir.join(NEW))?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(dir.join(NEW), dir.join(NAME))?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_knows_itself_again_and_each_start_is_another() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Identity::read(dir.path()).unwrap(), None);
        let first = Identity::first(1).begin(dir.path()).unwrap();
        let read = Identity::read(dir.path()).unwrap().unwrap();
        assert_eq!((read, read.incarnation), (first, 1));
        assert_eq!(read.begin(dir.path()).unwrap().incarnation, 2);
        let (one, other) = (Identity::new(7), Identity::new(7));
        assert_ne!(one.node, other.node);
        let path = dir.path().join(NAME);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[20] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert!(Identity::read(dir.path()).unwrap_err().to_string().contains("damaged"));
    }
}
