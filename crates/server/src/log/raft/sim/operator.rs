//! What an operator does: looks who leads, hands over, takes nodes out. Nothing of it is certain to succeed.

use std::sync::Arc;
use std::time::Duration;

use super::super::bytes::{BadBytes, Reader};
use super::super::join::VISITOR;
use super::super::message::{self, Led, Request};
use super::net::Caller;
use super::world::{World, note};
use crate::cluster::{Role, Status};
use crate::log::channel::Channel;

/// How long an operator waits for an answer.
const WITHIN: Duration = Duration::from_secs(5);

/// How it looks from one of the members, whichever answers.
pub(super) async fn status(world: &Arc<World>) -> Option<Status> {
    let addresses: Vec<String> = world.doors.lock().keys().cloned().collect();
    if addresses.is_empty() {
        return None;
    }
    let address = world.pick(&addresses);
    ask(world, &address, &Request::Status, message::read_status).await
}

/// Asks whoever leads, if that is known.
pub(super) async fn lead(world: &Arc<World>, request: &Request) -> Option<Led> {
    let status = status(world).await?;
    let leader = status.members.iter().find(|member| Some(member.node) == status.leader)?;
    let led = ask(world, &leader.address, request, message::read_led).await;
    note!(world, "the operator is told {led:?}");
    led
}

/// Hands over to one of the voters.
pub(super) async fn transfer(world: &Arc<World>) {
    let Some(status) = status(world).await else { return };
    let voters = status.members.iter().filter(|member| member.role == Role::Voter);
    let voters: Vec<u64> = voters.map(|member| member.node).collect();
    if !voters.is_empty() {
        let to = world.pick(&voters);
        note!(world, "the operator hands over to {to}");
        lead(world, &Request::Lead(to)).await;
    }
}

async fn ask<T>(
    world: &Arc<World>,
    address: &str,
    request: &Request,
    read: fn(&mut Reader<'_>) -> Result<T, BadBytes>,
) -> Option<T> {
    let caller = Caller { world: Arc::clone(world), own: "operator".into() };
    let asking = async {
        let (mut link, _) = caller.connect(address, VISITOR).await.ok()?;
        let reply = link.call(&request.to_bytes()).await.ok()?;
        message::reply_from_bytes(&reply, read).ok()
    };
    tokio::time::timeout(WITHIN, asking).await.ok().flatten()
}
