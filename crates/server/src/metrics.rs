//! What Prometheus reads. Labels never have keys, pools or owners: there is no end to those.

#![allow(clippy::cast_precision_loss)] // it reads doubles

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use keylatch_table::{ClaimOutcome, Mode, Outcome, PoolCounts, Stats, Tally, Times};

use crate::cluster::{MemberStatus, Role, State, Status};
use crate::listener::resp::cause;
use crate::log::raft::Seen;

/// What the table does not know.
pub(crate) struct About<'a> {
    pub(crate) connections: usize,
    pub(crate) full: bool,
    pub(crate) durable: bool,
    pub(crate) syncs: &'a Syncs,
    /// When it started.
    pub(crate) started: std::time::Instant,
}

/// How long the log takes.
#[derive(Default)]
pub(crate) struct Syncs {
    /// How many were not longer than the bound of the same place; behind the last one, how many were.
    counts: [u64; Syncs::BOUNDS_US.len() + 1],
    sum_us: u64,
    /// Commands that went into it.
    commands: u64,
}

impl Syncs {
    /// From a fast disk to one that hangs.
    const BOUNDS_US: [u64; 10] =
        [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000];

    pub(crate) fn add(&mut self, us: u64, commands: usize) {
        self.counts[Syncs::BOUNDS_US.partition_point(|bound| *bound < us)] += 1;
        self.sum_us += us;
        self.commands += commands as u64;
    }
}

/// All of them as text.
pub(crate) fn render(
    stats: &Stats,
    pools: &[PoolCounts],
    tally: &Tally,
    about: &About<'_>,
) -> String {
    let mut text = String::with_capacity(8 * 1024);
    let mut metric = |name: &str, kind: &str, help: &str, values: &[(String, u64)]| {
        write_metric(&mut text, name, kind, help, values);
    };
    let version = env!("CARGO_PKG_VERSION");
    metric(
        "keylatch_build_info",
        "gauge",
        "What runs.",
        &[(format!("{{version=\"{version}\"}}"), 1)],
    );
    metric(
        "keylatch_uptime_seconds",
        "gauge",
        "Since it started.",
        &plain(about.started.elapsed().as_secs()),
    );
    let mut acquired = Vec::new();
    for mode in Mode::ALL {
        for outcome in Outcome::ALL {
            let labels = format!("{{mode=\"{}\",outcome=\"{}\"}}", mode.letter(), outcome.word());
            acquired.push((labels, tally.outcomes(mode, outcome)));
        }
    }
    metric(
        "keylatch_acquire_total",
        "counter",
        "Requests by the mode of their first resource and how they came out.",
        &acquired,
    );
    let ended = Tally::CAUSES.iter().zip(tally.ended);
    let ended: Vec<_> =
        ended.map(|(why, count)| (format!("{{reason=\"{}\"}}", cause(*why)), count)).collect();
    metric(
        "keylatch_released_total",
        "counter",
        "Grants that their holder released.",
        &plain(ended[0].1),
    );
    metric("keylatch_lost_total", "counter", "Grants that ended otherwise.", &ended[1..]);
    metric("keylatch_held", "gauge", "Requests that hold.", &plain(stats.held));
    metric("keylatch_waiting", "gauge", "Requests that wait.", &plain(stats.waiting));
    metric(
        "keylatch_resources",
        "gauge",
        "Resources that are held or waited for.",
        &plain(stats.resources),
    );
    metric("keylatch_connections", "gauge", "Connections.", &plain(about.connections as u64));
    metric(
        "keylatch_log_full",
        "gauge",
        "Whether the disk of the log is full.",
        &plain(u64::from(about.full)),
    );
    if about.durable {
        metric(
            "keylatch_log_commands_total",
            "counter",
            "Commands that were logged.",
            &plain(about.syncs.commands),
        );
    }
    render_tasks(stats, pools, tally, &mut text);
    histogram(
        &mut text,
        "keylatch_wait_seconds",
        "How long those waited that were granted.",
        &tally.waits,
    );
    histogram(
        &mut text,
        "keylatch_hold_seconds",
        "How long those held that have ended.",
        &tally.holds,
    );
    if about.durable {
        let Syncs { counts, sum_us, .. } = about.syncs;
        let bounds = Syncs::BOUNDS_US.map(|us| us as f64 / 1e6);
        buckets(
            &mut text,
            "keylatch_log_write_seconds",
            "How long a batch took until it was durable.",
            &bounds,
            counts,
            *sum_us as f64 / 1e6,
        );
    }
    text
}

