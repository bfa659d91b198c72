//! A run: a cluster, its load, one fault after the other, and what is looked at in between and in the end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use keylatch_wire::Value;

use crate::Trouble;
use crate::client::{Link, number, text};
use crate::fault::{Kind, Plan};
use crate::load::{Load, Part};
use crate::member::{Member, faketime};
use crate::report::Report;
use crate::world::World;

/// Grants after which it goes on, as far as anybody can see.
const GOES_ON: u64 = 40;
/// Steps between two looks at everything.
const LOOK_AFTER: u64 = 8;

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The binary `keylatch`.
    pub binary: PathBuf,
    /// The plan.
    pub seed: u64,
    /// Three, or five.
    pub members: usize,
    /// How long.
    pub length: Length,
    /// Something that must be found.
    pub plant: Option<Plant>,
    /// Ends the run early, and well.
    pub stop: Arc<AtomicBool>,
}

/// How long a run is.
#[derive(Clone, Copy, Debug)]
pub enum Length {
    /// So many faults.
    Faults(u64),
    /// So long.
    Time(Duration),
}

/// A mistake that is made on purpose, so that it is seen that the judge sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// Old data is put back at a majority: what was granted since is lost.
    OldCopy,
    /// Clients are told of a server that is no member: it grants what others hold.
    Stranger,
}

/// Runs it, and says what happens as it does. An error is no verdict: something could not be done here.
pub fn run(options: &Options, say: &dyn Fn(&str)) -> Result<Report, Trouble> {
    if faketime().is_none() {
        let text = "libfaketime is missing: scripts/setup installs it";
        return Err(Trouble::Setup(text.into()));
    }
    let dir = tempfile::Builder::new().prefix("keylatch-chaos-").tempdir()?;
    let load = Arc::new(Load::default());
    let (began, mut faults) = (Instant::now(), BTreeMap::new());
    let at = dir.path().to_path_buf();
    // Whoever enters another namespace is in another folder.
    let binary = options
        .binary
        .canonicalize()
        .map_err(|error| Trouble::Setup(format!("{}: {error}", options.binary.display())))?;
    let with_disk = options.plant.is_none();
    let mut world = World::new(options.members, with_disk, binary, at, Arc::clone(&load))?;
    say(&format!("{} members are one cluster", options.members));
    let ended = std::thread::scope(|scope| {
        let parts = [Part::Contends, Part::Contends, Part::Contends, Part::Keeps, Part::Lapses];
        let parts = parts.into_iter().cycle().take(10).chain([Part::Queues, Part::Queues]);
        for (number, part) in parts.enumerate() {
            let (load, seed) = (Arc::clone(&load), options.seed.wrapping_add(number as u64));
            scope.spawn(move || load.work(part, seed));
        }
        let _end = End(&load);
        let mut run = Run { world: &mut world, load: &load, options, began, say };
        run.go(&mut faults)
    });
    match ended {
        Ok(()) => {}
        Err(Trouble::Stuck(what)) => load.judge.condemns(what),
        Err(setup) => return Err(setup),
    }
    let report = Report {
        seed: options.seed,
        members: options.members,
        took: began.elapsed(),
        faults,
        count: load.judge.count(),
        violations: load.judge.violations(),
        recent: load.judge.recent(),
    };
    drop(world);
    if !report.is_good() && options.plant.is_none() {
        say(&format!("what the members said is in {}", dir.keep().display()));
    }
    Ok(report)
}

/// Ends the load, whatever has happened.
struct End<'a>(&'a Load);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::SeqCst);
        self.0.shared.aborted.store(true, Ordering::SeqCst);
    }
}

type Faults = BTreeMap<Kind, (u64, Duration)>;

struct Run<'a> {
    world: &'a mut World,
    load: &'a Load,
    options: &'a Options,
    began: Instant,
    say: &'a dyn Fn(&str),
}

