//! Cycles of owners among the requests that asked for detection.

use keylatch_table::{Deadlock, Event, Text};

use super::{Model, request::Request};

impl Model {
    /// The owners that `request` waits for, in the order in which its blockers are named.
    fn waits_for(&self, request: &Request) -> Vec<Text> {
        self.blockers(request)
            .into_iter()
            .filter(|blocker| blocker.asked.detect)
            .map(|blocker| blocker.asked.party.owner.clone())
            .collect()
    }

    /// The owners that `owner` waits for through all of its waiting requests.
    fn owner_waits_for(&self, owner: &Text) -> Vec<Text> {
        self.waiters()
            .filter(|waiter| waiter.asked.detect && waiter.asked.party.owner == *owner)
            .flat_map(|waiter| self.waits_for(waiter))
            .collect()
    }

    /// The shortest cycle that `request` stands on, its own owner first, found breadth-first.
    pub(crate) fn cycle(&self, request: &Request) -> Option<Vec<Text>> {
        if !request.asked.detect {
            return None;
        }
        let own = &request.asked.party.owner;
        let mut reached: Vec<Text> = Vec::new();
        let mut paths = vec![vec![own.clone()]];
        while !paths.is_empty() {
            let path = paths.remove(0);
            let last = path.last().expect("a path begins with the request's owner");
            let next =
                if path.len() == 1 { self.waits_for(request) } else { self.owner_waits_for(last) };
            for owner in next {
                if owner == *own {
                    return Some(path);
                }
                if !reached.contains(&owner) {
                    reached.push(owner.clone());
                    paths.push([path.clone(), vec![owner]].concat());
                }
            }
        }
        None
    }

    /// Refuses the youngest waiter that stands on a cycle; false if there is none.
    pub(crate) fn refuse_youngest_on_cycle(&mut self, events: &mut Vec<Event>) -> bool {
        let found =
            self.waiters().filter_map(|waiter| Some((waiter.seq, self.cycle(waiter)?))).last();
        let Some((seq, cycle)) = found else { return false };
        let request = self.requests[self.at(seq)].clone();
        let blocker = self.blocker(&request).expect("who stands on a cycle is blocked");
        self.take(seq);
        events.push(Event::Deadlocked {
            id: request.asked.id.clone(),
            deadlock: Deadlock { blocker, cycle },
            about: Box::new(request.about()),
        });
        true
    }
}
