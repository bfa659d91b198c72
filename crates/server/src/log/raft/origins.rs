//! What the log says of the members that send batches: which batch of each came last, so that one that was
//! sent twice counts once; and at which member somebody waits for which request, so that a member's end
//! detaches its waiters and nobody else's. It follows from the log alone, so it is the same everywhere, and
//! it is in snapshots.

use std::collections::{BTreeMap, BTreeSet};

use keylatch_table::{
    Applied, Command, Event, Reply, RequestId, TaskAction, TaskCommand, TaskEvent, TaskReply,
};

use super::bytes::{BadBytes, Reader};
use super::types::Stamp;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origins {
    /// By node: its life, and the last batch of that.
    last: BTreeMap<u64, (u64, u64)>,
    /// By request: the node where its connection is.
    waiting: BTreeMap<RequestId, u64>,
    /// How many of them there are at a node, if any.
    counts: BTreeMap<u64, usize>,
}

/// What a batch is to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It was here before, or is of a life that has ended.
    Again,
    Next,
    /// The first one of a life: the connections of the one before are gone.
    NewLife,
}

/// What has to be known of a command before it is carried out.
pub(crate) enum Noted {
    /// This may have to wait.
    MayWait(RequestId),
    /// The connections of these are gone.
    Left(Vec<RequestId>),
    Nothing,
}

impl Noted {
    pub(crate) fn of(command: &Command) -> Noted {
        match command {
            Command::Acquire(ask) if ask.wait_ms > 0 => Noted::MayWait(ask.id.clone()),
            Command::Task(TaskCommand { id, action: TaskAction::Claim(claim), .. })
                if claim.wait_ms > 0 =>
            {
                Noted::MayWait(id.clone())
            }
            Command::Detach(detach) => Noted::Left(detach.ids.clone().unwrap_or_default()),
            _ => Noted::Nothing,
        }
    }
}

impl Origins {
    pub(crate) fn is_empty(&self) -> bool {
        self.last.is_empty() && self.waiting.is_empty()
    }

    /// A batch comes. Its number counts from now on.
    pub(crate) fn arrive(&mut self, stamp: &Stamp) -> Arrival {
        let Stamp { node, incarnation, number } = *stamp;
        let last = self.last.insert(node, (incarnation, number));
        match last {
            #[cfg(test)]
            Some(_) if super::sim::counts_twice() => Arrival::Next,
            Some(last) if last >= (incarnation, number) => {
                self.last.insert(node, last);
                Arrival::Again
            }
            Some((life, _)) if life == incarnation => Arrival::Next,
            _ => Arrival::NewLife,
        }
    }

    /// Whether a batch of this node has ever counted.
    pub(crate) fn knows(&self, node: u64) -> bool {
        self.last.contains_key(&node)
    }

    /// The last batch of a node's life that counted; 0 if none did.
    pub(crate) fn last(&self, node: u64, incarnation: u64) -> u64 {
        match self.last.get(&node) {
            Some((life, number)) if *life == incarnation => *number,
            _ => 0,
        }
    }

    /// A command was carried out for a node, or for nobody's connections.
    pub(crate) fn note(&mut self, node: Option<u64>, noted: Noted, applied: &Applied) {
        if let (Noted::Left(ids), true) = (&noted, !self.waiting.is_empty()) {
            for id in ids {
                self.decide(id);
            }
        }
        if !self.waiting.is_empty() {
            for event in &applied.events {
                if let Some(id) = decided(event) {
                    self.decide(id);
                }
            }
        }
        if let (Some(node), Noted::MayWait(id)) = (node, noted) {
            match &applied.reply {
                Reply::Waiting(_) | Reply::Task(TaskReply::Waiting) => self.wait(id, node),
                _ => self.decide(&id),
            }
        }
    }

    /// A node says late that a connection is gone: who has come back by another one since then waits there.
    pub(crate) fn without_returned(&self, node: Option<u64>, command: Command) -> Command {
        match command {
            Command::Detach(mut detach) if node.is_some() => {
                if let Some(ids) = &mut detach.ids {
                    ids.retain(|id| self.waiting.get(id).is_none_or(|at| Some(*at) == node));
                }
                Command::Detach(detach)
            }
            other => other,
        }
    }

    /// Takes out what waits at a node.
    pub(crate) fn leave(&mut self, node: u64) -> Vec<RequestId> {
        let ids: Vec<RequestId> =
            self.waiting.iter().filter(|(_, at)| **at == node).map(|(id, _)| id.clone()).collect();
        for id in &ids {
            self.decide(id);
        }
        ids
    }

    fn wait(&mut self, id: RequestId, node: u64) {
        self.decide(&id);
        self.waiting.insert(id, node);
        *self.counts.entry(node).or_default() += 1;
    }

