//! All members and the network between them, and what a fault does to them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use keylatch_server::cluster::{ClusterError, Fingerprint, Role, Visit};
use rustix::process::Signal;

use crate::Trouble;
use crate::disk::Disk;
use crate::fault::{Fault, Kind, Whom};
use crate::load::Load;
use crate::member::Member;
use crate::wires::Wires;

/// Nothing takes so long in a cluster that goes on, on whatever machine.
const HANG: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(crate) struct World {
    pub(crate) members: Vec<Member>,
    wires: Arc<Wires>,
    load: Arc<Load>,
    binary: PathBuf,
    dir: PathBuf,
    places: usize,
    /// A fault goes on.
    lasting: bool,
}

impl World {
    /// So many members that are one cluster. The last one has the small disk, if one is wanted.
    pub(crate) fn new(
        size: usize,
        with_disk: bool,
        binary: PathBuf,
        dir: PathBuf,
        load: Arc<Load>,
    ) -> Result<World, Trouble> {
        let wires = Arc::default();
        let (members, places, lasting) = (Vec::new(), 0, false);
        let mut world = World { members, wires, load, binary, dir, places, lasting };
        for count in 1..=size {
            let disk = match with_disk && count == size {
                true => Some(Disk::new(world.dir.join("small-disk"))?),
                false => None,
            };
            world.join(disk)?;
        }
        world.until_voters()?;
        Ok(world)
    }

    fn trouble(what: &str) -> Trouble {
        Trouble::Stuck(format!("{what}: not within {} s", HANG.as_secs()))
    }

