//! What a listener may know and use while it reads a request.

use std::fmt::Write;
use std::sync::Arc;

use keylatch_table::{Party, Query, RequestId, Stats, Table, TaskCommand, Text};
use parking_lot::Mutex;
use rand::RngCore;
use rand::rngs::StdRng;

use super::guard::{Guard, Login};
use crate::access::Right;
use crate::clock::Clock;
use crate::cluster::Status;
use crate::connection::ConnectionId;
use crate::log::raft::View;
use crate::metrics;

/// Made for each request.
pub(crate) struct Context<'a> {
    pub(crate) frame_bytes: usize,
    pub(crate) owner_bytes: u64,
    /// Of a pool's name and of a task's key.
    pub(crate) key_bytes: u64,
    pub(crate) connection: ConnectionId,
    /// Names under which HTTP is answered.
    pub(crate) hosts: &'a [String],
    pub(super) about: metrics::About<'a>,
    pub(super) shown: &'a Text,
    /// As whom the connection speaks; a request may say so itself.
    pub(crate) login: Option<Login>,
    /// It was refused here, and not where commands are admitted: what, and why.
    pub(super) refused: Option<(&'static str, &'static str)>,
    pub(super) guard: Option<&'a Guard>,
    /// Of a member of a cluster: how that looks from here.
    pub(super) view: Option<&'a View>,
    pub(super) caught_up: bool,
    /// The name in the certificate that it has shown.
    pub(super) certificate: Option<&'a str>,
    pub(super) random: &'a mut StdRng,
    pub(super) table: &'a Mutex<Table>,
    pub(super) clock: &'a Clock,
}

#[cfg(feature = "fuzzing")]
impl<'a> Context<'a> {
    /// Of a connection without a server around it.
    pub(crate) fn alone(
        table: &'a Mutex<Table>,
        random: &'a mut StdRng,
        shown: &'a Text,
        syncs: &'a metrics::Syncs,
        (frame_bytes, clock): (usize, &'a Clock),
    ) -> Context<'a> {
        let started = std::time::Instant::now();
        let about = metrics::About { connections: 1, full: false, durable: false, syncs, started };
        Context {
            frame_bytes,
            owner_bytes: 256,
            key_bytes: 512,
            connection: ConnectionId { at: 0, number: 1 },
            hosts: &[],
            about,
            shown,
            login: None,
            refused: None,
            guard: None,
            view: None,
            caught_up: false,
            certificate: None,
            random,
            table,
            clock,
        }
    }
}