    fn decide(&mut self, id: &RequestId) {
        let Some(node) = self.waiting.remove(id) else { return };
        let count = self.counts.get_mut(&node).expect("counted when it came");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&node);
        }
    }

    /// The nodes where somebody waits.
    pub(crate) fn nodes(&self) -> BTreeSet<u64> {
        self.counts.keys().copied().collect()
    }

    /// Whether somebody waits at this one.
    pub(crate) fn waits_at(&self, node: u64) -> bool {
        self.counts.contains_key(&node)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = (self.last.len() as u32).to_le_bytes().to_vec();
        for (node, (incarnation, number)) in &self.last {
            super::bytes::write_stamp(
                &Stamp { node: *node, incarnation: *incarnation, number: *number },
                &mut out,
            );
        }
        out.extend_from_slice(&(self.waiting.len() as u32).to_le_bytes());
        for (id, node) in &self.waiting {
            out.extend_from_slice(&node.to_le_bytes());
            out.extend_from_slice(&(id.text_len() as u32).to_le_bytes());
            id.append_to(&mut out);
        }
        out
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Origins, BadBytes> {
        let mut from = Reader(bytes);
        let mut origins = Origins::default();
        for _ in 0..from.u32()? {
            let stamp = from.stamp()?;
            origins.last.insert(stamp.node, (stamp.incarnation, stamp.number));
        }
        for _ in 0..from.u32()? {
            let node = from.u64()?;
            let length = from.u32()? as usize;
            let id = std::str::from_utf8(from.take(length)?).map_err(|_| BadBytes("an id"))?;
            origins.wait(RequestId::new(id), node);
        }
        from.end()?;
        Ok(origins)
    }
}

/// The request that does not wait any more.
fn decided(event: &Event) -> Option<&RequestId> {
    match event {
        Event::Granted { id, .. }
        | Event::TimedOut { id, .. }
        | Event::Deadlocked { id, .. }
        | Event::Withdrawn { id, .. }
        | Event::Task(
            TaskEvent::Claimed(id, ..)
            | TaskEvent::TimedOut(id, _)
            | TaskEvent::Refused(id, ..)
            | TaskEvent::Withdrawn(id, _),
        ) => Some(id),
        Event::Lost { .. } | Event::Task(TaskEvent::Lapsed { .. }) => None,
    }
}

#[cfg(test)]
mod tests {
    use keylatch_table::{Acquire, Party, Resource, Settings, Table, Target};

    use super::*;

    fn stamp(incarnation: u64, number: u64) -> Stamp {
        Stamp { node: 5, incarnation, number }
    }

    #[test]
    fn a_batch_counts_once_and_a_life_that_has_ended_not_at_all() {
        let mut origins = Origins::default();
        let arrivals = [(1, 1), (1, 1), (1, 2), (1, 1), (2, 1), (1, 3), (2, 1), (2, 2)];
        let got = arrivals.map(|(life, number)| origins.arrive(&stamp(life, number)));
        let (life, again, next) = (Arrival::NewLife, Arrival::Again, Arrival::Next);
        assert_eq!(got, [life, again, next, again, life, again, again, next]);
        assert_eq!((origins.last(5, 2), origins.last(5, 1), origins.last(6, 2)), (2, 0, 0));
    }

    fn ask(id: &str, wait_ms: u64) -> Command {
        let resource = Resource::new("k", &[]).unwrap();
        let ask = Acquire::new(RequestId::new(id), resource, Party::client("c"));
        Command::Acquire(Acquire { wait_ms, ..ask })
    }

    #[test]
    fn who_waits_is_known_by_node_until_it_is_decided() {
        let mut table = Table::new(Settings::default(), 0, 1);
        let mut origins = Origins::default();
        let mut apply = |origins: &mut Origins, node, command: Command| {
            let noted = Noted::of(&command);
            let applied = table.apply(1, command);
            origins.note(node, noted, &applied);
        };
        apply(&mut origins, Some(1), ask("a", 0));
        assert!(origins.nodes().is_empty(), "granted at once");
        for (node, id) in [(1, "b"), (2, "c"), (2, "d"), (3, "c")] {
            apply(&mut origins, Some(node), ask(id, 1_000));
        }
        assert_eq!(origins.nodes(), BTreeSet::from([1, 2, 3]));
        let back = Origins::from_bytes(&origins.to_bytes()).unwrap();
        assert_eq!(back, origins);
        let bytes = origins.to_bytes();
        assert!((0..bytes.len()).all(|end| Origins::from_bytes(&bytes[..end]).is_err()));
        apply(&mut origins, None, Command::Release(Target::Id(RequestId::new("a"))));
        assert_eq!(origins.nodes(), BTreeSet::from([2, 3]), "b has it");
        assert_eq!(origins.leave(2), [RequestId::new("d")], "c has come back elsewhere");
        let detach =
            keylatch_table::Detach { ids: Some(vec![RequestId::new("c")]), grace_ms: 1_000 };
        let detach = Command::Detach(detach);
        let late = origins.without_returned(Some(2), detach.clone());
        assert!(matches!(&late, Command::Detach(late) if late.ids == Some(Vec::new())));
        apply(&mut origins, Some(2), late);
        assert_eq!(origins.nodes(), BTreeSet::from([3]), "it waits where it has come back");
        let detach = origins.without_returned(Some(3), detach);
        apply(&mut origins, Some(3), detach);
        assert!(origins.is_empty());
    }
}
