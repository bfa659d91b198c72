//! A disk that can lose power: what was not synced is lost, sector by sector. Files are real ones; the system
//! calls return at once, so a loss of power between two of them has to be ordered.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use keylatch_lab::random::Random;
use parking_lot::Mutex;

use crate::log::store::disk::{Disk, Os};

const SECTOR: u64 = 512;

#[derive(Debug, Default)]
pub(super) struct Platter(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Calls until the power goes, if that was ordered.
    left: Option<u64>,
    /// By inode: what was written over since the last sync of that file, the newest last.
    dirty: BTreeMap<u64, Vec<(u64, Vec<u8>)>>,
    /// A rename that the directory has not been synced for.
    renamed: Option<(PathBuf, PathBuf)>,
    /// Planted: it says that it has synced, but the last write of each file is not.
    lies: bool,
}

impl Platter {
    pub(super) fn new(lies: bool) -> Platter {
        Platter(Mutex::new(State { lies, ..State::default() }))
    }

    /// The power goes at one of the next calls.
    pub(super) fn order(&self, calls: u64) {
        let mut state = self.0.lock();
        if state.left != Some(0) {
            state.left = Some(calls);
        }
    }

    /// The power stays, unless it has gone.
    pub(super) fn calm(&self) {
        self.0.lock().left.take_if(|left| *left > 0);
    }

    pub(super) fn is_without_power(&self) -> bool {
        self.0.lock().left == Some(0)
    }

    /// The call that meets the loss of power still reaches the disk, but nobody hears of it.
    fn call<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.0.lock();
        match state.left {
            Some(0) => Err(io::Error::other("no power")),
            Some(1) => {
                state.left = Some(0);
                act(&mut state)?;
                Err(io::Error::other("the power goes"))
            }
            left => {
                state.left = left.map(|left| left - 1);
                act(&mut state)
            }
        }
    }

    /// Loses a part of what was not synced, all of it if it has lied, in a copy of the directory.
    pub(super) fn lose(&self, log: &Path, copy: &Path, random: &mut Random) {
        let mut state = self.0.lock();
        let mut files: Vec<(u64, PathBuf)> = fs::read_dir(log)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.metadata().unwrap().ino(), copy.join(entry.file_name())))
            .collect();
        files.sort_unstable_by(|a, b| a.1.cmp(&b.1));
        for (inode, path) in files {
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            // From the newest on: so what was there before all of them is what is left in the end.
            for (offset, before) in state.dirty.remove(&inode).unwrap_or_default().iter().rev() {
                let (mut at, all) = (*offset, offset + before.len() as u64);
                while at < all {
                    let end = (at + 1).next_multiple_of(SECTOR).min(all);
                    if state.lies || random.percent(33) {
                        let before = &before[(at - offset) as usize..(end - offset) as usize];
                        file.write_all_at(before, at).unwrap();
                    }
                    at = end;
                }
            }
        }
        if let Some((from, to)) = state.renamed.take()
            && random.percent(50)
        {
            let name = |path: &Path| copy.join(path.file_name().unwrap());
            fs::rename(name(&to), name(&from)).unwrap();
        }
    }
}

impl Disk for Platter {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.call(|state| {
            let inode = file.metadata()?.ino();
            // What was made ahead of time is zeros already.
            if bytes.iter().any(|byte| *byte != 0) {
                let mut before = vec![0; bytes.len()];
                file.read_exact_at(&mut before, offset)?;
                state.dirty.entry(inode).or_default().push((offset, before));
            }
            Os.write_at(file, bytes, offset)
        })
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        self.call(|state| {
            let inode = file.metadata()?.ino();
            if state.left == Some(0) {
                return Ok(());
            }
            let dirty = state.dirty.remove(&inode);
            if let Some(last) = dirty.and_then(|mut dirty| dirty.pop()).filter(|_| state.lies) {
                state.dirty.insert(inode, vec![last]);
            }
            Ok(())
        })
    }

    fn sync_dir(&self, _: &File) -> io::Result<()> {
        self.call(|state| {
            if state.left != Some(0) {
                state.renamed = None;
            }
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(|state| {
            state.renamed = Some((from.into(), to.into()));
            Os.rename(from, to)
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(|_| Os.remove(path))
    }
}

/// A directory with the same files: what the next life of a node finds.
pub(super) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let there = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &there),
            false => drop(fs::copy(&path, there).unwrap()),
        }
    }
}
