//! The way to etcd: one member at a time, the next one when it does not answer. Every call is bounded, and
//! one that failed says whether it may have happened.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use parking_lot::RwLock;
use prost::Message;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, ConnectError, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::super::store::StoreError;
use super::line::{Line, NotSent};
use super::url::{Tls, Url};
use super::wire::{
    AuthenticateRequest, AuthenticateResponse, LeaseGrantRequest, LeaseRequest, LeaseResponse,
    Nothing, RangeRequest, RangeResponse, TxnRequest, TxnResponse, WatchCreate, WatchRequest,
    WatchResponse,
};

/// How long a call may take, with all its tries.
pub(super) const CALL: Duration = Duration::from_secs(5);
/// How long keeping leases alive may take: the shortest ones live for 4 s.
const BEAT: Duration = Duration::from_secs(2);
/// How long one member may take to be connected with, so that there is time for another.
pub(super) const CONNECT: Duration = Duration::from_secs(2);
/// Between tries when nobody could be reached.
const PAUSE: Duration = Duration::from_millis(100);
/// A member that says nothing for so long is asked whether it lives. etcd forbids less than 5 s.
const PING: Duration = Duration::from_secs(10);
/// Answers may be larger than questions, which etcd bounds: a queue of a thousand, all names.
pub(super) const ANSWER_BYTES: usize = 256 << 20;

pub(super) struct Link {
    channels: Vec<Channel>,
    /// A shorter way to the same members, where there is one.
    lines: Vec<Option<Line>>,
    /// Their addresses, for whoever reads that nobody answers there.
    endpoints: Vec<String>,
    /// The one that is used.
    at: AtomicUsize,
    user: Option<(String, String)>,
    /// What the user is known by, if there is one.
    token: RwLock<Option<MetadataValue<Ascii>>>,
}

/// Why a call did not succeed.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub(super) text: String,
    /// Whether it may have happened all the same.
    pub(super) unknown: bool,
    /// A key was to have a lease that is not there any more.
    pub(super) no_lease: bool,
    /// Nobody could be reached.
    pub(super) unreachable: bool,
}

impl From<Failed> for StoreError {
    fn from(failed: Failed) -> StoreError {
        StoreError { text: failed.text, unknown: failed.unknown }
    }
}

/// What a failed try means.
enum Means {
    /// It has not happened, and will not by trying elsewhere.
    No,
    /// It was not carried out there.
    NotSent,
    NeedsToken,
    Unknown,
}

impl Link {
    pub(super) async fn open(url: &Url) -> Result<Link, Failed> {
        let channels = url.endpoints.iter().map(|endpoint| channel(endpoint, url.tls.as_ref()));
        let channels = channels.collect::<Result<Vec<_>, _>>().map_err(refused)?;
        // Not all begin with the same member.
        let at = AtomicUsize::new(rand::random_range(0..channels.len()));
        let lines = url.endpoints.iter().map(|endpoint| Line::new(endpoint)).collect();
        let (endpoints, user) = (url.endpoints.clone(), url.user.clone());
        let link = Link { channels, lines, endpoints, at, user, token: RwLock::new(None) };
        if link.user.is_some() {
            link.authenticate(Instant::now() + CALL).await?;
        }
        Ok(link)
    }

    pub(super) async fn txn(&self, txn: TxnRequest) -> Result<TxnResponse, Failed> {
        self.call("/etcdserverpb.KV/Txn", txn, false).await
    }

    /// One that changes nothing, or nothing more if it is done twice.
    pub(super) async fn repeatable(&self, txn: TxnRequest) -> Result<TxnResponse, Failed> {
        self.call("/etcdserverpb.KV/Txn", txn, true).await
    }

    pub(super) async fn range(&self, range: RangeRequest) -> Result<RangeResponse, Failed> {
        self.call("/etcdserverpb.KV/Range", range, true).await
    }

    /// A lease that nobody hears of ends by itself, so this may be done twice.
    pub(super) async fn grant(&self, ttl: i64) -> Result<LeaseResponse, Failed> {
        self.call("/etcdserverpb.Lease/LeaseGrant", LeaseGrantRequest { ttl }, true).await
    }

    pub(super) async fn revoke(&self, id: i64) -> Result<(), Failed> {
        let call = self.call("/etcdserverpb.Lease/LeaseRevoke", LeaseRequest { id }, true);
        call.await.map(|Nothing {}| ())
    }

