//! Requests of one process on one name keep the order of their calls: a lock that is asked for after
//! a guard was dropped finds it released. Those that stand behind each other go to the store together.
//!
//! A job is *called* when nobody is before it. Whoever does it takes it a little later, with all that
//! have come to stand behind it by then ([`Line::begin`]).

use std::collections::VecDeque;
use std::sync::Weak;

use super::Map;
use super::store::Name;
use crate::carried::Push;

/// So many at most go together: a store may bound what one change holds.
const TOGETHER: usize = 32;

/// Jobs that wait for their names.
pub(super) struct Line<J> {
    /// Those of each name, the first ones perhaps at work.
    names: Map<Name, VecDeque<u64>>,
    jobs: Map<u64, Job<J>>,
    next: u64,
}

struct Job<J> {
    names: Vec<Name>,
    /// Its turn has come.
    called: bool,
    /// Nothing while it is at work.
    job: Option<J>,
    /// Of one that rests on whoever waits for it.
    carried: Option<Weak<dyn Push>>,
}

/// Jobs that are done together, in this order. [`Line::done`] ends it.
pub(super) struct Batch<J> {
    /// Of all of them.
    pub(super) names: Vec<Name>,
    pub(super) jobs: Vec<J>,
    numbers: Vec<u64>,
}

impl<J> Batch<J> {
    /// Of one, which was taken.
    pub(super) fn of(name: Name, number: u64, job: J) -> Batch<J> {
        Batch { names: vec![name], jobs: vec![job], numbers: vec![number] }
    }

    /// The name, the number and the job of one.
    pub(super) fn into_one(mut self) -> (Name, u64, J) {
        assert!(self.names.len() == 1 && self.jobs.len() == 1, "it is one, on one name");
        (self.names.remove(0), self.numbers[0], self.jobs.remove(0))
    }
}

impl<J> Default for Line<J> {
    fn default() -> Line<J> {
        Line { names: Map::default(), jobs: Map::default(), next: 0 }
    }
}

impl<J> Line<J> {
    /// One more job; if nobody is before it, it is called. Else, those who may have to be pushed for it. Names
    /// are not twice in it.
    pub(super) fn enter(&mut self, names: Vec<Name>, job: J) -> Result<u64, Vec<Weak<dyn Push>>> {
        let number = self.next;
        self.next += 1;
        for name in &names {
            self.names.entry(name.clone()).or_default().push_back(number);
        }
        self.jobs.insert(number, Job { names, called: false, job: Some(job), carried: None });
        self.call(number).ok_or_else(|| {
            let names = self.jobs[&number].names.iter();
            let first = names.filter_map(|name| self.names[name].front().copied());
            let first: Vec<u64> = first.filter(|first| *first != number).collect();
            let first = first.iter().filter_map(|first| self.jobs.get_mut(first)?.carried.take());
            first.collect()
        })
    }

    /// Who does this job, which was called, only does it while it waits for it. Whether that is enough: not, if
    /// somebody stands behind it.
    pub(super) fn carried(&mut self, number: u64, by: Weak<dyn Push>) -> bool {
        let Some(job) = self.jobs.get_mut(&number) else { return true };
        job.carried = Some(by);
        job.names.iter().all(|name| self.names.get(name).is_none_or(|line| line.len() == 1))
    }

    /// Whether nobody is on these names.
    pub(super) fn is_free(&self, names: &[Name]) -> bool {
        !names.iter().any(|name| self.names.contains_key(name))
    }

    /// A job that is at work at once, on one name where nobody is; the name, and its number. [`Line::done_one`] ends it.
    pub(super) fn enter_at_work(&mut self, names: Vec<Name>) -> (Name, u64) {
        let name = names[0].clone();
        let number = self.next;
        self.next += 1;
        self.names.insert(name.clone(), [number].into());
        self.jobs.insert(number, Job { names, called: true, job: None, carried: None });
        (name, number)
    }

    /// Those who do something only while they wait for it.
    pub(super) fn carriers(&self) -> Vec<Weak<dyn Push>> {
        self.jobs.values().filter_map(|job| job.carried.clone()).collect()
    }