    /// Waits for something that has to come.
    pub(crate) fn eventually<T>(
        &mut self,
        what: &str,
        mut found: impl FnMut(&mut World) -> Option<T>,
    ) -> Result<T, Trouble> {
        let since = Instant::now();
        while since.elapsed() < HANG {
            if let Some(found) = found(self) {
                return Ok(found);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Err(World::trouble(what))
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| member.address).collect()
    }

    /// Clients hear of whoever runs now.
    fn tell_clients(&self) {
        let now: Vec<SocketAddr> = self.members.iter().filter_map(Member::resp).collect();
        if let Ok(mut addresses) = self.load.shared.addresses.lock() {
            *addresses = now;
        }
    }

    /// One more member; at its place in `members`.
    fn join(&mut self, disk: Option<Disk>) -> Result<usize, Trouble> {
        let place = self.places;
        self.places += 1;
        let address = self.wires.add(place)?;
        let dir = self.dir.join(format!("member-{place}"));
        let member = Member::on(place, address, dir, disk)?;
        let join = self.addresses();
        self.members.push(member);
        let at = self.members.len() - 1;
        self.start(at, &join)?;
        Ok(at)
    }

    fn start(&mut self, at: usize, join: &[SocketAddr]) -> Result<(), Trouble> {
        let member = &mut self.members[at];
        member.start(&self.binary, join)?;
        self.wires.leads_to(member.place, member.peer().expect("it runs"));
        self.tell_clients();
        let node = self.eventually("a status of a member that has started", |world| {
            Some(world.members[at].status()?.node)
        })?;
        self.members[at].node = node;
        self.wires.knows(self.members[at].place, node);
        Ok(())
    }

    /// Starts whoever does not run.
    fn start_again(&mut self) -> Result<(), Trouble> {
        for at in 0..self.members.len() {
            if !self.members[at].is_running() {
                self.start(at, &[])?;
            }
        }
        Ok(())
    }

    fn until_voters(&mut self) -> Result<(), Trouble> {
        let nodes: Vec<u64> = self.members.iter().map(|member| member.node).collect();
        for at in 0..self.members.len() {
            self.eventually("all members vote", |world| {
                let members = world.members[at].status()?.members;
                let all = members.len() == nodes.len()
                    && members
                        .iter()
                        .all(|one| one.role == Role::Voter && nodes.contains(&one.node));
                all.then_some(())
            })?;
        }
        Ok(())
    }

    /// Where the leader is, as those say who have heard of the latest.
    fn leader(&mut self) -> Result<usize, Trouble> {
        self.eventually("a leader", |world| {
            let seen = world.members.iter().filter_map(Member::status);
            let latest = seen.max_by_key(|status| (status.term, status.leader.is_some()))?;
            world.members.iter().position(|member| Some(member.node) == latest.leader)
        })
    }

    fn whom(&mut self, whom: Whom) -> Result<usize, Trouble> {
        match whom {
            Whom::Leader => self.leader(),
            Whom::At(at) => Ok((at % self.members.len() as u64) as usize),
        }
    }

    /// Asks the leader for something, again and again: another may lead by then.
    fn insist(
        &mut self,
        what: &str,
        ask: impl Fn(&Visit) -> Result<(), ClusterError>,
        is_done: impl Fn(&World) -> bool,
    ) -> Result<(), Trouble> {
        let mut why = String::new();
        let done = self.eventually(what, |world| {
            for member in &world.members {
                match member.visit().map(|visit| ask(&visit)) {
                    Some(Ok(())) => return Some(()),
                    Some(Err(error)) => why = error.to_string(),
                    None => {}
                }
                // It may have been done by a try that had no answer.
                if is_done(world) {
                    return Some(());
                }
            }
            None
        });
        done.map_err(|_| Trouble::Stuck(format!("{what}: {why}")))
    }

    fn remove(&mut self, node: u64) -> Result<(), Trouble> {
        let is_out = |world: &World| {
            let mut seen = world.members.iter().filter_map(Member::status);
            seen.any(|status| {
                Some(status.node) == status.leader
                    && status.members.iter().all(|one| one.node != node)
            })
        };
        self.insist("a member is taken out", |visit| visit.remove(node), is_out)
    }

    fn transfer(&mut self, to: usize) -> Result<(), Trouble> {
        let node = self.members[to].node;
        let leads = |world: &World| {
            world.members[to].status().is_some_and(|status| status.leader == Some(node))
        };
        if self.lasting {
            // Who is cut off cannot take over, and nobody need say yes; but asking must do no harm.
            for member in &self.members {
                drop(member.visit().map(|visit| visit.transfer(node)));
            }
            return Ok(());
        }
        self.insist("another one leads", |visit| visit.transfer(node), leads)
    }

    /// Links from and to one member, to and from all others.
    fn around(&self, at: usize, out: bool, back: bool) -> Vec<(usize, usize)> {
        let here = self.members[at].place;
        let others = self.members.iter().map(|member| member.place).filter(|place| *place != here);
        let both = others.flat_map(|place| [(out, (here, place)), (back, (place, here))]);
        both.filter(|(wanted, _)| *wanted).map(|(_, link)| link).collect()
    }

    /// Does it; whom it struck, for people.
    pub(crate) fn strike(&mut self, fault: &Fault) -> Result<String, Trouble> {
        let at = self.whom(fault.whom)?;
        let choice = fault.choice;
        let said = format!("{}, {} ms", self.members[at], fault.lasts.as_millis());
        self.lasting |= fault.kind.lasts();
        match fault.kind {
            Kind::Kill => {
                self.members[at].kill();
                std::thread::sleep(fault.lasts / 2);
                self.start_again()?;
            }
            Kind::KillAll => {
                for member in &mut self.members {
                    member.kill();
                }
                std::thread::sleep(fault.lasts / 4);
                self.start_again()?;
            }
            Kind::Pause => self.members[at].signal(Signal::STOP),
            Kind::Isolate => self.wires.cut(self.around(at, true, true), choice.is_multiple_of(2)),
            Kind::Cut => {
                let steps = 1 + choice as usize % (self.members.len() - 1);
                let other = self.members[(at + steps) % self.members.len()].place;
                let here = self.members[at].place;
                self.wires.cut([(here, other), (other, here)], choice.is_multiple_of(3));
            }
            Kind::OneWay => {
                let out = choice.is_multiple_of(2);
                self.wires.cut(self.around(at, out, !out), choice.is_multiple_of(3));
            }
            Kind::Slow => {
                let by = Duration::from_millis(5 + choice % 120);
                self.wires.slow(self.around(at, true, true), by);
            }
            Kind::Clock => self.members[at].clock_is_off_by((choice % 97).cast_signed() - 48)?,
            Kind::Full => return self.fill(fault),
            Kind::Lost => return self.lose(at),
            Kind::Resize => self.resize(choice)?,
            Kind::Rolling => {
                for at in 0..self.members.len() {
                    self.members[at].stop()?;
                    self.start_again()?;
                    self.until_voters()?;
                }
            }
            Kind::Transfer => {
                let at = (choice % self.members.len() as u64) as usize;
                self.transfer(at)?;
                return Ok(format!("to {}", self.members[at]));
            }
        }
        Ok(said)
    }

    /// All that lasts is over.
    pub(crate) fn heal(&mut self) -> Result<(), Trouble> {
        self.wires.heal();
        self.lasting = false;
        for member in &self.members {
            member.signal(Signal::CONT);
            if let Some(disk) = &member.disk {
                disk.make_room();
            }
        }
        for at in 0..self.members.len() {
            if self.members[at].has_died() {
                let member = &self.members[at];
                let said = format!("{member} has ended by itself: {}", member.last_words());
                self.load.judge.condemns(said);
                self.members[at].kill();
            }
        }
        self.start_again()
    }

    fn fill(&mut self, fault: &Fault) -> Result<String, Trouble> {
        let with = self.members.iter().position(|member| member.disk.is_some());
        let at = with.expect("nobody with a small disk is taken out");
        if fault.whom == Whom::Leader {
            self.transfer(at)?;
        }
        let disk = self.members[at].disk.as_ref().expect("it was looked for");
        disk.fill()?;
        Ok(format!("{}, {} ms", self.members[at], fault.lasts.as_millis()))
    }

    /// This one, or the next: whose disk is small is not taken out, there would be no other.
    fn without_disk(&self, at: usize) -> usize {
        if self.members[at].disk.is_some() { (at + 1) % self.members.len() } else { at }
    }

    fn lose(&mut self, at: usize) -> Result<String, Trouble> {
        let at = self.without_disk(at);
        let was = self.members[at].node;
        self.members[at].kill();
        self.members[at].lose_data();
        let mut join = self.addresses();
        join.remove(at);
        self.start(at, &join)?;
        self.remove(was)?;
        self.until_voters()?;
        Ok(self.members[at].to_string())
    }

    fn resize(&mut self, choice: u64) -> Result<(), Trouble> {
        for _ in 0..2 {
            self.join(None)?;
            self.until_voters()?;
        }
        for turn in 0..2 {
            let out = (choice >> (8 * turn)) as usize % self.members.len();
            let out = if turn == 0 { self.leader()? } else { out };
            let out = self.without_disk(out);
            self.remove(self.members[out].node)?;
            // It runs on for a moment, and must not disturb anybody.
            std::thread::sleep(Duration::from_millis(choice % 700));
            self.members.remove(out);
            self.tell_clients();
            self.until_voters()?;
        }
        Ok(())
    }

    /// Until all have applied the same, and then they have the same.
    pub(crate) fn until_equal(&mut self) -> Result<(), Trouble> {
        self.eventually("all members have applied as much", |world| {
            let all = world.members.iter().map(|member| member.visit()?.fingerprint().ok());
            let all: Vec<Fingerprint> = all.collect::<Option<_>>()?;
            let as_far = all.iter().all(|one| one.applied == all[0].applied);
            if as_far && all.iter().any(|one| one.hash != all[0].hash) {
                world.load.judge.condemns(format!("tables are not the same: {all:?}"));
            }
            as_far.then_some(())
        })
    }

    /// Kills all and puts their data aside; or puts it back, as somebody with an old backup would.
    pub(crate) fn old_copy(&mut self, back: bool) -> Result<(), Trouble> {
        for member in &mut self.members {
            member.kill();
        }
        for member in &self.members {
            let copy = member.data.with_extension("copy");
            let (from, to) = if back { (&copy, &member.data) } else { (&member.data, &copy) };
            drop(std::fs::remove_dir_all(to));
            copy_all(from, to)?;
        }
        self.start_again()
    }

    /// Clients know one more address, whatever it is.
    pub(crate) fn mislead(&self, address: SocketAddr) {
        if let Ok(mut addresses) = self.load.shared.addresses.lock() {
            addresses.push(address);
        }
    }
}

fn copy_all(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_all(&entry.path(), &to)?;
        } else {
            std::fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}