    /// Keeps these alive. The answers say how many seconds each has now; 0 is one that has ended.
    pub(super) async fn keep_alive(&self, ids: Vec<i64>) -> Result<Vec<LeaseResponse>, Failed> {
        let at = self.at.load(Ordering::Relaxed);
        let count = ids.len();
        let all = async {
            let ids = stream::iter(ids.into_iter().map(|id| LeaseRequest { id }));
            let path = "/etcdserverpb.Lease/LeaseKeepAlive";
            let mut answers: Streaming<LeaseResponse> = self.stream(at, path, ids).await?;
            let mut kept = Vec::with_capacity(count);
            while let Some(answer) = answers.message().await?
                && kept.len() < count
            {
                kept.push(answer);
            }
            Ok::<_, Status>(kept)
        };
        self.bounded(at, Instant::now() + BEAT, all).await
    }

    /// Tells of everything in this range from now on, once this has returned.
    pub(super) async fn watch(
        &self,
        (key, range_end): (Vec<u8>, Vec<u8>),
    ) -> Result<Streaming<WatchResponse>, Failed> {
        let at = self.at.load(Ordering::Relaxed);
        let create = WatchRequest { create: Some(WatchCreate { key, range_end, prev_kv: true }) };
        // It is watched as long as our half of the stream is open.
        let asks = stream::iter([create]).chain(stream::pending());
        let opening = async {
            let mut events: Streaming<WatchResponse> =
                self.stream(at, "/etcdserverpb.Watch/Watch", asks).await?;
            match events.message().await? {
                Some(first) if first.created && !first.canceled => Ok(events),
                Some(first) => Err(Status::permission_denied(first.cancel_reason)),
                None => Err(Status::unavailable("the watch ended")),
            }
        };
        self.bounded(at, Instant::now() + CALL, opening).await
    }

