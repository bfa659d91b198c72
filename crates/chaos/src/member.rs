//! One member: a process of the real binary, its data, its address between members, and a wall clock of its own.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use keylatch_server::cluster::{Status, Visit};
use rustix::process::{Pid, Signal, kill_process};

use crate::Trouble;
use crate::disk::Disk;

/// Small files, so that segments and snapshots come and go within a run.
const CONFIG: &str = "leader_wait_ms = 500
[log]
segment_bytes = 262144
reserve_bytes = 65536
snapshot_bytes = 524288
";
/// How long a start may take.
const STARTS: Duration = Duration::from_secs(90);

/// A member, running or not.
pub struct Member {
    /// Where it is in the network; no other member ever has the same.
    pub(crate) place: usize,
    /// As what the others know it.
    pub address: SocketAddr,
    /// Its number in the cluster, which changes only with its data.
    pub(crate) node: u64,
    pub(crate) disk: Option<Disk>,
    /// Everything of it: data, clock, what it says.
    dir: PathBuf,
    /// Its data; another one each time it is lost.
    pub(crate) data: PathBuf,
    running: Option<Running>,
}

struct Running {
    process: Child,
    resp: SocketAddr,
    peer: SocketAddr,
}

impl Member {
    /// With all that it has in a folder, its data too.
    pub fn new(place: usize, address: SocketAddr, dir: PathBuf) -> Result<Member, Trouble> {
        Member::on(place, address, dir, None)
    }

    /// With its data on a disk of its own.
    pub(crate) fn on(
        place: usize,
        address: SocketAddr,
        dir: PathBuf,
        disk: Option<Disk>,
    ) -> Result<Member, Trouble> {
        std::fs::create_dir_all(&dir)?;
        let data = disk.as_ref().map_or(dir.join("data"), |disk| disk.dir.join("data"));
        let member = Member { place, address, node: 0, disk, dir, data, running: None };
        std::fs::write(member.dir.join("config.toml"), CONFIG)?;
        member.clock_is_off_by(0)?;
        Ok(member)
    }

    /// Its wall clock jumps; its monotonic one does not, as with a real jump.
    pub fn clock_is_off_by(&self, hours: i64) -> Result<(), Trouble> {
        Ok(std::fs::write(self.dir.join("clock"), format!("{:+}\n", hours * 3_600))?)
    }

    /// Starts it; it joins whoever is there, unless it is a member already.
    pub fn start(&mut self, binary: &Path, join: &[SocketAddr]) -> Result<(), Trouble> {
        let enter = self.disk.iter().flat_map(|disk| disk.enter.iter().cloned());
        let mut words: Vec<String> = enter.collect();
        words.push(binary.display().to_string());
        let mut command = Command::new(&words[0]);
        let resp = format!("{}:0", own_loopback());
        command.args(&words[1..]).args(["serve", "--resp", &resp, "--enqueue", "off"]);
        command.args(["--http", "off", "--peer", "127.0.0.1:0", "--peer-address"]);
        command.arg(self.address.to_string()).arg("--data").arg(&self.data);
        command.arg("--config").arg(self.dir.join("config.toml"));
        if !join.is_empty() {
            let join: Vec<String> = join.iter().map(ToString::to_string).collect();
            command.arg("--join").arg(join.join(","));
        }
        if let Some(library) = faketime() {
            command.env("LD_PRELOAD", library);
            command.env("FAKETIME_TIMESTAMP_FILE", self.dir.join("clock"));
            command.env("FAKETIME_CACHE_DURATION", "1");
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
        }
        let said = File::options().create(true).append(true).open(self.said())?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(said);
        // Ctrl-C is for us: we end them when we are done.
        command.process_group(0);
        let mut process = command.spawn()?;
        let out = process.stdout.take().expect("it is piped");
        let Some((resp, peer)) = addresses(out) else {
            drop(process.kill());
            drop(process.wait());
            return Err(Trouble::Stuck(format!("{self} does not start: {}", self.last_words())));
        };
        running().push(process.id());
        self.running = Some(Running { process, resp, peer });
        Ok(())
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Where clients come in, and where other members really come in.
    pub fn resp(&self) -> Option<SocketAddr> {
        self.running.as_ref().map(|running| running.resp)
    }

    /// See there.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.running.as_ref().map(|running| running.peer)
    }

