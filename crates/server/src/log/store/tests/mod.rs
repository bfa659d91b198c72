//! Tests of the whole store, by subject. Small segments, so that a few hundred batches are many
//! files; no reserve unless the test is about it.

mod calls;
mod crash;
mod damage;
mod faults;
mod model;

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{Options, Recovered, Store, StoreError, segment};
use model::Model;

const SMALL: Options = Options { segment_bytes: 4096, reserve_bytes: 0 };

impl Store {
    /// Makes the next segment now, if none is ready.
    fn prepare_next(&mut self) -> std::io::Result<()> {
        self.usable()?;
        if let Some(preparation) = self.preparation() {
            let prepared = self.run(preparation)?;
            self.adopt(prepared);
        }
        Ok(())
    }
}

fn open(dir: &Path) -> (Store, Recovered) {
    Store::open(dir, SMALL).unwrap()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    segment::list(dir).unwrap().into_iter().map(|(_, path)| path).collect()
}

fn last_file(dir: &Path) -> PathBuf {
    files(dir).pop().unwrap()
}

/// A directory with the same files: what a power cut would leave, while the original lives on.
fn copy(dir: &Path) -> TempDir {
    let to = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.path().join(path.file_name().unwrap())).unwrap();
    }
    to
}

fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    files(dir).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Opens a log that must be refused as damaged, and checks that it was left alone.
fn refused(dir: &Path) -> String {
    let before = contents(dir);
    let error = Store::open(dir, SMALL).map(|(_, found)| found).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(before == contents(dir), "a refused log was changed");
    error.to_string()
}

/// xorshift64*: the same everywhere for the same seed.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.next() as u8).collect()
    }
}
