//! Who asks: each distinct party and each distinct explicit owner kept once, with what is known of
//! all its requests together. Both vanish with their last request.

use std::sync::Arc;

use super::few::Few;
use super::hash::KeyHash;
use super::index::Index;
use super::slab::{NONE, Slab};
use crate::{Party, Text};

#[derive(Clone, Debug)]
pub(crate) struct PartyNode {
    pub(crate) party: Party,
    /// Its explicit owner, or [`NONE`].
    owner: u32,
    /// Live requests of this party.
    requests: u32,
}

/// An explicit owner.
#[derive(Clone, Debug)]
pub(crate) struct OwnerNode {
    pub(crate) name: Text,
    /// Live requests, held and waiting.
    pub(crate) requests: u32,
    /// Resources held as E: only while there are some can the owner pass a waiter.
    pub(crate) held_e: u32,
    /// Live requests that asked for deadlock detection: a cycle needs two of them, or one that
    /// waits for itself.
    pub(crate) detecting: u32,
    /// Its waiting requests, by seq.
    pub(crate) waiting: Few,
}

/// What is known of a party: its slot and that of its explicit owner, or [`NONE`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    /// Of a party without a slot.
    hash: u64,
    party: u32,
    pub(crate) owner: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Parties {
    hash: KeyHash,
    pub(crate) parties: Slab<PartyNode>,
    party_index: Index,
    owners: Slab<OwnerNode>,
    owner_index: Index,
    /// Slots of parties that asked a moment ago, by where their owner's text lies: whoever asks again is known without a search.
    recent: [u32; RECENT],
}

impl Parties {
    pub(crate) fn new(hash: KeyHash) -> Parties {
        Parties {
            hash,
            parties: Slab::default(),
            party_index: Index::default(),
            owners: Slab::default(),
            owner_index: Index::default(),
            recent: [NONE; RECENT],
        }
    }

    /// What is known of a party. Done once a command; the rest of it goes by the numbers.
    pub(crate) fn look_up(&self, party: &Party) -> Who {
        let recent = self.recent[recent_place(party)];
        if let Some(node) = self.parties.get(recent)
            && Arc::ptr_eq(&node.party.owner, &party.owner)
            && node.party == *party
        {
            return Who { hash: 0, party: recent, owner: node.owner };
        }
        let hash = hash_party(&self.hash, party);
        let found = self.party_index.find(hash, |at| self.parties[at].party == *party);
        match found {
            Some(at) => Who { hash, party: at, owner: self.parties[at].owner },
            None => Who { hash, party: NONE, owner: self.find_owner(party, hash) },
        }
    }

    /// Counts one more request of `party`, of which `who` was just looked up.
    pub(crate) fn enter(&mut self, party: Party, who: Who) -> u32 {
        let place = recent_place(&party);
        let at = if who.party == NONE { self.insert(who, party) } else { who.party };
        self.recent[place] = at;
        let node = &mut self.parties[at];
        node.requests += 1;
        if node.owner != NONE {
            self.owners[node.owner].requests += 1;
        }
        at
    }

    /// Counts one request of the party less.
    pub(crate) fn leave(&mut self, at: u32) {
        let node = &mut self.parties[at];
        node.requests -= 1;
        let (owner, gone) = (node.owner, node.requests == 0);
        if gone {
            let node = self.parties.remove(at);
            self.party_index.remove(hash_party(&self.hash, &node.party), at);
        }
        if owner == NONE {
            return;
        }
        self.owners[owner].requests -= 1;
        if self.owners[owner].requests == 0 {
            let node = self.owners.remove(owner);
            self.owner_index.remove(self.hash.of(node.name.as_bytes()), owner);
        }
    }

    pub(crate) fn party(&self, at: u32) -> &Party {
        &self.parties[at].party
    }

    /// The explicit owner of a party, or [`NONE`].
    pub(crate) fn owner_of(&self, at: u32) -> u32 {
        self.parties[at].owner
    }

    pub(crate) fn owner(&self, owner: u32) -> &OwnerNode {
        &self.owners[owner]
    }

    /// The owner of that slot, unless it has vanished.
    pub(crate) fn live_owner(&self, owner: u32) -> Option<&OwnerNode> {
        self.owners.get(owner)
    }

    /// `owner` must not be [`NONE`].
    pub(crate) fn owner_mut(&mut self, owner: u32) -> &mut OwnerNode {
        &mut self.owners[owner]
    }

    pub(crate) fn owners(&self) -> impl Iterator<Item = &OwnerNode> {
        self.owners.iter().map(|(_, owner)| owner)
    }

    pub(crate) fn owner_count(&self) -> usize {
        self.owners.len()
    }

    pub(crate) fn party_count(&self) -> usize {
        self.parties.len()
    }

    fn insert(&mut self, who: Who, party: Party) -> u32 {
        let owner = match who.owner {
            NONE if party.explicit => self.insert_owner(&party.owner, who.hash),
            owner => owner,
        };
        let at = self.parties.insert(PartyNode { party, owner, requests: 0 });
        let (parties, hasher) = (&self.parties, &self.hash);
        self.party_index.insert(who.hash, at, |at| hash_party(hasher, &parties[at].party));
        at
    }

    fn find_owner(&self, party: &Party, hash: u64) -> u32 {
        let found = self.owner_index.find(hash, |at| self.owners[at].name == party.owner);
        found.filter(|_| party.explicit).unwrap_or(NONE)
    }

    fn insert_owner(&mut self, name: &Text, hash: u64) -> u32 {
        let at = self.owners.insert(OwnerNode {
            name: name.clone(),
            requests: 0,
            held_e: 0,
            detecting: 0,
            waiting: Few::default(),
        });
        let (owners, hasher) = (&self.owners, &self.hash);
        self.owner_index.insert(hash, at, |at| hasher.of(owners[at].name.as_bytes()));
        at
    }
}

/// So many of those who asked last are known at once: connections take turns.
const RECENT: usize = 128;

/// Where a party is kept among the recent ones. Texts lie at different places each time, so nothing else may depend on it.
fn recent_place(party: &Party) -> usize {
    // They lie at multiples of 16, and mostly take 32 bytes.
    party.owner.as_ptr().addr() / 32 % RECENT
}

/// By the owner's text alone: parties that differ in the rest are few, and owners hash alike.
fn hash_party(hash: &KeyHash, party: &Party) -> u64 {
    hash.of(party.owner.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parties_and_owners_vanish_with_their_last_request() {
        let mut parties = Parties::new(KeyHash::new(7));
        let with =
            |principal: &str| Party { principal: Some(principal.into()), ..Party::owner("ann") };
        let mut enter = |party: Party| {
            let who = parties.look_up(&party);
            parties.enter(party, who)
        };
        let a = enter(Party::owner("ann"));
        let b = enter(with("p"));
        let c = enter(Party::client("ann"));
        assert_eq!(enter(Party::owner("ann")), a);
        assert_eq!(parties.owner_of(a), parties.owner_of(b));
        assert_eq!(parties.owner_of(c), NONE);
        assert_eq!(parties.owner(parties.owner_of(a)).requests, 3);
        assert_eq!(parties.look_up(&Party::owner("ann")).owner, parties.owner_of(a));
        assert_eq!(parties.look_up(&Party::client("ann")).owner, NONE);
        assert_eq!(parties.look_up(&Party::owner("bob")).owner, NONE);
        for at in [a, a, b, c] {
            parties.leave(at);
        }
        assert_eq!((parties.party_count(), parties.owner_count()), (0, 0));
        assert_eq!(parties.look_up(&Party::owner("ann")).owner, NONE);
    }
}
