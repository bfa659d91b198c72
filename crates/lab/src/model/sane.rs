//! What must be true of any table between two steps, whatever was done to it. The model checks
//! itself: a rule that leads to a state like these is wrong even if both sides follow it.

use super::{Model, conflict::conflicts, tasks::Tasks};

impl Model {
    /// Panics if the state breaks one of the promises.
    pub fn assert_sane(&self) {
        self.assert_exclusion();
        self.assert_nobody_is_forgotten();
        self.assert_numbers();
        self.assert_memory();
        self.assert_tasks();
    }

    fn assert_exclusion(&self) {
        let holders = self.holders().collect::<Vec<_>>();
        for (at, holder) in holders.iter().enumerate() {
            for other in &holders[..at] {
                assert!(!conflicts(holder, other), "both held: {other:?} and {holder:?}");
            }
        }
    }

    fn assert_nobody_is_forgotten(&self) {
        for waiter in self.waiters() {
            assert!(!self.blockers(waiter).is_empty(), "free but waiting: {waiter:?}");
            assert!(self.cycle(waiter).is_none(), "waits on a cycle: {waiter:?}");
        }
        for request in &self.requests {
            let over = request.deadline().is_some_and(|deadline| deadline <= self.now);
            assert!(!over, "over but live: {request:?}");
        }
    }

    fn assert_numbers(&self) {
        let seqs = self.requests.iter().map(|request| request.seq).collect::<Vec<_>>();
        assert!(seqs.is_sorted_by(|a, b| a < b), "not in arrival order: {seqs:?}");
        assert!(seqs.last().is_none_or(|last| *last <= self.seq), "a seq from the future");
        let mut tokens = self.holders().map(super::request::Request::token).collect::<Vec<_>>();
        tokens.sort_unstable();
        assert!(tokens.is_sorted_by(|a, b| a < b), "a token given out twice: {tokens:?}");
        assert!(tokens.last().is_none_or(|last| *last <= self.token), "a token from the future");
    }

    fn assert_memory(&self) {
        for (at, ended) in self.ended.iter().enumerate() {
            assert!(self.position(&ended.id).is_none(), "ended but live: {ended:?}");
            let twice = self.ended[..at].iter().any(|other| other.id == ended.id);
            assert!(!twice, "remembered twice: {ended:?}");
        }
        for (at, request) in self.requests.iter().enumerate() {
            for other in &self.requests[..at] {
                assert_ne!(request.asked.id, other.asked.id, "one id twice");
                let alias = request.alias();
                assert!(alias.is_none() || alias != other.alias(), "one alias twice: {alias:?}");
            }
        }
    }

    fn assert_tasks(&self) {
        let Tasks { all: tasks, claims, answers, .. } = &self.tasks;
        for (at, task) in tasks.iter().enumerate() {
            let twice = tasks[..at]
                .iter()
                .any(|other| (&other.pool, &other.key) == (&task.pool, &task.key));
            assert!(!twice, "one task twice: {task:?}");
            assert!(task.version <= self.token, "a version from the future: {task:?}");
            let wanted = claims.iter().any(|claim| {
                claim.pool == task.pool
                    && claim.claim.key.as_ref().is_none_or(|key| *key == task.key)
            });
            assert!(!(wanted && task.is_due(self.now)), "wanted but not given: {task:?}");
        }
        for (at, answer) in answers.iter().enumerate() {
            let id = &answer.command.id;
            assert!(answers[..at].iter().all(|other| other.command.id != *id), "answered twice");
            assert!(claims.iter().all(|claim| claim.id != *id), "answered but waiting: {id}");
        }
    }
}