    /// Whether something is at work there, or about to be.
    pub(super) fn is_busy(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// These are done; which are called by that.
    pub(super) fn done(&mut self, batch: &Batch<J>) -> Vec<u64> {
        for number in &batch.numbers {
            self.jobs.remove(number);
        }
        let mut next = Vec::new();
        for name in &batch.names {
            let Some(line) = self.names.get_mut(name) else { continue };
            line.retain(|number| !batch.numbers.contains(number));
            match line.front() {
                Some(first) => next.push(*first),
                None => drop(self.names.remove(name)),
            }
        }
        next.into_iter().filter_map(|number| self.call(number)).collect()
    }

    /// This one is done, which was alone at work on one name; who is called by that.
    pub(super) fn done_one(&mut self, name: &Name, number: u64) -> Option<u64> {
        self.jobs.remove(&number);
        let line = self.names.get_mut(name)?;
        line.pop_front();
        if let Some(first) = line.front().copied() {
            return self.call(first);
        }
        self.names.remove(name);
        None
    }

    /// Unless it was called before, or somebody is before it.
    fn call(&mut self, number: u64) -> Option<u64> {
        let first = self.jobs.get(&number)?;
        let is_first = |name: &Name| self.names[name].front() == Some(&number);
        if first.called || !first.names.iter().all(is_first) {
            return None;
        }
        self.jobs.get_mut(&number)?.called = true;
        Some(number)
    }

    /// The job that was called, and those behind it as long as they need no other name.
    pub(super) fn begin(&mut self, number: u64) -> Batch<J> {
        let names = self.jobs[&number].names.clone();
        let mut numbers = vec![number];
        if let Some(one) = names.first() {
            for other in self.names[one].iter().skip(1).take(TOGETHER - 1) {
                if self.jobs[other].names != names || !self.is_next(&names, &numbers, *other) {
                    break;
                }
                numbers.push(*other);
            }
        }
        let jobs = numbers.iter();
        let jobs = jobs.filter_map(|number| self.jobs.get_mut(number)?.job.take()).collect();
        Batch { names, jobs, numbers }
    }

    /// Whether it comes right behind these on all names.
    fn is_next(&self, names: &[Name], before: &[u64], number: u64) -> bool {
        names.iter().all(|name| self.names[name].get(before.len()) == Some(&number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pushed;

    impl Push for Pushed {
        fn push(&self) {}
    }

    fn pusher() -> Weak<dyn Push> {
        let none: Weak<Pushed> = Weak::new();
        none
    }

    #[test]
    fn one_at_work_at_once_is_followed_by_those_behind_it() {
        let (name, mut line) = (Name::from("k"), Line::default());
        assert!(line.is_free(std::slice::from_ref(&name)));
        let (at, first) = line.enter_at_work(vec![name.clone()]);
        assert!(at == name && line.is_busy("k"));
        assert!(line.carried(first, pusher()), "nobody depends on it");
        let Err(before) = line.enter(vec![name.clone()], 2) else {
            panic!("somebody is before it")
        };
        assert_eq!(before.len(), 1, "whoever comes then pushes the one at work");
        let second = line.done_one(&name, first).expect("who is next is called");
        assert_eq!(line.begin(second).jobs, [2]);
        assert_eq!(line.done_one(&name, second), None);
        assert!(line.is_free(&[name]) && line.jobs.is_empty());
    }

    #[test]
    fn whoever_has_come_in_between_depends_on_the_one_at_work() {
        let (name, mut line) = (Name::from("k"), Line::default());
        let (_, first) = line.enter_at_work(vec![name.clone()]);
        // Before it is known who does the first one, so there is nobody to push.
        let Err(before) = line.enter(vec![name.clone()], 2) else {
            panic!("somebody is before it")
        };
        assert!(before.is_empty());
        assert!(!line.carried(first, pusher()), "it is told that somebody does");
        assert_eq!(line.carriers().len(), 1);
    }
}
