//! The log's files as bytes, read by `docs/log-format.md` and not by the server's own code.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const HEADER: usize = 24;
const BATCH_HEADER: usize = 20;

/// Where one batch stands in its segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    pub(crate) offset: usize,
    /// Without padding.
    pub(crate) length: usize,
}

/// Whether a file is a segment.
pub(crate) fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "log")
}

/// The batches of a segment that nobody has damaged.
pub(crate) fn batches(bytes: &[u8]) -> Vec<Batch> {
    let (mut batches, mut offset) = (Vec::new(), HEADER);
    while bytes.get(offset..offset + 4) == Some(b"KLB1") {
        let field = bytes[offset + 4..offset + 8].try_into().unwrap();
        let length = BATCH_HEADER + u32::from_le_bytes(field) as usize;
        batches.push(Batch { offset, length });
        offset += length.next_multiple_of(8);
    }
    batches
}

/// The files of a stopped server's data directory, by their path in it.
#[derive(Clone, PartialEq)]
pub(crate) struct Image(pub(crate) BTreeMap<PathBuf, Vec<u8>>);

impl Image {
    /// Without the zeros at the end of segments, whose size means nothing, and without what is not
    /// in use.
    pub(crate) fn take(data: &Path) -> Image {
        let mut files = BTreeMap::new();
        for folder in [data.to_path_buf(), data.join("log")] {
            for entry in std::fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                if !path.is_file() || name.starts_with("next-") || name == "reserve" {
                    continue;
                }
                let mut bytes = std::fs::read(&path).unwrap();
                if is_segment(&path) {
                    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
                    bytes.truncate(end.next_multiple_of(8) + 64);
                }
                files.insert(path.strip_prefix(data).unwrap().into(), bytes);
            }
        }
        Image(files)
    }

    /// Writes it to an empty directory.
    pub(crate) fn put(&self, data: &Path) {
        std::fs::create_dir_all(data.join("log")).unwrap();
        for (path, bytes) in &self.0 {
            std::fs::write(data.join(path), bytes).unwrap();
        }
    }

    /// The newest segment.
    pub(crate) fn last_segment(&self) -> PathBuf {
        self.0.keys().rfind(|path| is_segment(path)).expect("a segment").clone()
    }

    /// Whether a directory still is as this one: file by file, byte by byte.
    pub(crate) fn is_in(&self, data: &Path) -> bool {
        self.0
            .iter()
            .all(|(path, bytes)| std::fs::read(data.join(path)).ok().as_ref() == Some(bytes))
            && Image::take(data).0.keys().eq(self.0.keys())
    }
}
