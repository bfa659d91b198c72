//! Which resources are in use, and which of them overlap a given one.
//!
//! Every resource with a holder or waiter is a node, found by its canonical bytes. A plain key
//! overlaps only itself, so that is all it needs. Resources with fields also hang in a tree of
//! *groups*: a group of depth `d` has the resources that share name, number of fields and the first
//! `d` fields *as written*, wildcards included; the root has depth 0, and resources hang at depth
//! `fields - 1`. The root also counts the sets of wildcard positions ("masks") in use. So:
//!
//! - an exact resource looks itself up, and once more for every mask in use;
//! - a wildcard with leading literals walks the one group of those literals, and once more for
//!   every way in which a mask in use widens them;
//! - any other wildcard walks the name.
//!
//! A name without wildcards costs its exact requests one look at the root.

use std::collections::BTreeMap;

use super::hash::KeyHash;
use super::index::Index;
use super::slab::{NONE, Slab};
use crate::{Resource, rules};

/// A resource in use. Invariant R1: it has a holder or a waiter.
#[derive(Clone, Debug)]
pub(crate) struct ResourceNode {
    pub(crate) key: Resource,
    /// The held part with the lowest seq, or [`NONE`].
    pub(crate) holders: u32,
    /// The queue, or [`NONE`].
    pub(crate) crowd: u32,
    /// The group it hangs in and its place there; [`NONE`] for a plain key.
    group: u32,
    place: u32,
}

/// What the index says of a plain key, so that nobody has to look again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spot {
    /// Nobody has it, so nothing overlaps it; with its hash, by which it can be inserted.
    Vacant(u64),
    /// The node that is the only one to overlap it.
    Taken(u32),
}