    async fn call<Q, A>(&self, path: &'static str, ask: Q, repeatable: bool) -> Result<A, Failed>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let deadline = Instant::now() + CALL;
        let mut tries = 0;
        let mut authenticated = false;
        loop {
            let at = self.at.load(Ordering::Relaxed);
            let status = match timeout_at(deadline, self.once(at, path, ask.clone())).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) => status,
                Err(_) => {
                    self.leave(at);
                    return Err(late());
                }
            };
            tries += 1;
            let failed = |unknown| Err(Failed { unknown, ..self.failed(at, &status) });
            match meaning(&status) {
                Means::NeedsToken if self.user.is_some() && !authenticated => {
                    self.authenticate(deadline).await?;
                    authenticated = true;
                    continue;
                }
                Means::No | Means::NeedsToken => return failed(false),
                Means::Unknown if !repeatable => {
                    self.leave(at);
                    return failed(true);
                }
                Means::Unknown | Means::NotSent => self.leave(at),
            }
            if Instant::now() + PAUSE >= deadline {
                return failed(false);
            }
            // Everyone once, then slowly.
            if tries % self.channels.len() == 0 {
                sleep(PAUSE).await;
            }
        }
    }

    async fn once<Q, A>(&self, at: usize, path: &'static str, ask: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        if let Some(line) = &self.lines[at] {
            let token = self.token.read().clone();
            return line.call(path, &ask, token).await;
        }
        let mut grpc = self.grpc(at).await?;
        let path = PathAndQuery::from_static(path);
        let answer = grpc.unary(self.request(ask), path, ProstCodec::<Q, A>::default()).await?;
        Ok(answer.into_inner())
    }

    async fn stream<Q, A>(
        &self,
        at: usize,
        path: &'static str,
        asks: impl stream::Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = self.grpc(at).await?;
        let path = PathAndQuery::from_static(path);
        let codec = ProstCodec::<Q, A>::default();
        Ok(grpc.streaming(self.request(asks), path, codec).await?.into_inner())
    }

    async fn grpc(&self, at: usize) -> Result<Grpc<Channel>, Status> {
        let channel = self.channels[at].clone();
        let mut grpc = Grpc::new(channel).max_decoding_message_size(ANSWER_BYTES);
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        Ok(grpc)
    }

    fn request<Q>(&self, ask: Q) -> Request<Q> {
        let mut request = Request::new(ask);
        // A member that has lost the others says so at once.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = &*self.token.read() {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    async fn bounded<T>(
        &self,
        at: usize,
        deadline: Instant,
        work: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Failed> {
        let status = match timeout_at(deadline, work).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(status)) => status,
            Err(_) => {
                self.leave(at);
                return Err(late());
            }
        };
        match meaning(&status) {
            Means::NeedsToken if self.user.is_some() => self.authenticate(deadline).await?,
            Means::NotSent | Means::Unknown => self.leave(at),
            Means::NeedsToken | Means::No => {}
        }
        Err(self.failed(at, &status))
    }

    async fn authenticate(&self, deadline: Instant) -> Result<(), Failed> {
        let Some((name, password)) = self.user.clone() else { return Ok(()) };
        let ask = AuthenticateRequest { name, password };
        loop {
            let at = self.at.load(Ordering::Relaxed);
            let asking = self.once(at, "/etcdserverpb.Auth/Authenticate", ask.clone());
            let answer: Result<AuthenticateResponse, Status> =
                timeout_at(deadline, asking).await.map_err(|_| late())?;
            let status = match answer {
                Ok(answer) => {
                    let token = answer.token.parse();
                    *self.token.write() =
                        Some(token.map_err(|_| refused("a token that is no text"))?);
                    return Ok(());
                }
                Err(status) => status,
            };
            self.leave(at);
            if matches!(meaning(&status), Means::No | Means::NeedsToken)
                || Instant::now() + PAUSE >= deadline
            {
                return Err(self.failed(at, &status));
            }
            sleep(PAUSE).await;
        }
    }

    /// With where nobody was reached.
    fn failed(&self, at: usize, status: &Status) -> Failed {
        let failed = failed(status);
        match meaning(status) {
            Means::NotSent | Means::Unknown => {
                let member = &self.endpoints[at];
                let member = member.split_once("://").map_or(&**member, |(_, address)| address);
                Failed { text: format!("etcd at {member}: {}", text(status)), ..failed }
            }
            Means::No | Means::NeedsToken => failed,
        }
    }

    /// The next one, unless another task has gone on already.
    fn leave(&self, at: usize) {
        if let Some(line) = &self.lines[at] {
            line.forget();
        }
        let next = (at + 1) % self.channels.len();
        let _ = self.at.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

fn channel(endpoint: &str, tls: Option<&Tls>) -> Result<Channel, String> {
    let text = |error: tonic::transport::Error| format!("{endpoint}: {error}");
    let mut member = Endpoint::from_shared(endpoint.to_string()).map_err(text)?;
    if let Some(tls) = tls {
        let read = |path: &String| std::fs::read(path).map_err(|error| format!("{path}: {error}"));
        let mut config = ClientTlsConfig::new();
        config = match &tls.ca {
            Some(path) => config.ca_certificate(Certificate::from_pem(read(path)?)),
            None => config.with_native_roots(),
        };
        if let (Some(cert), Some(key)) = (&tls.cert, &tls.key) {
            config = config.identity(Identity::from_pem(read(cert)?, read(key)?));
        }
        member = member.tls_config(config).map_err(text)?;
    }
    // Only while something is under way, which the watch always is: etcd ends connections that
    // ping without.
    let member = member
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(PING)
        .keep_alive_timeout(CALL)
        .keep_alive_while_idle(false);
    Ok(member.connect_lazy())
}

fn meaning(status: &Status) -> Means {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() || error.is::<NotSent>() {
            return Means::NotSent;
        }
        source = error.source();
    }
    match status.code() {
        Code::Unauthenticated => Means::NeedsToken,
        Code::InvalidArgument
        | Code::FailedPrecondition
        | Code::NotFound
        | Code::PermissionDenied
        | Code::OutOfRange
        | Code::Unimplemented => Means::No,
        // Said by etcd it was refused; said by our side, an answer was too large.
        Code::ResourceExhausted if status.message().starts_with("etcdserver") => Means::No,
        // Before anything was begun.
        Code::Unavailable if status.message() == "etcdserver: no leader" => Means::NotSent,
        _ => Means::Unknown,
    }
}

fn failed(status: &Status) -> Failed {
    let meaning = meaning(status);
    Failed {
        text: format!("etcd: {}", text(status)),
        unknown: matches!(meaning, Means::Unknown),
        no_lease: status.code() == Code::NotFound && status.message().contains("lease not found"),
        unreachable: matches!(meaning, Means::NotSent | Means::Unknown),
    }
}

/// With what is behind it: "transport error" alone helps nobody.
fn text(status: &Status) -> String {
    let mut text = status.message().to_string();
    let mut source = status.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

fn late() -> Failed {
    let text = format!("etcd: no answer within {} s", CALL.as_secs());
    Failed { text, unknown: true, no_lease: false, unreachable: true }
}

pub(super) fn refused(text: impl Into<String>) -> Failed {
    let text = format!("etcd: {}", text.into());
    Failed { text, unknown: false, no_lease: false, unreachable: false }
}
