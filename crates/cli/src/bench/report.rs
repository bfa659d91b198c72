//! What came of it: counted while it runs (`Tally`), told at the end (`Report`).
#![allow(clippy::cast_precision_loss)] // counts and times as ratios

use std::fmt::Write;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::Protocol;
use super::plan::{Keys, Plan};

/// What is counted.
pub(crate) struct Tally {
    began: Instant,
    ended: Option<Instant>,
    /// Nanoseconds from asking to having.
    latency: Histogram<u64>,
    pub(crate) pairs: u64,
    each: Vec<u64>,
    pub(crate) requests: u64,
    pub(crate) refused: u64,
    pub(crate) unstarted: u64,
    errors: u64,
    first_error: Option<String>,
}

/// An hour: whoever waits longer is counted there.
const LONGEST_NS: u64 = 3_600_000_000_000;

impl Tally {
    pub(crate) fn new(connections: usize, began: Instant) -> Tally {
        let latency = Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("valid bounds");
        Tally {
            began,
            ended: None,
            latency,
            pairs: 0,
            each: vec![0; connections],
            requests: 0,
            refused: 0,
            unstarted: 0,
            errors: 0,
            first_error: None,
        }
    }

    pub(crate) fn acquired(&mut self, after: Duration) {
        self.latency.saturating_record(after.as_nanos() as u64);
    }

    pub(crate) fn pair(&mut self, connection: usize) {
        self.pairs += 1;
        self.each[connection] += 1;
    }

    pub(crate) fn error(&mut self, text: String) {
        self.errors += 1;
        self.first_error.get_or_insert(text);
    }

    pub(crate) fn close(&mut self, now: Instant) {
        self.ended = Some(now);
    }

    fn seconds(&self, now: Instant) -> f64 {
        self.ended.unwrap_or(now).duration_since(self.began).as_secs_f64()
    }

    fn micros(&self, quantile: f64) -> f64 {
        micros(self.latency.value_at_quantile(quantile))
    }

    /// One line for whoever watches.
    pub(crate) fn progress(&self, now: Instant, warm_up: bool) -> String {
        let seconds = self.seconds(now);
        if warm_up {
            return format!("{seconds:5.0} s  warming up");
        }
        let rate = self.pairs as f64 / seconds;
        let (p50, p99) = (self.micros(0.5), self.micros(0.99));
        format!("{seconds:5.0} s  {rate:9.0} pairs/s  p50 {p50:.0} us  p99 {p99:.0} us")
    }
}

fn micros(nanos: u64) -> f64 {
    (nanos / 100) as f64 / 10.0
}

/// The result, as programs get it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    address: String,
    protocol: String,
    connections: usize,
    keys: String,
    /// Locks asked for a second; none in a closed loop.
    rate: Option<f64>,
    hold_ms: u64,
    seconds: f64,
    pairs: u64,
    pairs_per_s: f64,
    /// Everything sent in that time, polls included.
    requests: u64,
    refused: u64,
    errors: u64,
    first_error: Option<String>,
    /// Locks of an open loop that were due and never asked for.
    unstarted: u64,
    acquire_us: Latency,
    fairness: Fairness,
    pub(crate) double_grants: u64,
    pub(crate) token_falls: u64,
}

#[derive(Debug, Serialize)]
struct Latency {
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p99_9: f64,
    max: f64,
}

/// Pairs of the connections that had the fewest and the most.
#[derive(Debug, Serialize)]
struct Fairness {
    min: u64,
    max: u64,
    /// None if one had nothing at all.
    ratio: Option<f64>,
}

impl Report {
    pub(crate) fn new(plan: &Plan, tally: Tally, double_grants: u64, token_falls: u64) -> Report {
        let seconds = tally.seconds(Instant::now());
        let min = tally.each.iter().copied().min().unwrap_or(0);
        let max = tally.each.iter().copied().max().unwrap_or(0);
        Report {
            address: plan.address.to_string(),
            protocol: match plan.protocol {
                Protocol::Resp => "resp".into(),
                Protocol::Redis => "redis".into(),
                Protocol::Enqueue => "enqueue".into(),
            },
            connections: plan.connections,
            keys: match plan.keys {
                Keys::Own(1) => "own".into(),
                Keys::Own(each) => format!("own:{each}"),
                Keys::Shared(all) => format!("shared:{all}"),
            },
            rate: plan.interval.map(|interval| 1.0 / interval.as_secs_f64()),
            hold_ms: plan.hold.as_millis() as u64,
            seconds,
            pairs: tally.pairs,
            pairs_per_s: (tally.pairs as f64 / seconds).round(),
            requests: tally.requests,
            refused: tally.refused,
            errors: tally.errors,
            unstarted: tally.unstarted,
            acquire_us: Latency {
                mean: (tally.latency.mean() / 100.0).round() / 10.0,
                p50: tally.micros(0.5),
                p90: tally.micros(0.9),
                p99: tally.micros(0.99),
                p99_9: tally.micros(0.999),
                max: micros(tally.latency.max()),
            },
            fairness: Fairness {
                min,
                max,
                ratio: (min > 0).then(|| (max as f64 / min as f64 * 1_000.0).round() / 1_000.0),
            },
            first_error: tally.first_error,
            double_grants,
            token_falls,
        }
    }

    /// For people.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        let mut row = |name: &str, value: String| {
            writeln!(text, "{name:<22} {value}").expect("a string takes all");
        };
        let load = match self.rate {
            None => "closed loop".into(),
            Some(rate) => format!("open loop at {rate:.0}/s"),
        };
        let (address, protocol, keys) = (&self.address, &self.protocol, &self.keys);
        row("server", format!("{address}, {protocol}"));
        row("load", format!("{} connections, keys {keys}, {load}", self.connections));
        row("time", format!("{:.1} s", self.seconds));
        row("acquire and release", format!("{:.0} pairs/s ({})", self.pairs_per_s, self.pairs));
        let Latency { mean, p50, p90, p99, p99_9, max } = self.acquire_us;
        row("acquire", format!("p50 {p50:.0} us   p90 {p90:.0}   p99 {p99:.0}   p99.9 {p99_9:.0}"));
        row("", format!("max {max:.0} us   mean {mean:.0}"));
        let ratio =
            self.fairness.ratio.map_or("one had none".into(), |ratio| format!("{ratio:.2}"));
        let (least, most) = (self.fairness.min, self.fairness.max);
        row("fairness", format!("{ratio} (pairs of one connection: {least} to {most})"));
        row("refused, asked again", self.refused.to_string());
        if self.unstarted > 0 {
            row(
                "behind at the end",
                format!("{} locks were due and not asked for", self.unstarted),
            );
        }
        let first = self.first_error.as_ref().map_or(String::new(), |text| format!(" ({text})"));
        row("errors", format!("{}{first}", self.errors));
        row("held by two at once", self.double_grants.to_string());
        if self.protocol == "resp" {
            row("tokens that fell back", self.token_falls.to_string());
        }
        text
    }
}
