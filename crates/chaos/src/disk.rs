//! A small disk that can be full: a tmpfs in a mount namespace of its own, so that nothing is left behind.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::Trouble;

/// Room for some segments, a snapshot and the reserve.
const SIZE: &str = "16m";

pub(crate) struct Disk {
    /// Keeps the namespace.
    process: Child,
    /// What enters it.
    pub(crate) enter: Vec<String>,
    pub(crate) dir: PathBuf,
}

impl Disk {
    pub(crate) fn new(dir: PathBuf) -> Result<Disk, Trouble> {
        std::fs::create_dir_all(&dir)?;
        // A user without rights may do this in a user namespace of its own; root may do without.
        let ways: [(&[&str], &[&str]); 2] = [
            (&["-U", "-r", "-m"], &["--user", "--preserve-credentials", "--mount"]),
            (&["-m"], &["--mount"]),
        ];
        for (unshare, nsenter) in ways {
            // It ends with its standard input, which is ours: also if we are killed.
            let script = format!(
                "mount -t tmpfs -o size={SIZE} tmpfs {} && echo ready && exec cat",
                dir.display()
            );
            let mut process = Command::new("unshare")
                .args(unshare)
                .args(["sh", "-c", &script])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()?;
            let mut line = String::new();
            let out = process.stdout.take().expect("it is piped");
            BufReader::new(out).read_line(&mut line)?;
            if line == "ready\n" {
                let target = process.id().to_string();
                let mut enter = vec!["nsenter".to_string(), "--target".into(), target];
                enter.extend(nsenter.iter().map(ToString::to_string));
                return Ok(Disk { process, enter, dir });
            }
            process.wait()?;
        }
        let text = "a small disk cannot be mounted here: run as root, or allow user namespaces";
        Err(Trouble::Setup(text.into()))
    }

    fn filler(&self) -> PathBuf {
        let inside = self.dir.strip_prefix("/").unwrap_or(&self.dir).join("filler");
        Path::new("/proc").join(self.process.id().to_string()).join("root").join(inside)
    }

    /// Takes all the room that is left.
    pub(crate) fn fill(&self) -> Result<(), Trouble> {
        let mut filler = File::options().create(true).append(true).open(self.filler())?;
        let mut piece = vec![0; 65_536];
        while !piece.is_empty() {
            match filler.write(&piece) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => {
                    piece.truncate(piece.len() / 2);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(crate) fn make_room(&self) {
        drop(std::fs::remove_file(self.filler()));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
