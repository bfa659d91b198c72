//! Power cuts at random calls: what was not synced is lost sector by sector, and the opening after
//! it finds the state before or after the call that was under way (L1), never a damaged log.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex};

use super::super::disk::{Disk, Os};
use super::*;

const SECTOR: usize = 512;

#[derive(Debug, Default)]
struct Cached {
    /// Calls until the power goes.
    left: u64,
    /// Inode, offset and what was there before of what was written since the last sync of that file.
    dirty: Vec<(u64, u64, Vec<u8>)>,
    /// A rename that the directory has not been synced for.
    renamed: Option<(PathBuf, PathBuf)>,
}

#[derive(Debug, Default)]
struct Power(Mutex<Cached>);

impl Power {
    /// Counts a call; the one that meets the power cut still happens, but nobody hears of it.
    fn call<T>(&self, act: impl FnOnce(&mut Cached) -> io::Result<T>) -> io::Result<T> {
        let mut cached = self.0.lock().unwrap();
        match cached.left {
            0 => Err(io::Error::other("no power")),
            1 => {
                cached.left = 0;
                act(&mut cached)?;
                Err(io::Error::other("the power goes"))
            }
            _ => {
                cached.left -= 1;
                act(&mut cached)
            }
        }
    }

    /// Loses a random part of what was not synced.
    fn cut(&self, dir: &Path, random: &mut Random) {
        let mut cached = self.0.lock().unwrap();
        if let Some((from, to)) = cached.renamed.take()
            && random.below(2) == 0
        {
            fs::rename(to, from).unwrap();
        }
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            let inode = file.metadata().unwrap().ino();
            // From the newest on: so what was there before all of them is what is left in the end.
            for (_, offset, before) in cached.dirty.iter().rev().filter(|(of, ..)| *of == inode) {
                for sector in before.chunks(SECTOR).zip((*offset..).step_by(SECTOR)) {
                    if random.below(3) == 0 {
                        file.write_all_at(sector.0, sector.1).unwrap();
                    }
                }
            }
        }
        cached.dirty.clear();
    }
}

impl Disk for Power {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.call(|cached| {
            let mut before = vec![0; bytes.len()];
            // A file that is being made is shorter.
            let _ = file.read_at(&mut before, offset)?;
            cached.dirty.push((file.metadata()?.ino(), offset, before));
            Os.write_at(file, bytes, offset)
        })
    }

    // The cut must be able to come before the sync, so that one is not carried out when it meets it.
    fn sync_data(&self, file: &File) -> io::Result<()> {
        self.call(|cached| {
            let inode = file.metadata()?.ino();
            if cached.left > 0 {
                cached.dirty.retain(|(of, ..)| *of != inode);
            }
            Ok(())
        })
    }

    fn sync_dir(&self, _: &File) -> io::Result<()> {
        self.call(|cached| {
            if cached.left > 0 {
                cached.renamed = None;
            }
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(|cached| {
            cached.renamed = Some((from.into(), to.into()));
            Os.rename(from, to)
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(|_| Os.remove(path))
    }
}

#[test]
fn after_a_power_cut_a_call_has_happened_or_not() {
    let (mut cuts, mut lost, mut kept) = (0, 0, 0);
    for seed in 0..10 {
        let dir = tempfile::tempdir().unwrap();
        let mut random = Random::new(seed);
        let mut model = Model::default();
        for round in 0..60 {
            // The opening itself always gets through; it writes over more than zeros.
            let found = open(dir.path()).1;
            assert_eq!(Model::from(found), model, "seed {seed} round {round}");
            let disk = Arc::new(Power::default());
            disk.0.lock().unwrap().left = u64::MAX;
            let mut store = Store::open_on(disk.clone(), dir.path(), SMALL).unwrap().0;
            disk.0.lock().unwrap().left = 1 + random.below(40);
            let op = loop {
                let op = model.random(&mut random);
                match model.call(&mut store, &op) {
                    Ok(()) => model.apply(&op),
                    Err(_) => break op,
                }
            };
            assert!(store.save_meta(b"no").is_err(), "poisoned");
            drop(store);
            disk.cut(dir.path(), &mut random);
            let (_, found) = open(dir.path());
            cuts += usize::from(found.cut.is_some());
            let (found, before) = (Model::from(found), model.clone());
            model.apply(&op);
            if found == before && found != model {
                lost += 1;
                model = before;
            } else {
                kept += 1;
                assert_eq!(found, model, "seed {seed} round {round} {op:?}");
            }
        }
    }
    assert!(cuts > 20 && lost > 50 && kept > 50, "{cuts} {lost} {kept}: the test tests nothing");
}
