//! The network of a world, as a channel: messages take their time, overtake each other on different links, are
//! lost, and arrive long after whoever sent them has given up. Links can be cut in one direction.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use openraft::raft::AppendEntriesResponse;
use tokio::sync::oneshot;

use super::super::message::{self, Request};
use super::here::Process;
use super::world::{Plant, World, note};
use crate::log::channel::{Answers, Channel, ChannelError, Connecting, Hello, Link, Serves};

#[derive(Default)]
pub(super) struct Net {
    there: BTreeMap<String, (Arc<dyn Answers>, Arc<Process>)>,
    /// From where to where nothing goes.
    cut: BTreeSet<(String, String)>,
    /// Of a thousand messages so many are lost, and so many come late.
    pub(super) lost: u64,
    pub(super) late: u64,
    /// How late those are, at most.
    pub(super) late_ms: u64,
    /// Since when nothing goes from or to these.
    pub(super) alone_since: BTreeMap<String, u64>,
}

impl Net {
    pub(super) fn cut(&mut self, from: &str, to: &str) {
        self.cut.insert((from.into(), to.into()));
    }

    pub(super) fn heal(&mut self) {
        self.cut.clear();
        self.alone_since.clear();
    }

    /// Nothing goes wrong any more.
    pub(super) fn calm(&mut self) {
        self.heal();
        (self.lost, self.late) = (0, 0);
    }

    fn is_cut(&self, from: &str, to: &str) -> bool {
        self.cut.contains(&(from.into(), to.into()))
    }
}

/// How whoever is at an address calls others.
pub(super) struct Caller {
    pub(super) world: Arc<World>,
    pub(super) own: String,
}

/// Where a process is called.
pub(super) struct Place {
    pub(super) world: Arc<World>,
    pub(super) own: String,
    pub(super) process: Arc<Process>,
}

struct Line {
    world: Arc<World>,
    own: String,
    to: String,
    from: u64,
    /// Who was there: if it is another one now, the line is broken.
    process: Arc<Process>,
}

impl Serves for Place {
    fn serve(self: Box<Self>, answers: Arc<dyn Answers>) -> io::Result<BoxFuture<'static, ()>> {
        let there = (answers, Arc::clone(&self.process));
        self.world.net.lock().there.insert(self.own.clone(), there);
        Ok(Box::pin(std::future::pending()))
    }
}

impl World {
    /// Whether a message goes through, after as long as it takes.
    async fn passes(&self, from: &str, to: &str) -> bool {
        let (lost, ms) = {
            let net = self.net.lock();
            let late = self.below(1_000) < net.late;
            let ms = if late { self.below(net.late_ms + 1) } else { self.below(3) };
            (self.below(1_000) < net.lost, ms)
        };
        self.sleep(ms).await;
        let passes = !lost && !self.net.lock().is_cut(from, to);
        if !passes {
            note!(self, "{from} -> {to}: lost");
        }
        passes
    }

    fn there(&self, address: &str) -> Option<(Arc<dyn Answers>, Arc<Process>)> {
        let net = self.net.lock();
        net.there.get(address).filter(|(_, process)| !process.is_dead()).cloned()
    }
}

/// How long somebody waits for what never comes, if nothing else ends it.
const NEVER_MS: u64 = 15_000;

fn refused() -> ChannelError {
    ChannelError::Io(io::ErrorKind::ConnectionRefused.into())
}

fn late() -> ChannelError {
    ChannelError::Io(io::ErrorKind::TimedOut.into())
}

impl Channel for Caller {
    fn connect<'a>(&'a self, address: &'a str, hello: Hello) -> Connecting<'a> {
        Box::pin(async move {
            let world = &self.world;
            if !world.passes(&self.own, address).await {
                world.sleep(2_000).await;
                return Err(late());
            }
            let (answers, process) = world.there(address).ok_or_else(refused)?;
            let welcome = answers.welcome(&hello);
            if !world.passes(address, &self.own).await {
                world.sleep(2_000).await;
                return Err(late());
            }
            let (world, own, to) = (Arc::clone(world), self.own.clone(), address.to_owned());
            let link: Box<dyn Link> = Box::new(Line { world, own, to, from: hello.from, process });
            Ok((link, welcome?))
        })
    }
}

impl Link for Line {
    fn call<'a>(&'a mut self, request: &'a [u8]) -> BoxFuture<'a, Result<Vec<u8>, ChannelError>> {
        let (reply, answer) = oneshot::channel();
        let (world, process) = (Arc::clone(&self.world), Arc::clone(&self.process));
        let (own, to, from) = (self.own.clone(), self.to.clone(), self.from);
        // On its way whatever becomes of the one who sent it.
        tokio::spawn(carry(world, process, (own, to, from), request.to_vec(), reply));
        Box::pin(async move { answer.await.map_err(|_| refused()) })
    }
}

async fn carry(
    world: Arc<World>,
    process: Arc<Process>,
    (own, to, from): (String, String, u64),
    request: Vec<u8>,
    reply: oneshot::Sender<Vec<u8>>,
) {
    let kind = kind(&request);
    if !world.passes(&own, &to).await {
        if world.plant == Plant::UnheardEntries && kind == "entries" {
            let stored = Ok(AppendEntriesResponse::Success);
            let _ = reply.send(message::reply_to_bytes(stored, message::write_append));
            return;
        }
        return world.sleep(NEVER_MS).await;
    }
    let Some((answers, now)) = world.there(&to) else { return };
    if !Arc::ptr_eq(&process, &now) {
        return;
    }
    let sum = crc32fast::hash(&request);
    note!(world, "{own} -> {}: {kind}, {} bytes, {sum:08x}", process.name, request.len());
    let Ok(answer) = process.spawn(answers.answer(from, request)).await else { return };
    if world.passes(&to, &own).await {
        let sum = crc32fast::hash(&answer);
        note!(world, "{own} <- {}: {kind}, {} bytes, {sum:08x}", process.name, answer.len());
        let _ = reply.send(answer);
    } else {
        world.sleep(NEVER_MS).await;
    }
}

/// What a message is, for the trace.
fn kind(request: &[u8]) -> &'static str {
    match Request::from_bytes(request) {
        Ok(Request::Append(rpc)) if rpc.entries.is_empty() => "heartbeat",
        Ok(Request::Append(_)) => "entries",
        Ok(Request::Vote(_)) => "vote",
        Ok(Request::PreVote(_)) => "pre-vote",
        Ok(Request::Snapshot(_)) => "snapshot",
        Ok(Request::Transfer(_)) => "transfer",
        Ok(Request::Commit(..)) => "batch",
        Ok(Request::ReadIndex) => "read",
        Ok(Request::Join { .. }) => "join",
        Ok(Request::Remove(_)) => "remove",
        Ok(Request::Lead(_)) => "lead",
        Ok(_) => "question",
        Err(_) => "nonsense",
    }
}