impl Run<'_> {
    fn go(&mut self, faults: &mut Faults) -> Result<(), Trouble> {
        self.goes_on()?;
        match self.options.plant {
            Some(Plant::OldCopy) => {
                self.world.old_copy(false)?;
                self.goes_on()?;
                self.world.old_copy(true)?;
                return self.look();
            }
            Some(Plant::Stranger) => return self.meet_a_stranger(),
            None => {}
        }
        for (step, (fault, under)) in (1..).zip(Plan::new(self.options.seed)) {
            let over = match self.options.length {
                Length::Faults(most) => step > most,
                Length::Time(time) => self.began.elapsed() >= time,
            };
            if over || self.options.stop.load(Ordering::Relaxed) || self.is_broken() {
                break;
            }
            self.load.judge.worst_gap();
            let mut said = Vec::new();
            for fault in under.iter().chain([&fault]) {
                self.load.judge.note(&format!("FAULT {fault:?}"));
                let whom = self.world.strike(fault)?;
                said.push(format!("{} ({whom})", fault.kind));
            }
            std::thread::sleep(fault.lasts);
            self.load.judge.note("HEALED");
            self.world.heal()?;
            self.goes_on()?;
            let gap = self.load.judge.worst_gap();
            for fault in under.iter().chain([&fault]) {
                let (times, worst) = faults.entry(fault.kind).or_default();
                *times += 1;
                *worst = (*worst).max(gap);
            }
            let grants = self.load.judge.count().grants;
            (self.say)(&format!(
                "{:7.1} s {grants:>8} grants, {:5.2} s without: {}",
                self.began.elapsed().as_secs_f64(),
                gap.as_secs_f64(),
                said.join(", then ")
            ));
            if step % LOOK_AFTER == 0 {
                self.look()?;
            }
        }
        self.finish()
    }

    fn is_broken(&self) -> bool {
        self.load.shared.aborted.load(Ordering::Relaxed) || !self.load.judge.violations().is_empty()
    }

    /// Until clients are served again.
    fn goes_on(&mut self) -> Result<(), Trouble> {
        let (load, before) = (self.load, self.load.judge.count().grants);
        self.world.eventually("grants go on", |_| {
            let gone = load.shared.aborted.load(Ordering::Relaxed);
            (gone || load.judge.count().grants >= before + GOES_ON).then_some(())
        })
    }

    /// Everybody pauses, and every member shows everything.
    fn look(&mut self) -> Result<(), Trouble> {
        let load = self.load;
        load.resting.store(true, Ordering::SeqCst);
        let idle = self.world.eventually("clients come to an end", |_| {
            let gone = load.shared.aborted.load(Ordering::Relaxed);
            (gone || load.is_idle()).then_some(())
        });
        let equal = idle.and_then(|()| self.world.until_equal());
        let seen = equal.and_then(|()| self.see());
        load.judge.begins_again();
        load.resting.store(false, Ordering::SeqCst);
        seen
    }

    /// What is kept is shown by every member.
    fn see(&mut self) -> Result<(), Trouble> {
        for at in 0..self.world.members.len() {
            let held = self.held(at)?;
            self.load.judge.sees(&self.world.members[at].to_string(), &held);
        }
        Ok(())
    }

    /// Tokens by id.
    fn held(&mut self, at: usize) -> Result<BTreeMap<String, i64>, Trouble> {
        self.world.eventually("a list of all locks", |world| list(&world.members[at]))
    }

    /// Everything is given back, and then there is nothing anywhere.
    fn finish(&mut self) -> Result<(), Trouble> {
        if self.is_broken() {
            // That is what is to be told; waiting for what never comes would only hide it behind a time-out.
            return Ok(());
        }
        self.look()?;
        self.load.over.store(true, Ordering::SeqCst);
        let load = self.load;
        self.world.eventually("clients give back what they have", |_| {
            let gone = load.shared.aborted.load(Ordering::Relaxed);
            (gone || (load.judge.kept().is_empty() && load.is_idle())).then_some(())
        })?;
        for at in 0..self.world.members.len() {
            // What was left to end does so.
            let empty = self.world.eventually("everything has ended", |world| {
                list(&world.members[at])?.is_empty().then_some(())
            });
            if empty.is_err() {
                let left = self.held(at)?;
                load.judge.condemns(format!("left over in the end: {left:?}"));
            }
        }
        self.world.until_equal()
    }

    fn meet_a_stranger(&mut self) -> Result<(), Trouble> {
        let dir = tempfile::tempdir()?;
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let mut stranger = Member::new(usize::MAX, address, dir.path().into())?;
        stranger.start(&self.options.binary, &[])?;
        self.world.mislead(stranger.resp().expect("it runs"));
        // Those who lose their patience come to it, sooner or later.
        let load = self.load;
        self.world.eventually("the stranger is noticed", |_| {
            load.judge.violations().iter().any(|what| what.contains("both hold")).then_some(())
        })
    }
}

/// Tokens by id, as a member shows them.
fn list(member: &Member) -> Option<BTreeMap<String, i64>> {
    let mut link = Link::to(member.resp()?).ok()?;
    let (mut all, mut cursor) = (BTreeMap::new(), 0);
    loop {
        let line = format!("LOCKS WAITERS LIMIT 500 CURSOR {cursor}");
        let Value::Array(page) = link.ask(&line, Duration::from_secs(20)).ok()? else {
            return None;
        };
        let Some(last) = page.last() else { return Some(all) };
        cursor = number(last, "seq")?;
        for one in &page {
            all.insert(text(one, "id")?.to_owned(), number(one, "token")?);
        }
    }
}