impl Context<'_> {
    /// An id that cannot be guessed: a random UUID.
    pub(crate) fn new_id(&mut self) -> RequestId {
        // Two numbers that the generator has ready cost a tenth of filling bytes.
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.random.next_u64().to_le_bytes());
        bytes[8..].copy_from_slice(&self.random.next_u64().to_le_bytes());
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        RequestId::from_uuid(bytes)
    }

    /// A request without an owner.
    pub(crate) fn party(&self) -> Party {
        Party { owner: Arc::clone(self.shown), explicit: false, principal: self.principal() }
    }

    /// Whether it has to say who it is before anything else.
    pub(crate) fn must_log_in(&self) -> bool {
        self.guard.is_some() && self.login.is_none()
    }

    /// Writes down that it is refused. The answer is the listener's.
    pub(crate) fn refuse(&mut self, what: &'static str, why: &'static str) {
        self.refused = Some((what, why));
    }

    /// Whether tokens mean anything here.
    pub(crate) fn has_tokens(&self) -> bool {
        self.guard.is_some()
    }

    /// Whether everything may be seen: figures that are those of all names.
    pub(crate) fn may_observe(&self) -> bool {
        let may = |login: &Login| login.principal.may_anywhere(Right::Observe);
        self.guard.is_none() || self.login.as_ref().is_some_and(may)
    }

    /// Whether all names may be seen.
    pub(crate) fn may_observe_all(&self) -> bool {
        let may = |login: &Login| login.principal.may(Right::Observe, "");
        self.guard.is_none() || self.login.as_ref().is_some_and(may)
    }

    /// Says who it is. False if the token is not known.
    pub(crate) fn log_in(&mut self, token: &str) -> bool {
        let Some(guard) = self.guard else { return false };
        self.login = guard.by_token(token);
        if self.login.is_none() {
            self.refused = Some(("AUTH", "a token that is not known"));
        }
        self.login.is_some()
    }

    /// Whoever it is without having said anything: by its certificate.
    pub(crate) fn log_in_silently(&mut self) {
        let by_certificate = |guard: &Guard| guard.by_certificate(self.certificate?);
        self.login = self.guard.and_then(by_certificate);
    }

    /// Who it is, if that is known.
    pub(crate) fn principal(&self) -> Option<Text> {
        self.login.as_ref().map(|login| login.principal.name.clone())
    }

    /// What is wrong with a task command in itself.
    pub(crate) fn task_error(&self, command: &TaskCommand) -> Option<keylatch_table::Error> {
        self.table.lock().task_error(command)
    }

    fn stats(&self, table: &Table) -> Stats {
        match table.query(self.clock.now(), &Query::Stats) {
            keylatch_table::Answer::Stats(stats) => stats,
            other => unreachable!("statistics were asked for: {other:?}"),
        }
    }

    /// For Prometheus.
    pub(crate) fn metrics(&self) -> String {
        let table = self.table.lock();
        let pools = match table.query(0, &Query::Pools) {
            keylatch_table::Answer::Pools(pools) => pools,
            other => unreachable!("pools were asked for: {other:?}"),
        };
        let mut text = metrics::render(&self.stats(&table), &pools, table.tally(), &self.about);
        drop(table);
        if let Some(view) = self.view {
            metrics::render_cluster(&view.status(), view.seen(), self.caught_up, &mut text);
        }
        text
    }

    /// How the cluster looks from here, as JSON; `None` of a server that is alone.
    pub(crate) fn cluster(&self) -> Option<String> {
        let mut status = self.view?.status().to_json();
        status["caught_up"] = self.caught_up.into();
        Some(status.to_string())
    }

    /// What of the cluster is in the way of new locks.
    fn cluster_problem(&self) -> Option<&'static str> {
        let status = self.view?.status();
        match status {
            _ if !status.majority => Some("it leads, but no majority of the members answers it"),
            Status { leader: None, .. } => Some("no leader is heard"),
            _ if !self.caught_up => Some("this member is catching up"),
            _ => None,
        }
    }

    /// The longest waits and holds, as JSON.
    pub(crate) fn longest(&self) -> String {
        let table = self.table.lock();
        let list = |longest: &keylatch_table::Longest| {
            let one = |long: &keylatch_table::Long| serde_json::json!({"ms": long.ms, "name": &*long.name, "owner": &*long.owner});
            longest.iter().map(one).collect::<Vec<_>>()
        };
        let tally = table.tally();
        let (waits, holds) = (list(&tally.longest_waits), list(&tally.longest_holds));
        serde_json::json!({"waits": waits, "holds": holds}).to_string()
    }

    /// Whether new locks are taken; and why, or why not.
    pub(crate) fn readiness(&self, verbose: bool) -> (bool, String) {
        let (full, problem) = (self.about.full, self.cluster_problem());
        let ready = !full && problem.is_none();
        let mut text = String::from(if ready { "ready\n" } else { "not ready\n" });
        if verbose || !ready {
            let log = match (self.about.durable, full) {
                (false, _) => "log: off, locks are in memory only",
                (true, false) => "log: ok",
                (true, true) => "log: its disk is full, no new locks until there is room",
            };
            if self.view.is_some() {
                let _ = writeln!(text, "cluster: {}", problem.unwrap_or("ok"));
            }
            let table = self.table.lock();
            let stats = self.stats(&table);
            let (connections, held, waiting) = (self.about.connections, stats.held, stats.waiting);
            let _ = writeln!(
                text,
                "{log}\nconnections: {connections}\nheld: {held}\nwaiting: {waiting}"
            );
        }
        (ready, text)
    }

    pub(crate) fn info(&self) -> String {
        let stats = self.stats(&self.table.lock());
        format!(
            "# Server\r\nkeylatch_version:{}\r\nprocess_id:{}\r\n# Clients\r\nconnected_clients:{}\r\n\
             # Locks\r\nheld:{}\r\nwaiting:{}\r\nresources:{}\r\nowners:{}\r\n\
             ended_remembered:{}\r\nlast_token:{}\r\ntable_time_ms:{}\r\n\
             # Tasks\r\ntasks:{}\r\ntask_bytes:{}\r\nclaims_waiting:{}\r\n",
            env!("CARGO_PKG_VERSION"),
            std::process::id(),
            self.about.connections,
            stats.held,
            stats.waiting,
            stats.resources,
            stats.owners,
            stats.ended,
            stats.token,
            stats.now,
            stats.tasks,
            stats.task_bytes,
            stats.claims,
        )
    }
}
