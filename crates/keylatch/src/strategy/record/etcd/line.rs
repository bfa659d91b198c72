//! A connection for calls that are one question and one answer, which is nearly all of them. By way of tonic's channel
//! such a call is written in three parts, and passes through two tasks on its way: here the question is one write, and
//! only the connection has a task. Not with TLS: there tonic knows what to do.

use std::fmt;
use std::sync::Arc;

use h2::client::{SendRequest, handshake};
use parking_lot::Mutex;
use prost::Message;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tonic::codegen::Bytes;
use tonic::codegen::http::{HeaderMap, Method, Request, header};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Status};

use super::link::{ANSWER_BYTES, CALL, CONNECT};

/// What comes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

pub(super) struct Line {
    /// `http://HOST:PORT`.
    origin: String,
    /// `HOST:PORT`.
    address: String,
    open: Mutex<Option<Open>>,
    /// Whoever comes while a connection is made waits for that one.
    opening: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Open {
    send: SendRequest<Bytes>,
    /// When the last of these goes, the connection ends a little later: calls on it may be under way.
    _wanted: Arc<oneshot::Sender<()>>,
}

/// There was no connection, so nothing was sent.
#[derive(Debug)]
pub(super) struct NotSent(String);

impl NotSent {
    fn status(text: String) -> Status {
        Status::from_error(Box::new(NotSent(text)))
    }
}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotSent {}

impl Line {
    /// If it is one without TLS.
    pub(super) fn new(endpoint: &str) -> Option<Line> {
        let address = endpoint.strip_prefix("http://")?.trim_end_matches('/');
        let (origin, address) = (format!("http://{address}"), address.to_string());
        Some(Line {
            origin,
            address,
            open: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
        })
    }

    /// The next call has a connection of its own.
    pub(super) fn forget(&self) {
        self.open.lock().take();
    }

    pub(super) async fn call<Q: Message, A: Message + Default>(
        &self,
        path: &'static str,
        ask: &Q,
        token: Option<MetadataValue<Ascii>>,
    ) -> Result<A, Status> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}{path}", self.origin))
            .header(header::TE, "trailers")
            .header(header::CONTENT_TYPE, "application/grpc")
            // A member that has lost the others says so at once.
            .header("hasleader", "true");
        let request = match token {
            Some(token) => request.header("token", token.as_bytes()),
            None => request,
        };
        let request = request.body(()).map_err(|error| Status::from_error(Box::new(error)))?;
        let mut send = self.ready().await?;
        let (answer, mut question) = send.send_request(request, false).map_err(lost)?;
        // Before the connection's task writes anything: so it is one write.
        question.send_data(message(ask), true).map_err(lost)?;
        let (head, mut body) = answer.await.map_err(lost)?.into_parts();
        if let Some(status) = refusal(&head.headers) {
            return Err(status);
        }
        let mut bytes = Vec::new();
        while let Some(part) = body.data().await {
            let part = part.map_err(lost)?;
            body.flow_control().release_capacity(part.len()).map_err(lost)?;
            if bytes.len() + part.len() > ANSWER_BYTES {
                return Err(Status::resource_exhausted("an answer that is too large"));
            }
            bytes.extend_from_slice(&part);
        }
        let end = body.trailers().await.map_err(lost)?.unwrap_or_default();
        match Status::from_header_map(&end) {
            Some(status) if status.code() == Code::Ok => answered(&bytes),
            Some(status) => Err(status),
            None => Err(Status::unknown("an answer without an end")),
        }
    }

    /// A connection on which something can be asked.
    async fn ready(&self) -> Result<SendRequest<Bytes>, Status> {
        // One that was there may have ended meanwhile.
        for _ in 0..2 {
            let known = self.open.lock().clone();
            let open = match known {
                Some(open) => open,
                None => self.open().await.map_err(NotSent::status)?,
            };
            match open.send.ready().await {
                Ok(send) => return Ok(send),
                Err(_) => self.forget(),
            }
        }
        Err(NotSent::status("the connection ends as soon as it is made".into()))
    }

    async fn open(&self) -> Result<Open, String> {
        let _one = self.opening.lock().await;
        if let Some(open) = self.open.lock().clone() {
            return Ok(open);
        }
        let connecting = async {
            let stream = TcpStream::connect(&self.address).await.map_err(|it| it.to_string())?;
            stream.set_nodelay(true).map_err(|it| it.to_string())?;
            handshake(stream).await.map_err(|it| it.to_string())
        };
        let made = timeout(CONNECT, connecting).await;
        let (send, connection) = made.map_err(|_| format!("no answer within {CONNECT:?}"))??;
        let (wanted, unwanted) = oneshot::channel::<()>();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                ended = connection => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection to etcd has ended");
                    }
                }
                // A member that says nothing any more does not end it.
                () = async { drop(unwanted.await); sleep(CALL).await } => {}
            }
        });
        let open = Open { send, _wanted: Arc::new(wanted) };
        *self.open.lock() = Some(open.clone());
        Ok(open)
    }
}

/// It may have been sent.
fn lost(error: h2::Error) -> Status {
    Status::from_error(Box::new(error))
}

fn message(ask: &impl Message) -> Bytes {
    let length = ask.encoded_len();
    let mut bytes = Vec::with_capacity(PREFIX + length);
    bytes.push(0);
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    ask.encode_raw(&mut bytes);
    bytes.into()
}

/// An answer that is nothing but a refusal.
fn refusal(head: &HeaderMap) -> Option<Status> {
    Status::from_header_map(head).filter(|status| status.code() != Code::Ok)
}

fn answered<A: Message + Default>(bytes: &[u8]) -> Result<A, Status> {
    let (prefix, message) = bytes.split_at_checked(PREFIX).unwrap_or_default();
    let length = message.len() as u64;
    match prefix {
        [0, size @ ..]
            if size.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)) == length =>
        {
            A::decode(message).map_err(|error| Status::internal(error.to_string()))
        }
        _ => Err(Status::internal("an answer that is not one message")),
    }
}