#[derive(Clone, Debug)]
struct Group {
    prefix: Box<[u8]>,
    /// The group one field shorter, and the place there; [`NONE`] for a root.
    parent: u32,
    place: u32,
    /// Groups one field longer, or resources if `leaf`.
    members: Vec<u32>,
    leaf: bool,
    /// Roots only: each mask in use with its number of resources, sorted.
    masks: Vec<(u16, u32)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Resources {
    hash: KeyHash,
    pub(crate) nodes: Slab<ResourceNode>,
    index: Index,
    groups: Slab<Group>,
    group_index: Index,
}

impl Resources {
    pub(crate) fn new(hash: KeyHash) -> Resources {
        Resources {
            hash,
            nodes: Slab::default(),
            index: Index::default(),
            groups: Slab::default(),
            group_index: Index::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &ResourceNode)> {
        self.nodes.iter()
    }

    /// Groups in use; none are left when no resource with fields is.
    pub(crate) fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// Whether every root counts exactly the masks in use below it; for checking.
    pub(crate) fn masks_are_counted(&self) -> bool {
        self.groups.iter().filter(|(_, group)| group.parent == NONE).all(|(_, root)| {
            let mut masks: BTreeMap<u16, u32> = BTreeMap::new();
            let below = |node: &ResourceNode| node.key.prefix(0) == &*root.prefix;
            for (_, node) in self.nodes.iter().filter(|(_, node)| node.group != NONE && below(node))
            {
                *masks.entry(node.key.wildcards()).or_default() += 1;
            }
            masks.into_iter().eq(root.masks.iter().copied())
        })
    }

    pub(crate) fn get(&self, at: u32) -> &ResourceNode {
        &self.nodes[at]
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> &mut ResourceNode {
        &mut self.nodes[at]
    }

    pub(crate) fn find(&self, bytes: &[u8]) -> Option<u32> {
        self.find_hashed(self.hash.of(bytes), bytes)
    }

    /// Where a plain key is, or would be; `None` for a resource with fields.
    pub(crate) fn spot(&self, key: &Resource) -> Option<Spot> {
        if !key.is_plain() {
            return None;
        }
        let hash = self.hash.of(key.as_bytes());
        let found = self.find_hashed(hash, key.as_bytes());
        Some(found.map_or(Spot::Vacant(hash), Spot::Taken))
    }

    pub(super) fn hash(&self, key: &Resource) -> u64 {
        self.hash.of(key.as_bytes())
    }

    /// Nodes by the hash of their keys.
    pub(super) fn index(&self) -> &Index {
        &self.index
    }

    /// The node of `key`, new or not.
    pub(crate) fn enter(&mut self, key: Resource) -> u32 {
        let hash = self.hash.of(key.as_bytes());
        match self.find_hashed(hash, key.as_bytes()) {
            Some(at) => at,
            None => self.insert(key, hash),
        }
    }

    /// A node for `key`, which has none; `hash` is its hash.
    pub(crate) fn insert(&mut self, key: Resource, hash: u64) -> u32 {
        let fields = key.arity();
        let node = ResourceNode { key, holders: NONE, crowd: NONE, group: NONE, place: NONE };
        let at = self.nodes.insert(node);
        let (nodes, hasher) = (&self.nodes, &self.hash);
        self.index.insert(hash, at, |at| hasher.of(nodes[at].key.as_bytes()));
        if fields > 0 {
            self.hang(at, fields);
        }
        at
    }

    /// Removes a node that has neither holder nor waiter.
    pub(crate) fn remove(&mut self, at: u32) {
        let node = self.nodes.remove(at);
        self.index.remove(self.hash.of(node.key.as_bytes()), at);
        if node.group != NONE {
            self.count_mask(node.group, node.key.wildcards(), false);
            let group = &mut self.groups[node.group];
            group.members.swap_remove(node.place as usize);
            if let Some(moved) = group.members.get(node.place as usize) {
                self.nodes[*moved].place = node.place;
            }
            self.prune(node.group);
        }
    }

    /// The same as [`Resources::overlapping`], of a resource whose node is `at` unless that is [`NONE`].
    #[inline]
    pub(crate) fn overlapping_known(
        &self,
        at: u32,
        key: &Resource,
        mut visit: impl FnMut(u32) -> bool,
    ) {
        if at != NONE && key.is_plain() {
            visit(at);
        } else {
            self.overlapping(key, visit);
        }
    }

    /// Calls `visit` with every resource in use that overlaps `key`, until it returns true.
    pub(crate) fn overlapping(&self, key: &Resource, mut visit: impl FnMut(u32) -> bool) {
        let fields = key.arity();
        if fields == 0 {
            if let Some(at) = self.find(key.as_bytes()) {
                visit(at);
            }
            return;
        }
        let Some(root) = self.find_group(key.prefix(0)) else { return };
        let masks = &self.groups[root].masks;
        let depth = key.leading_literals();
        if depth == fields {
            if let [(0, _)] = masks[..] {
                if let Some(at) = self.find(key.as_bytes()) {
                    visit(at);
                }
                return;
            }
            let mut bytes = Vec::with_capacity(key.as_bytes().len());
            for (mask, _) in masks {
                key.widened(fields, *mask, &mut bytes);
                if let Some(at) = self.find(&bytes)
                    && visit(at)
                {
                    return;
                }
            }
            return;
        }
        // Masks that differ only behind the literals lead to the same group.
        let front = (1u16 << depth) - 1;
        let mut fronts: Vec<u16> = masks.iter().map(|(mask, _)| mask & front).collect();
        fronts.sort_unstable();
        fronts.dedup();
        let mut bytes = Vec::with_capacity(key.as_bytes().len());
        for mask in fronts {
            key.widened(depth, mask, &mut bytes);
            if let Some(group) = self.find_group(&bytes)
                && self.walk(group, key, &mut visit)
            {
                return;
            }
        }
    }

    /// The resources with the name and number of fields of `key`.
    pub(crate) fn of_name_and_arity(&self, name: &str, fields: usize, mut visit: impl FnMut(u32)) {
        let any = Resource::new(name, &[crate::ANY; Resource::FIELDS][..fields]);
        self.overlapping(&any.expect("the name of a resource in use"), |at| {
            visit(at);
            false
        });
    }

    fn walk(&self, group: u32, key: &Resource, visit: &mut impl FnMut(u32) -> bool) -> bool {
        let group = &self.groups[group];
        group.members.iter().any(|member| match group.leaf {
            true => rules::overlap(&self.nodes[*member].key, key) && visit(*member),
            false => self.walk(*member, key, visit),
        })
    }

    fn find_hashed(&self, hash: u64, bytes: &[u8]) -> Option<u32> {
        self.index.find(hash, |at| self.nodes[at].key.as_bytes() == bytes)
    }

    fn find_group(&self, prefix: &[u8]) -> Option<u32> {
        let hash = self.hash.of(prefix);
        self.group_index.find(hash, |at| *self.groups[at].prefix == *prefix)
    }

    fn hang(&mut self, at: u32, fields: usize) {
        let group = self.enter_group(at, fields - 1, fields);
        let members = &mut self.groups[group].members;
        members.push(at);
        let place = members.len() as u32 - 1;
        let node = &mut self.nodes[at];
        (node.group, node.place) = (group, place);
        let mask = node.key.wildcards();
        self.count_mask(group, mask, true);
    }

    /// The group of depth `depth` of a resource, made with all its parents if need be.
    fn enter_group(&mut self, resource: u32, depth: usize, fields: usize) -> u32 {
        let prefix = self.nodes[resource].key.prefix(depth);
        if let Some(at) = self.find_group(prefix) {
            return at;
        }
        let prefix: Box<[u8]> = prefix.into();
        let hash = self.hash.of(&prefix);
        let parent = if depth == 0 { NONE } else { self.enter_group(resource, depth - 1, fields) };
        let at = self.groups.insert(Group {
            prefix,
            parent,
            place: 0,
            members: Vec::new(),
            leaf: depth == fields - 1,
            masks: Vec::new(),
        });
        if parent != NONE {
            let members = &mut self.groups[parent].members;
            members.push(at);
            self.groups[at].place = members.len() as u32 - 1;
        }
        let (groups, hasher) = (&self.groups, &self.hash);
        self.group_index.insert(hash, at, |at| hasher.of(&groups[at].prefix));
        at
    }

    /// Removes a group without members, and then its parents in the same way.
    fn prune(&mut self, mut at: u32) {
        while at != NONE && self.groups[at].members.is_empty() {
            let group = self.groups.remove(at);
            self.group_index.remove(self.hash.of(&group.prefix), at);
            if group.parent != NONE {
                let members = &mut self.groups[group.parent].members;
                members.swap_remove(group.place as usize);
                if let Some(moved) = members.get(group.place as usize) {
                    let moved = *moved;
                    self.groups[moved].place = group.place;
                }
            }
            at = group.parent;
        }
    }

    fn count_mask(&mut self, group: u32, mask: u16, more: bool) {
        let mut root = group;
        while self.groups[root].parent != NONE {
            root = self.groups[root].parent;
        }
        let masks = &mut self.groups[root].masks;
        match masks.binary_search_by_key(&mask, |(mask, _)| *mask) {
            Ok(at) if more => masks[at].1 += 1,
            Ok(at) if masks[at].1 > 1 => masks[at].1 -= 1,
            Ok(at) => drop(masks.remove(at)),
            Err(at) => masks.insert(at, (mask, 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ANY, Field};

    fn resource(text: &str) -> Resource {
        let fields: Vec<Field<'_>> =
            text.split(',').map(|field| if field == "@" { ANY } else { field.into() }).collect();
        Resource::new("n", &fields).unwrap()
    }

    /// Every pattern over two letters and the wildcard, of one to three fields.
    fn all_patterns() -> Vec<Resource> {
        let letters = ["a", "b", "@"];
        let mut texts: Vec<String> = letters.map(String::from).to_vec();
        let mut longer = texts.clone();
        for _ in 1..3 {
            longer = longer
                .iter()
                .flat_map(|text| letters.map(|letter| format!("{text},{letter}")))
                .collect();
            texts.extend(longer.clone());
        }
        texts.iter().map(|text| resource(text)).collect()
    }

    #[test]
    fn the_index_finds_exactly_what_overlaps_and_keeps_nothing() {
        let patterns = all_patterns();
        let mut resources = Resources::new(KeyHash::new(3));
        let mut inside: Vec<Resource> = Vec::new();
        // Fill in an order, then empty in another, comparing with a scan after every step.
        let steps = patterns.iter().map(|p| (true, p));
        let back = patterns.iter().enumerate().map(|(at, _)| {
            let at = (at * 17) % patterns.len();
            (false, &patterns[at])
        });
        for (enter, pattern) in steps.chain(back) {
            if enter {
                let at = resources.enter(pattern.clone());
                assert_eq!(resources.enter(pattern.clone()), at, "entered once");
                inside.push(pattern.clone());
            } else {
                resources.remove(resources.find(pattern.as_bytes()).unwrap());
                inside.retain(|other| other != pattern);
            }
            for asked in &patterns {
                let mut found = Vec::new();
                resources.overlapping(asked, |at| {
                    found.push(resources.get(at).key.to_string());
                    false
                });
                let mut expected: Vec<String> = inside
                    .iter()
                    .filter(|other| rules::overlap(asked, other))
                    .map(ToString::to_string)
                    .collect();
                found.sort();
                expected.sort();
                assert_eq!(found, expected, "asked {asked}");
            }
        }
        assert_eq!((resources.len(), resources.group_count()), (0, 0));
    }

    #[test]
    fn a_visit_that_says_stop_is_the_last_one() {
        let mut resources = Resources::new(KeyHash::new(3));
        for text in ["a,b", "a,@", "@,b", "a,c"] {
            resources.enter(resource(text));
        }
        for asked in ["a,b", "a,@", "@,@"] {
            let mut visits = 0;
            resources.overlapping(&resource(asked), |_| {
                visits += 1;
                true
            });
            assert_eq!(visits, 1, "{asked}");
        }
    }

    #[test]
    fn plain_keys_need_no_groups() {
        let mut resources = Resources::new(KeyHash::new(3));
        let at = resources.enter(Resource::plain("k").unwrap());
        assert_eq!(resources.group_count(), 0);
        let mut found = Vec::new();
        resources.overlapping(&Resource::plain("k").unwrap(), |at| {
            found.push(at);
            false
        });
        resources.overlapping(&Resource::plain("j").unwrap(), |_| panic!("not there"));
        assert_eq!(found, [at]);
    }
}
