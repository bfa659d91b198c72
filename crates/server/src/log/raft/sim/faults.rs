//! What goes wrong, and what operators do meanwhile.

use std::path::Path;
use std::sync::Arc;

use super::super::message::Request;
use super::nodes::{Door, Node};
use super::operator;
use super::world::{World, note};

/// The nodes of a world, and what is under way with them.
pub(super) struct Faults {
    world: Arc<World>,
    pub(super) nodes: Vec<Node>,
    /// The number of a node that is to be taken out, and where it is if another shall come in its place. One at a
    /// time: if more were gone for good, what was committed might be gone with them.
    leaving: Option<(u64, Option<usize>)>,
    /// How many addresses there were.
    addresses: u64,
}

#[derive(Clone, Copy)]
enum Fault {
    Kill,
    PowerCut,
    Restart,
    Stop,
    Isolate,
    Split,
    OneWay,
    Heal,
    Weather,
    Transfer,
    Replace,
    LoseDisk,
}

impl Faults {
    /// Begins with one node; the others join it.
    pub(super) fn new(world: &Arc<World>, root: &Path, count: u64) -> Faults {
        let first = vec!["n1".to_owned()];
        let address = |number| format!("n{number}");
        let node = |number| match number {
            1 => Node::new(root, "n1", &[]),
            _ => Node::new(root, &address(number), &first),
        };
        let nodes = (1..=count).map(node).collect();
        Faults { world: Arc::clone(world), nodes, leaving: None, addresses: count }
    }

    fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.address.clone()).collect()
    }

    /// Does things for so long.
    pub(super) async fn rage(&mut self, ms: u64) {
        use Fault::*;
        let all = [
            (8, Kill),
            (6, PowerCut),
            (6, Restart),
            (8, Stop),
            (8, Isolate),
            (5, Split),
            (8, OneWay),
            (12, Heal),
            (6, Weather),
            (8, Transfer),
            (4, Replace),
            (3, LoseDisk),
        ];
        // Each world has its own troubles.
        let weights: Vec<(u64, Fault)> = all
            .into_iter()
            .map(|(weight, fault)| (if self.world.percent(60) { weight } else { 0 }, fault))
            .chain([(2, Kill), (4, Heal)])
            .collect();
        let (pace, end) = (self.world.pick(&[300, 1_000, 2_500]), self.world.now() + ms);
        while self.world.now() < end && self.world.judge.lock().wrong.is_none() {
            self.world.sleep(self.world.below(pace)).await;
            let fault = self.world.with_random(|random| random.weighted(&weights));
            self.happen(fault).await;
            self.revive();
        }
    }

    /// Those that have lost power, or found nobody to join, are started again.
    fn revive(&mut self) {
        for node in &mut self.nodes {
            if !node.is_up() {
                node.crash(&self.world, false);
                if self.world.percent(70) {
                    node.start(&self.world);
                }
            }
        }
    }

    async fn happen(&mut self, fault: Fault) {
        let at = self.world.below(self.nodes.len() as u64) as usize;
        match fault {
            Fault::Kill => self.nodes[at].crash(&self.world, self.world.percent(30)),
            Fault::PowerCut => {
                if let Some(process) = self.nodes[at].process() {
                    process.disk.order(self.world.between(1, 12));
                }
            }
            Fault::Restart => self.restart(at).await,
            Fault::Stop => self.stop(at),
            Fault::Isolate => self.isolate(at),
            Fault::Split => self.split(),
            Fault::OneWay => {
                let (from, to) =
                    (self.nodes[at].address.clone(), self.world.pick(&self.addresses()));
                note!(self.world, "nothing goes from {from} to {to}");
                self.world.net.lock().cut(&from, &to);
            }
            Fault::Heal => {
                note!(self.world, "links are whole again");
                self.world.net.lock().heal();
            }
            Fault::Weather => {
                let world = &self.world;
                let (lost, late) = (world.pick(&[0, 0, 20, 100]), world.pick(&[0, 50, 300]));
                let late_ms = world.pick(&[50, 400, 2_000]);
                note!(world, "of 1000 messages {lost} are lost, {late} up to {late_ms} ms late");
                let mut net = world.net.lock();
                (net.lost, net.late, net.late_ms) = (lost, late, late_ms);
            }
            Fault::Transfer => operator::transfer(&self.world).await,
            Fault::Replace => self.replace(at).await,
            Fault::LoseDisk => self.lose_disk(at).await,
        }
    }

    /// As an operator restarts it: it hands over first.
    async fn restart(&mut self, at: usize) {
        let address = self.nodes[at].address.clone();
        let member = self.world.doors.lock().get(&address).map(Door::member);
        if let Some(member) = member {
            note!(self.world, "{address} hands over, to be restarted");
            let handed_over = member.hand_over();
            drop(tokio::time::timeout(std::time::Duration::from_secs(3), handed_over).await);
        }
        self.nodes[at].crash(&self.world, false);
    }

    fn stop(&self, at: usize) {
        let Some(process) = self.nodes[at].process().cloned() else { return };
        let ms = self.world.pick(&[100, 600, 1_500, 5_000]);
        note!(self.world, "{} stops for {ms} ms", process.name);
        process.stop();
        let world = Arc::clone(&self.world);
        tokio::spawn(async move {
            world.sleep(ms).await;
            note!(world, "{} goes on", process.name);
            process.go_on();
        });
    }

    fn isolate(&self, at: usize) {
        let address = &self.nodes[at].address;
        note!(self.world, "{address} is alone");
        let (now, voters) = (self.world.now(), self.world.judge.lock().voters);
        let mut net = self.world.net.lock();
        for other in self.addresses().iter().filter(|other| *other != address) {
            net.cut(address, other);
            net.cut(other, address);
        }
        // Who is the only one to vote needs nobody.
        if voters > 1 {
            net.alone_since.entry(address.clone()).or_insert(now);
        }
    }

    fn split(&self) {
        let (ours, theirs): (Vec<String>, Vec<String>) =
            self.addresses().into_iter().partition(|_| self.world.percent(50));
        note!(self.world, "{ours:?} and {theirs:?} do not hear each other");
        let mut net = self.world.net.lock();
        for (a, b) in ours.iter().flat_map(|a| theirs.iter().map(move |b| (a, b))) {
            net.cut(a, b);
            net.cut(b, a);
        }
    }

    /// A node is taken out, and another comes in its place. Not while one is on its way in: it would be thrown away
    /// although it is about to vote.
    async fn replace(&mut self, at: usize) {
        if !self.has_left().await || !self.all_vote().await {
            return;
        }
        let Some(number) = self.nodes[at].number() else { return };
        note!(self.world, "{} ({number}) is to be replaced", self.nodes[at].address);
        self.leaving = Some((number, Some(at)));
        self.has_left().await;
    }

    /// A node comes back with an empty disk, as another one.
    async fn lose_disk(&mut self, at: usize) {
        if !self.has_left().await || !self.all_vote().await {
            return;
        }
        let Some(number) = self.nodes[at].number() else { return };
        self.nodes[at].crash(&self.world, false);
        self.nodes[at].lose_disk(&self.world);
        let others = self.addresses();
        self.nodes[at].join(&others);
        self.leaving = Some((number, None));
        self.nodes[at].start(&self.world);
    }

    /// Whether everyone who is there votes, and nobody else does.
    pub(super) async fn all_vote(&self) -> bool {
        let is_open = |node: &Node| self.world.doors.lock().contains_key(&node.address);
        if !self.nodes.iter().all(|node| node.is_up() && is_open(node)) {
            return false;
        }
        let Some(status) = operator::status(&self.world).await else { return false };
        let mut numbers: Vec<u64> = self.nodes.iter().filter_map(Node::number).collect();
        let voters = status.members.iter();
        let mut voters: Vec<u64> = voters
            .filter(|member| member.role == crate::cluster::Role::Voter)
            .map(|member| member.node)
            .collect();
        numbers.sort_unstable();
        voters.sort_unstable();
        // What a member shows may not be committed yet.
        let count = self.world.judge.lock().voters;
        status.leader.is_some() && count == self.nodes.len() && numbers == voters
    }

    /// Whether nobody is to be taken out any more; tries it once.
    pub(super) async fn has_left(&mut self) -> bool {
        let Some((number, replace)) = self.leaving else { return true };
        operator::lead(&self.world, &Request::Remove(number)).await;
        // What a member shows may not be committed yet.
        if self.world.judge.lock().members.contains(&number) {
            return false;
        }
        self.leaving = None;
        if let Some(at) = replace {
            self.nodes[at].crash(&self.world, false);
            self.addresses += 1;
            let (root, address) =
                (self.nodes[at].root().to_owned(), format!("n{}", self.addresses));
            let others = self.addresses();
            self.nodes[at] = Node::new(&root, &address, &others);
            // Nobody has cut it off.
            self.world.net.lock().alone_since.clear();
            self.nodes[at].start(&self.world);
        }
        true
    }

    /// Nothing is wrong any more: all are up, and hear each other.
    pub(super) fn heal(&mut self) {
        note!(self.world, "everything is whole again");
        self.world.net.lock().calm();
        for node in &mut self.nodes {
            if let Some(process) = node.process() {
                process.go_on();
                process.disk.calm();
            }
            if !node.is_up() {
                node.crash(&self.world, false);
                node.start(&self.world);
            }
        }
    }

    /// Starts those that could not; who is new is told who is there now.
    pub(super) fn help(&mut self) {
        let others = self.addresses();
        for node in &mut self.nodes {
            if !node.is_up() {
                node.crash(&self.world, false);
                if !node.is_first() {
                    node.join(&others);
                }
                node.start(&self.world);
            }
        }
    }
}
