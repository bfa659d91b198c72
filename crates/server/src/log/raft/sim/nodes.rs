//! The nodes of a world: each is a process on a disk, which is killed and started again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use keylatch_table::Settings;
use tokio::sync::{Notify, mpsc};

use super::super::NodeError;
use super::super::identity::Identity;
use super::super::member::{Member, Start};
use super::disk::{self, Platter};
use super::here::Process;
use super::net::{Caller, Place};
use super::server::{Ask, Server};
use super::world::{Plant, World, note};
use crate::config::LogSizes;

/// Small, so that a run goes through many files and snapshots.
const SIZES: LogSizes =
    LogSizes { segment_bytes: 16 << 10, reserve_bytes: 0, snapshot_bytes: 6 << 10 };

/// Where clients find a process that serves.
pub(super) struct Door {
    pub(super) asks: mpsc::UnboundedSender<Ask>,
    pub(super) process: Arc<Process>,
    member: Arc<Member>,
}

impl Door {
    pub(super) fn member(&self) -> Arc<Member> {
        Arc::clone(&self.member)
    }
}

pub(super) struct Node {
    pub(super) address: String,
    /// Whom it asks to be let in, if it was not the first.
    join: Vec<String>,
    root: PathBuf,
    /// Lives so far, over all of its disks.
    life: u32,
    dir: PathBuf,
    process: Option<Arc<Process>>,
}

impl Node {
    pub(super) fn new(root: &Path, address: &str, join: &[String]) -> Node {
        let (root, dir) = (root.to_owned(), root.join(format!("{address}-0")));
        std::fs::create_dir_all(&dir).unwrap();
        let join = join.iter().filter(|other| *other != address).cloned().collect();
        Node { address: address.into(), join, root, life: 0, dir, process: None }
    }

    pub(super) fn is_up(&self) -> bool {
        self.process.as_ref().is_some_and(|process| !process.is_dead())
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn process(&self) -> Option<&Arc<Process>> {
        self.process.as_ref()
    }

    /// Begins another life. It is there when clients find it.
    pub(super) fn start(&mut self, world: &Arc<World>) {
        assert!(self.process.is_none(), "it runs");
        self.life += 1;
        let name = format!("{}.{}", self.address, self.life);
        note!(world, "{name} starts");
        let platter = Arc::new(Platter::new(world.plant == Plant::LyingDisks));
        let process = Process::new(name, platter);
        self.process = Some(Arc::clone(&process));
        let (dir, join, address) = (self.dir.clone(), self.join.clone(), self.address.clone());
        tokio::spawn(boot(Arc::clone(world), process, dir, address, join));
    }

    /// Ends its life as a crash does; `power`: what was not synced is lost.
    pub(super) fn crash(&mut self, world: &World, power: bool) {
        let Some(process) = self.process.take() else { return };
        process.kill();
        note!(world, "{} is killed, power {power}", process.name);
        world.doors.lock().remove(&self.address);
        let next = self.root.join(format!("{}-{}", self.address, self.life));
        disk::copy(&self.dir, &next);
        let log = next.join("log");
        if (power || process.disk.is_without_power()) && log.is_dir() {
            world.with_random(|random| process.disk.lose(&self.dir.join("log"), &log, random));
        }
        self.dir = next;
    }

    /// Nothing is left of its disk: the next life is another node.
    pub(super) fn lose_disk(&mut self, world: &World) {
        assert!(self.process.is_none(), "it runs");
        note!(world, "the disk of {} is lost", self.address);
        self.dir = self.root.join(format!("{}-{}-new", self.address, self.life));
        std::fs::create_dir_all(&self.dir).unwrap();
    }

    /// Whether the cluster began with it.
    pub(super) fn is_first(&self) -> bool {
        self.join.is_empty()
    }

    /// Whom it asks from now on, if it is new.
    pub(super) fn join(&mut self, others: &[String]) {
        self.join = others.iter().filter(|other| **other != self.address).cloned().collect();
    }

    /// Its number, once it has one.
    pub(super) fn number(&self) -> Option<u64> {
        Identity::read(&self.dir).ok().flatten().map(|identity| identity.node)
    }
}

async fn boot(
    world: Arc<World>,
    process: Arc<Process>,
    dir: PathBuf,
    address: String,
    join: Vec<String>,
) {
    let (wake, name) = (Arc::new(Notify::new()), process.name.clone());
    let waker = Arc::clone(&wake);
    let start = Start {
        dir: dir.clone(),
        sizes: SIZES,
        settings: Settings::default(),
        hash_seed: world.bits(),
        channel: Arc::new(Caller { world: Arc::clone(&world), own: address.clone() }),
        serves: Box::new(Place {
            world: Arc::clone(&world),
            own: address.clone(),
            process: Arc::clone(&process),
        }),
        address: address.clone(),
        join,
        wake: Box::new(move || waker.notify_one()),
    };
    let (member, life) = match process.spawn(Member::open(start)).await {
        Ok(Ok(opened)) => opened,
        // It was killed.
        Err(_) => return,
        Ok(Err(error @ NodeError::NobodyToJoin(_))) => {
            return note!(world, "{name} does not start: {error}");
        }
        Ok(Err(error)) if process.is_dead() => {
            return note!(world, "{name} has no power: {error}");
        }
        Ok(Err(error)) => {
            note!(world, "{name} cannot start: {error}");
            return world.judge.lock().find(format!("{name} cannot start: {error}"));
        }
    };
    if process.is_dead() {
        return;
    }
    let identity = Identity::read(&dir).unwrap().expect("it has begun");
    let me = (identity.node, identity.incarnation);
    note!(world, "{name} is there: {me:?}");
    let (asks, taken) = mpsc::unbounded_channel();
    let desk = Arc::clone(&member.desk);
    let server = Server::new(Arc::clone(&world), desk, (name, address.clone(), me), taken, wake);
    process.spawn(life);
    process.spawn(server.run());
    let door = Door { asks, process, member: Arc::new(member) };
    world.doors.lock().insert(address, door);
}
