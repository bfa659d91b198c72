//! Clients: each asks for locks at any member, again under the same id when it does not know what became of it,
//! holds for a while, and releases at any member.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keylatch_table::{
    Acquire, Command, Grant, Mode, Part, Party, Reply, RequestId, Resource, Target,
};
use tokio::sync::oneshot;

use super::judge::Belief;
use super::server::{Ask, Said};
use super::world::{World, note};

pub(super) struct Client {
    pub(super) world: Arc<World>,
    pub(super) number: u64,
    pub(super) keys: u64,
    pub(super) done: Arc<AtomicBool>,
    asked: u64,
}

/// One thing that a client wants.
struct Wish {
    ask: Acquire,
    key: String,
    /// When it asked first, and the last token that anybody had seen then.
    first: u64,
    seen_token: u64,
}

impl Client {
    pub(super) fn new(
        world: &Arc<World>,
        number: u64,
        keys: u64,
        done: &Arc<AtomicBool>,
    ) -> Client {
        let (world, done) = (Arc::clone(world), Arc::clone(done));
        Client { world, number, keys, done, asked: 0 }
    }

    pub(super) async fn run(mut self) {
        while !self.done.load(Ordering::SeqCst) {
            self.world.sleep(self.world.below(150)).await;
            match self.world.below(10) {
                0 => self.read().await,
                _ => self.lock().await,
            }
        }
    }

    fn wish(&mut self) -> Wish {
        let world = &self.world;
        self.asked += 1;
        let id = RequestId::new(&format!("c{}-{}", self.number, self.asked));
        let key = format!("k{}", world.below(self.keys));
        let resource = Resource::plain(&key).unwrap();
        let mode = if world.percent(25) { Mode::Shared } else { Mode::Exclusive };
        let party = Party::client(&format!("c{}", self.number));
        let ask = Acquire {
            part: Part::new(resource.clone(), mode),
            wait_ms: world.pick(&[0, 200, 1_000, 3_000, 6_000]),
            lease_ms: world.pick(&[800, 2_000, 4_000]),
            ..Acquire::new(id, resource, party)
        };
        let (first, seen_token) = (world.now(), world.judge.lock().seen_token);
        Wish { ask, key, first, seen_token }
    }

    async fn lock(&mut self) {
        let wish = self.wish();
        let Some(grant) = self.acquire(&wish).await else { return };
        self.hold(&wish, grant).await;
    }

    /// Asks until it knows, or does not care any more.
    async fn acquire(&self, wish: &Wish) -> Option<Grant> {
        let world = &self.world;
        for tries in 0..world.between(1, 8) {
            if tries > 0 {
                world.judge.lock().counts.re_asked += 1;
                world.sleep(world.below(200)).await;
            }
            let id = &wish.ask.id;
            let within = wish.ask.wait_ms + world.pick(&[100, 4_000, 8_000]);
            let said = self.ask(Some(Command::Acquire(wish.ask.clone())), within).await;
            note!(world, "{id:?} asks for {}: {said:?}", wish.key);
            match said {
                Some(Said::Reply(Reply::Granted(grant)) | Said::Granted(grant)) => {
                    world.judge.lock().told_granted(id, &grant, wish.seen_token);
                    return Some(grant);
                }
                Some(Said::NoLeader { maybe }) => {
                    world.judge.lock().counts.no_leader += 1;
                    if !maybe && tries == 0 && world.percent(50) {
                        world.judge.lock().told_never(id.clone());
                        return None;
                    }
                }
                None | Some(Said::Withdrawn) => {}
                Some(_) => return None,
            }
        }
        None
    }

    async fn hold(&self, wish: &Wish, grant: Grant) {
        let (world, id) = (&self.world, &wish.ask.id);
        let from = world.now();
        // A lease runs from the grant on, which was not before this. It is shorter than what was asked for if the place
        // was kept for somebody who seemed to be gone.
        let lease_ms = grant.lease_ms.unwrap_or(wish.ask.lease_ms).min(wish.ask.lease_ms);
        let mut until = wish.first + grant.waited_ms + lease_ms;
        let holds = world.below(wish.ask.lease_ms + wish.ask.lease_ms / 4);
        if world.percent(30) {
            world.sleep(holds / 2).await;
            // Whoever holds may ask again, anywhere, and is told the same.
            if world.percent(50) {
                let said = self.ask(Some(Command::Acquire(wish.ask.clone())), 3_000).await;
                note!(world, "{id:?} asks again: {said:?}");
                if let Some(Said::Reply(Reply::Granted(again))) = said {
                    world.judge.lock().told_granted(id, &again, wish.seen_token);
                }
            }
        }
        if world.percent(30) {
            let asked = world.now();
            let renew = Command::Renew(Target::Id(id.clone()), None);
            let said = self.ask(Some(renew), 3_000).await;
            note!(world, "{id:?} renews: {said:?}");
            if let Some(Said::Reply(Reply::Renewed(_))) = said {
                until = until.max(asked + wish.ask.lease_ms);
            }
        }
        let left = (from + holds).saturating_sub(world.now());
        world.sleep(left).await;
        let until = until.min(world.now());
        let (key, mode) = (wish.key.clone(), wish.ask.part.mode);
        if until > from {
            world.judge.lock().believed(Belief { key, mode, id: id.clone(), from, until });
        }
        if world.percent(10) {
            // It has crashed: the lease ends it.
            return;
        }
        for _ in 0..4 {
            let release = Command::Release(Target::Id(id.clone()));
            let said = self.ask(Some(release), 4_000).await;
            note!(world, "{id:?} releases: {said:?}");
            if let Some(Said::Reply(_)) = said {
                return;
            }
        }
    }

    async fn read(&self) {
        let said = self.ask(None, 4_000).await;
        note!(self.world, "c{} reads: {said:?}", self.number);
    }

    /// Asks any member, for so long.
    async fn ask(&self, command: Option<Command>, within_ms: u64) -> Option<Said> {
        let doors: Vec<String> = self.world.doors.lock().keys().cloned().collect();
        if doors.is_empty() {
            self.world.sleep(50).await;
            return None;
        }
        let at = self.world.pick(&doors);
        ask(&self.world, &at, command, within_ms).await
    }
}

/// Asks the member at an address. `None`: nobody knows what became of it.
pub(super) async fn ask(
    world: &Arc<World>,
    at: &str,
    command: Option<Command>,
    within_ms: u64,
) -> Option<Said> {
    // What anybody has been told by now is to be seen.
    let seen_index = world.judge.lock().seen_index;
    world.sleep(world.below(2)).await;
    let (to, said) = oneshot::channel();
    let asks = world.doors.lock().get(at)?.asks.clone();
    asks.send(Ask { command, to, seen_index }).ok()?;
    let within = Duration::from_millis(within_ms);
    tokio::time::timeout(within, said).await.ok()?.ok()
}
