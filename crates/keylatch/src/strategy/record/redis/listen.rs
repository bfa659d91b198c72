//! The second connection: on it Redis tells what has changed, by whomever.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use redis::RedisError;
use redis::aio::PubSub;
use tokio::sync::mpsc::UnboundedSender;

use super::super::store::Told;
use super::link::{Link, refused};
use super::words;
use crate::error::ConnectError;

/// Between two tries to subscribe again. Until then whoever waits looks by itself so often.
const AGAIN: Duration = Duration::from_millis(100);

/// Subscribes, and goes on listening until nobody listens here.
pub(super) async fn start(
    link: &Arc<Link>,
    channel: String,
    tell: UnboundedSender<Told>,
) -> Result<(), ConnectError> {
    let subscription = subscribe(link, &channel).await;
    let subscription = subscription.map_err(|error| refused(&link.addresses(), &error))?;
    tokio::spawn(listen(Arc::downgrade(link), channel, tell, subscription));
    Ok(())
}

async fn subscribe(link: &Link, channel: &str) -> Result<PubSub, RedisError> {
    let mut subscription = link.client().await?.get_async_pubsub().await?;
    subscription.subscribe(channel).await?;
    Ok(subscription)
}

async fn listen(
    link: Weak<Link>,
    channel: String,
    tell: UnboundedSender<Told>,
    mut subscription: PubSub,
) {
    loop {
        let Some(mut broken) = link.upgrade().map(|link| link.broken()) else { return };
        // Something may have happened before.
        drop(tell.send(Told::Anything));
        {
            let mut messages = subscription.on_message();
            loop {
                tokio::select! {
                    message = messages.next() => {
                        let Some(message) = message else { break };
                        let news = words::news(message.get_payload_bytes());
                        for told in news.unwrap_or_else(|| vec![Told::Anything]) {
                            drop(tell.send(told));
                        }
                    }
                    // The other connection broke: this one may be to nobody, too, and not know.
                    _ = broken.changed() => break,
                    () = tell.closed() => return,
                }
            }
        }
        subscription = loop {
            drop(tell.send(Told::Anything));
            let Some(link) = link.upgrade() else { return };
            if tell.is_closed() {
                return;
            }
            if let Ok(subscription) = subscribe(&link, &channel).await {
                break subscription;
            }
            drop(link);
            tokio::time::sleep(AGAIN).await;
        };
    }
}