    /// Asks it, without the network between.
    pub fn visit(&self) -> Option<Visit> {
        self.peer().map(|peer| Visit::plainly(&peer))
    }

    /// The cluster, as it sees it.
    pub fn status(&self) -> Option<Status> {
        self.visit()?.status().ok()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = self.running.as_ref().and_then(|it| Pid::from_raw(it.process.id().cast_signed()));
        if let Some(id) = id {
            // It may have ended; then there is nobody to tell.
            let _ = kill_process(id, signal);
        }
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            end(running);
        }
    }

    /// As an operator stops it: it hands over, if it leads.
    pub(crate) fn stop(&mut self) -> Result<(), Trouble> {
        self.signal(Signal::TERM);
        let Some(mut running) = self.running.take() else { return Ok(()) };
        for _ in 0..STARTS.as_millis() / 20 {
            if running.process.try_wait()?.is_some() {
                end(running);
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        end(running);
        Err(Trouble::Stuck(format!("{self} does not stop")))
    }

    /// It has ended, and nobody has told it to.
    pub(crate) fn has_died(&mut self) -> bool {
        let running = self.running.as_mut();
        running.is_some_and(|running| matches!(running.process.try_wait(), Ok(Some(_))))
    }

    /// Its data is gone; it will be somebody else.
    pub(crate) fn lose_data(&mut self) {
        if self.disk.is_none() {
            drop(std::fs::remove_dir_all(&self.data));
        }
        self.node = 0;
    }

    fn said(&self) -> PathBuf {
        self.dir.join("said")
    }

    /// The end of what it said, for people.
    pub(crate) fn last_words(&self) -> String {
        let text = std::fs::read_to_string(self.said()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}

impl std::fmt::Display for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "member {}", self.place)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A loopback address that no other run has. Clients go on asking at the ports of members that were killed, and on the
/// address that everybody uses another test's server may be there by then: it would grant what this cluster does not know of.
fn own_loopback() -> Ipv4Addr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 | high, middle, low)
}

/// Processes that run, for a run that ends at once.
static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

fn running() -> MutexGuard<'static, Vec<u32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn end(mut ended: Running) {
    drop(ended.process.kill());
    drop(ended.process.wait());
    running().retain(|id| *id != ended.process.id());
}

/// Kills every member of this process, whatever becomes of those who wait for them.
pub fn kill_all() {
    for id in running().iter().filter_map(|id| Pid::from_raw(id.cast_signed())) {
        let _ = kill_process(id, Signal::KILL);
    }
}

/// RESP, and peers, as it says them when it is ready.
fn addresses(out: std::process::ChildStdout) -> Option<(SocketAddr, SocketAddr)> {
    let (found, wait) = mpsc::channel();
    // It reads on, so that nobody waits for a reader.
    std::thread::spawn(move || {
        let (mut resp, mut found) = (None, Some(found));
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            let after =
                |name: &str| line.split_once(name).and_then(|(_, rest)| rest.trim().parse().ok());
            resp = resp.or_else(|| after("RESP on "));
            if let (Some(resp), Some(peer)) = (resp, after("peers on "))
                && let Some(found) = found.take()
            {
                let _ = found.send((resp, peer));
            }
        }
    });
    wait.recv_timeout(STARTS).ok()
}

/// What stands between a process and its wall clock, if it is installed.
pub(crate) fn faketime() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    let mut found = folders.map(|dir| dir.join("faketime/libfaketimeMT.so.1"));
    found.find(|path| path.exists())
}
