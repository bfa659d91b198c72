//! Whether requests are let gather for a moment before they are answered.
//!
//! A server that is quicker than its clients goes to sleep after each request and is woken for the next one. If they run on
//! one machine, that costs both sides more than the request does: the client's write has to wake a processor. Where many
//! connections ask at once it can be better to stay away from the sockets for a moment, in which nobody has to wake us,
//! and then to take several requests together, as network cards do with their interrupts.
//!
//! Whether it is better depends on what the clients wait for, which cannot be seen from here: those who have no time left gain,
//! those who wait for our answer, or come at times of their own, only get it later. But it shows in how fast they come. So it is tried:
//!
//! | state | becomes |
//! |---|---|
//! | calm: few connections, or few requests | trial, when there is a rush |
//! | trial: pairs of windows, without and with gathering | gathering, if more came with it in most pairs; another trial, if it was better until now; else resting |
//! | gathering | trial, after `STAYS` windows |
//! | resting | trial, each time after twice as many windows |
//! | any of them | calm, when the rush is over |
//!
//! Where somebody waits for a lock nothing is let gather (`Turns::lets_gather`): there the time until a release is read is
//! everybody's who stands behind it.

use std::time::{Duration, Instant};

/// How long they may gather. In a rush some fifteen come in that time, and 64 connections, which have one request each in 600 us
/// if they get as many as can be through loopback, do not run out of answers; half as long gathers half as many.
pub(crate) const GATHER: Duration = Duration::from_micros(150);
/// So many at once are worth answering without waiting for others.
const ENOUGH: u32 = 24;
/// What is counted together; hundreds of requests in a rush.
const WINDOW: Duration = Duration::from_millis(8);
/// Below this nothing would gather.
const RUSH_PER_S: u64 = 40_000;
const RUSH_CONNECTIONS: u32 = 16;
/// In how many pairs more must come with gathering, or must not, until a trial is over: a machine's speed changes from window to
/// window, and two that follow each other tell more than sums over many, which one slow window spoils.
const MOST: u32 = 8;
/// By how many in a hundred more must come for it to be better. Clients that gain do so by some six.
const BETTER: u64 = 3;
/// Windows until the next trial: a second.
const STAYS: u32 = 128;
/// The same after a trial that found nothing, and at most: half a second, some four.
const RESTS: u32 = 64;
const MOST_RESTS: u32 = 512;

pub(crate) struct Pace {
    /// The number of this window: connections are counted by the last one in which they sent something.
    window: u32,
    began: Instant,
    /// What came in it: how often something was read, and from how many.
    reads: u32,
    connections: u32,
    /// Read in this turn.
    turn: u32,
    state: State,
    /// Windows of the next rest.
    rests: u32,
    /// Gathering was better the last time. One trial that says otherwise may be chance.
    proven: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Calm,
    Trial(Trial),
    Gathering(u32),
    Resting(u32),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Trial {
    /// Requests a second in the first window of this pair, if it is over.
    without: Option<u64>,
    better: u32,
    not_better: u32,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Pace {
        let (reads, connections, turn) = (0, 0, 0);
        let state = State::Calm;
        let (rests, proven) = (RESTS, false);
        Pace { window: 1, began: now, reads, connections, turn, state, rests, proven }
    }

    /// A connection has sent something; `last` is the last window in which it did so.
    pub(crate) fn read(&mut self, last: &mut u32) {
        self.reads += 1;
        self.turn += 1;
        if *last != self.window {
            *last = self.window;
            self.connections += 1;
        }
    }

    /// A turn begins.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.turn = 0;
        let took = now.duration_since(self.began);
        if took < WINDOW {
            return;
        }
        let per_s = u128::from(self.reads) * 1_000_000_000 / took.as_nanos();
        let per_s = per_s as u64;
        let rush = took < 2 * WINDOW && per_s >= RUSH_PER_S && self.connections >= RUSH_CONNECTIONS;
        self.state = if rush { self.next(per_s) } else { State::Calm };
        self.window = self.window.wrapping_add(1);
        (self.began, self.reads, self.connections) = (now, 0, 0);
    }

    /// What a window in which so many came makes of it.
    fn next(&mut self, per_s: u64) -> State {
        match self.state {
            State::Calm => {
                (self.rests, self.proven) = (RESTS, false);
                State::Trial(Trial::default())
            }
            State::Trial(mut trial) => {
                let Some(without) = trial.without.take() else {
                    return State::Trial(Trial { without: Some(per_s), ..trial });
                };
                match per_s * 100 >= without * (100 + BETTER) {
                    true => trial.better += 1,
                    false => trial.not_better += 1,
                }
                if trial.better == MOST {
                    (self.rests, self.proven) = (RESTS, true);
                    State::Gathering(STAYS)
                } else if trial.not_better < MOST {
                    State::Trial(trial)
                } else if std::mem::take(&mut self.proven) {
                    State::Trial(Trial::default())
                } else {
                    let rests = self.rests;
                    self.rests = (rests * 2).min(MOST_RESTS);
                    State::Resting(rests)
                }
            }
            State::Gathering(1) | State::Resting(1) => State::Trial(Trial::default()),
            State::Gathering(left) => State::Gathering(left - 1),
            State::Resting(left) => State::Resting(left - 1),
        }
    }