/// What a member knows of its cluster.
pub(crate) fn render_cluster(status: &Status, seen: &Seen, caught_up: bool, text: &mut String) {
    let mut gauge = |name: &str, help: &str, values: &[(String, u64)]| {
        write_metric(text, name, "gauge", help, values);
    };
    let states =
        State::ALL.map(|state| (of("state", state.word()), u64::from(state == status.state)));
    gauge("keylatch_cluster_state", "What this member does: 1 of one of them.", &states);
    let leader = u64::from(status.leader.is_some());
    gauge(
        "keylatch_cluster_has_leader",
        "Whether a leader is heard, with a majority.",
        &plain(leader),
    );
    let caught_up = u64::from(caught_up);
    gauge("keylatch_cluster_caught_up", "Whether it knows what it missed.", &plain(caught_up));
    gauge("keylatch_cluster_term", "The number of the last election.", &plain(status.term));
    gauge("keylatch_cluster_log_index", "The last entry in its log.", &plain(status.last_log));
    gauge("keylatch_cluster_applied_index", "The last entry in its table.", &plain(status.applied));
    gauge(
        "keylatch_cluster_snapshot_index",
        "The last entry in its snapshot.",
        &plain(status.snapshot),
    );
    let members = [Role::Voter, Role::Learner].map(|role| {
        let count = status.members.iter().filter(|member| member.role == role).count();
        (of("role", role.word()), count as u64)
    });
    gauge("keylatch_cluster_members", "Members.", &members);
    let others = || status.members.iter().filter(|member| member.node != status.node);
    if status.state == State::Leader {
        let label = |member: &MemberStatus| of("node", &member.node.to_string());
        let lag =
            |member: &MemberStatus| status.last_log.saturating_sub(member.matched.unwrap_or(0));
        let lags: Vec<_> = others().map(|member| (label(member), lag(member))).collect();
        gauge("keylatch_cluster_lag_entries", "Entries that a follower does not have yet.", &lags);
        let heard = others().filter_map(|member| Some((label(member), member.heard_ms?)));
        let heard: Vec<_> = heard.collect();
        gauge("keylatch_cluster_silent_milliseconds", "Since a follower has answered.", &heard);
    }
    let mut counter = |name: &str, help: &str, count: &AtomicU64| {
        write_metric(text, name, "counter", help, &plain(count.load(Ordering::Relaxed)));
    };
    counter("keylatch_cluster_leaders_total", "Leaders that it has seen.", &seen.leaders);
    counter(
        "keylatch_cluster_snapshots_total",
        "Snapshots that it has made or got.",
        &seen.snapshots,
    );
}

fn of(label: &str, value: &str) -> String {
    format!("{{{label}=\"{value}\"}}")
}

fn write_metric(text: &mut String, name: &str, kind: &str, help: &str, values: &[(String, u64)]) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in values {
        let _ = writeln!(text, "{name}{labels} {value}");
    }
}

/// A value without labels.
fn plain(value: u64) -> [(String, u64); 1] {
    [(String::new(), value)]
}

fn render_tasks(stats: &Stats, pools: &[PoolCounts], tally: &Tally, text: &mut String) {
    let mut metric = |name: &str, kind: &str, help: &str, values: &[(String, u64)]| {
        write_metric(text, name, kind, help, values);
    };
    let total = |count: fn(&PoolCounts) -> u64| pools.iter().map(count).sum::<u64>();
    let states = [
        ("ready", total(|pool| pool.ready)),
        ("delayed", total(|pool| pool.delayed)),
        ("claimed", total(|pool| pool.claimed)),
        ("done", total(|pool| pool.done)),
        ("failed", total(|pool| pool.failed)),
    ];
    metric(
        "keylatch_tasks",
        "gauge",
        "Tasks of all pools by their state.",
        &states.map(|(state, count)| (format!("{{state=\"{state}\"}}"), count)),
    );
    metric("keylatch_task_bytes", "gauge", "Bytes of all tasks.", &plain(stats.task_bytes));
    metric("keylatch_claims_waiting", "gauge", "Claims that wait.", &plain(stats.claims));
    metric(
        "keylatch_claims_total",
        "counter",
        "Requests for a task by how they came out.",
        &ClaimOutcome::ALL
            .map(|outcome| (format!("{{outcome=\"{}\"}}", outcome.word()), tally.claims(outcome))),
    );
    metric(
        "keylatch_claims_lapsed_total",
        "counter",
        "Claims whose lease ran out.",
        &plain(tally.lapsed),
    );
}

fn histogram(text: &mut String, name: &str, help: &str, times: &Times) {
    let bounds = Times::BOUNDS_MS.map(|ms| ms as f64 / 1e3);
    buckets(text, name, help, &bounds, &times.counts, times.sum_ms as f64 / 1e3);
}

fn buckets(text: &mut String, name: &str, help: &str, bounds: &[f64], counts: &[u64], sum: f64) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
    let mut total = 0;
    for (bound, count) in bounds.iter().zip(counts) {
        total += count;
        let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {total}");
    }
    total += counts[bounds.len()];
    let _ = writeln!(
        text,
        "{name}_bucket{{le=\"+Inf\"}} {total}\n{name}_sum {sum}\n{name}_count {total}"
    );
}