    /// Whether others are to be waited for, because those who came in this turn are few.
    pub(crate) fn lets_gather(&self) -> bool {
        let gathers = match self.state {
            State::Calm | State::Resting(_) => false,
            State::Trial(trial) => trial.without.is_some(),
            State::Gathering(_) => true,
        };
        gathers && (1..ENOUGH).contains(&self.turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients that send `per_s[0]` requests a second, or `per_s[1]` while they are let gather, for so long. Returns how much of
    /// the time they were.
    fn gathered(pace: &mut Pace, connections: usize, per_s: [u64; 2], time: Duration) -> f64 {
        let (mut now, mut last) = (pace.began, vec![0; connections]);
        let (until, mut sent, mut with) = (now + time, 0, Duration::ZERO);
        while now < until {
            pace.begin(now);
            pace.read(&mut last[sent % connections]);
            sent += 1;
            let gathers = pace.lets_gather();
            let each = Duration::from_secs(1) / per_s[usize::from(gathers)] as u32;
            with += each * u32::from(gathers);
            now += each;
        }
        with.as_secs_f64() / time.as_secs_f64()
    }

    fn over_ten_seconds(connections: usize, per_s: [u64; 2]) -> f64 {
        let mut pace = Pace::new(Instant::now());
        gathered(&mut pace, connections, per_s, Duration::from_secs(10))
    }

    #[test]
    fn clients_that_come_faster_so_are_let_gather() {
        let part = over_ten_seconds(64, [95_000, 109_000]);
        assert!((0.9..0.97).contains(&part), "{part}, and it is tried again now and then");
    }

    #[test]
    fn clients_that_do_not_are_answered_at_once() {
        for per_s in [[50_000, 50_000], [95_000, 60_000], [95_000, 97_000]] {
            let part = over_ten_seconds(64, per_s);
            assert!((0.001..0.05).contains(&part), "{per_s:?}: {part}, it is only tried");
        }
    }

    #[test]
    fn one_slow_window_spoils_no_trial() {
        let mut pace = Pace::new(Instant::now());
        pace.state = State::Trial(Trial::default());
        for per_s in [95, 109, 95, 5].into_iter().chain([95, 108, 80, 88].repeat(4)).take(18) {
            assert!(matches!(pace.state, State::Trial(_)), "{per_s}");
            pace.state = pace.next(per_s * 1_000);
        }
        assert_eq!(pace.state, State::Gathering(STAYS));
    }

    #[test]
    fn what_was_better_is_not_given_up_for_one_bad_trial() {
        let mut pace = Pace::new(Instant::now());
        gathered(&mut pace, 64, [95_000, 109_000], Duration::from_secs(1));
        pace.state = State::Gathering(1);
        let mut after = |windows| {
            for _ in 0..windows {
                pace.state = pace.next(95_000);
            }
            pace.state
        };
        assert_eq!(after(1), State::Trial(Trial::default()));
        assert_eq!(after(2 * MOST), State::Trial(Trial::default()), "once more");
        assert_eq!(after(2 * MOST), State::Resting(RESTS));
    }

    #[test]
    fn a_few_connections_or_few_requests_are_never_kept_waiting() {
        assert!(over_ten_seconds(15, [95_000, 190_000]) == 0.0);
        assert!(over_ten_seconds(64, [39_000, 78_000]) == 0.0);
    }

    #[test]
    fn a_load_that_changes_is_noticed() {
        let mut pace = Pace::new(Instant::now());
        let second = Duration::from_secs(1);
        assert!(gathered(&mut pace, 64, [95_000, 109_000], second) > 0.9);
        assert!(gathered(&mut pace, 64, [95_000, 90_000], 4 * second) < 0.4);
        assert!(gathered(&mut pace, 1, [10_000, 10_000], second) < 0.02);
        assert_eq!(pace.state, State::Calm);
        assert!(gathered(&mut pace, 64, [95_000, 109_000], second) > 0.9);
    }

    #[test]
    fn a_turn_with_enough_goes_on_at_once() {
        let mut pace = Pace::new(Instant::now());
        gathered(&mut pace, 64, [95_000, 109_000], Duration::from_secs(1));
        pace.state = State::Gathering(STAYS);
        pace.begin(pace.began);
        assert!(!pace.lets_gather(), "nobody is there");
        for _ in 1..ENOUGH {
            pace.read(&mut 0);
            assert!(pace.lets_gather());
        }
        pace.read(&mut 0);
        assert!(!pace.lets_gather());
    }
}
