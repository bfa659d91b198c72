//! Links as TCP connections, mostly inside of TLS: a hello and its answer, then frames, each behind its
//! length in four bytes.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::hello::{self, HELLO_BYTES, WELCOME_BYTES};
use super::tls::Tls;
use super::{Answers, Channel, ChannelError, Connecting, Hello, Link, MOST_BYTES, Refusal, Serves};

/// Links that others may have to us: some four a member, and what comes and goes.
const LINKS: usize = 256;
/// How long a hello may take.
const HELLO: Duration = Duration::from_secs(2);
/// How often it is said that a node was refused.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// A buffer that has grown beyond this for one frame is not kept.
const KEEP: usize = 256 * 1024;

pub(crate) struct Tcp {
    /// Both show a certificate, or none does.
    pub(crate) tls: Option<Arc<Tls>>,
}

/// Where TCP connections come in.
pub(crate) struct Listener {
    pub(crate) listener: std::net::TcpListener,
    pub(crate) tls: Option<Arc<Tls>>,
}

struct TcpLink {
    stream: Buffered,
    out: Vec<u8>,
}

/// A TCP connection, or TLS on one.
trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

/// Most frames are read with one call of the system.
type Buffered = BufReader<Box<dyn Stream>>;

impl Channel for Tcp {
    fn connect<'a>(&'a self, address: &'a str, hello: Hello) -> Connecting<'a> {
        Box::pin(async move {
            let mut there = false;
            let connecting = async {
                let stream = TcpStream::connect(address).await?;
                there = true;
                stream.set_nodelay(true)?;
                let mut stream: Box<dyn Stream> = match &self.tls {
                    None => Box::new(stream),
                    Some(tls) => Box::new(tls.connect(address, stream).await?),
                };
                stream.write_all(&hello.to_bytes()).await?;
                stream.flush().await?;
                let mut answer = [0; WELCOME_BYTES];
                stream.read_exact(&mut answer).await?;
                Ok::<_, io::Error>((stream, answer))
            };
            let (stream, answer) =
                tokio::time::timeout(HELLO, connecting).await.map_err(|_| too_late(there))??;
            let welcome = hello::answer_from_bytes(&answer)?;
            let link: Box<dyn Link> =
                Box::new(TcpLink { stream: BufReader::new(stream), out: Vec::new() });
            Ok((link, welcome))
        })
    }
}

/// Whether it is far away or somebody else, only whoever looks there knows.
fn too_late(there: bool) -> io::Error {
    let text = if there {
        "something is there, and does not answer as a member"
    } else {
        "nothing answers there"
    };
    io::Error::new(io::ErrorKind::TimedOut, text)
}

impl Link for TcpLink {
    fn call<'a>(&'a mut self, request: &'a [u8]) -> BoxFuture<'a, Result<Vec<u8>, ChannelError>> {
        Box::pin(async move {
            write_frame(&mut self.stream, request, &mut self.out).await?;
            Ok(read_frame(&mut self.stream).await?)
        })
    }
}

impl Serves for Listener {
    fn serve(self: Box<Self>, answers: Arc<dyn Answers>) -> io::Result<BoxFuture<'static, ()>> {
        self.listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(self.listener)?;
        Ok(Box::pin(accept(listener, self.tls, answers)))
    }
}

/// Answers everyone who comes, until it is dropped.
pub(crate) async fn accept(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    answers: Arc<dyn Answers>,
) {
    let links = Arc::new(Semaphore::new(LINKS));
    // Dropped with this, and with it the links.
    let mut attended = JoinSet::new();
    let refused = Arc::new(Refused::default());
    loop {
        while attended.try_join_next().is_some() {}
        let stream = match listener.accept().await {
            Ok((stream, _)) => {
                drop(stream.set_nodelay(true));
                stream
            }
            Err(error) => {
                tracing::warn!(%error, "a link of a member could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (answers, place) = (Arc::clone(&answers), Arc::clone(&links).try_acquire_owned());
        let (tls, refused) = (tls.clone(), Arc::clone(&refused));
        attended.spawn(async move {
            let ended = match (place, tls) {
                // There is no room even for finding out who it is.
                (Err(_), _) => Ok(()),
                (Ok(_place), None) => attend(Box::new(stream), answers, &refused).await,
                (Ok(_place), Some(tls)) => match tls.accept(stream).await {
                    Ok(stream) => attend(Box::new(stream), answers, &refused).await,
                    Err(error) => {
                        tracing::warn!(%error, "somebody came to the peer address who is no member");
                        Ok(())
                    }
                },
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a link of a member has ended");
            }
        });
    }
}

async fn refuse(mut stream: Box<dyn Stream>, refusal: Refusal) -> io::Result<()> {
    stream.write_all(&hello::answer_to_bytes(Err(refusal))).await?;
    stream.flush().await
}

/// When it was last said that somebody was refused: a member that looks for another one in vain comes all the
/// time.
#[derive(Default)]
struct Refused(Mutex<BTreeMap<u64, Instant>>);

impl Refused {
    /// Whether it is time to say it of this node.
    fn is_due(&self, from: u64) -> bool {
        let mut said = self.0.lock();
        said.retain(|_, at| at.elapsed() < SAY_EVERY);
        let due = !said.contains_key(&from) && said.len() < LINKS;
        if due {
            said.insert(from, Instant::now());
        }
        due
    }
}

async fn attend(
    mut stream: Box<dyn Stream>,
    answers: Arc<dyn Answers>,
    refused: &Refused,
) -> io::Result<()> {
    let mut bytes = [0; HELLO_BYTES];
    tokio::time::timeout(HELLO, stream.read_exact(&mut bytes)).await??;
    let hello = match Hello::from_bytes(&bytes) {
        // A stranger is not told what this is.
        Err(Refusal::Stranger) => return Ok(()),
        Err(refusal) => return refuse(stream, refusal).await,
        Ok(hello) => hello,
    };
    let answer = answers.welcome(&hello);
    stream.write_all(&hello::answer_to_bytes(answer)).await?;
    stream.flush().await?;
    if let Err(refusal) = answer {
        if refused.is_due(hello.from) {
            tracing::warn!(%refusal, from = hello.from, "links are refused: this is what that node is told");
        }
        return Ok(());
    }
    let (mut stream, mut out) = (BufReader::new(stream), Vec::new());
    loop {
        let request = read_frame(&mut stream).await?;
        let reply = Arc::clone(&answers).answer(hello.from, request).await;
        write_frame(&mut stream, &reply, &mut out).await?;
    }
}

/// In one write: two would be two packets.
async fn write_frame(stream: &mut Buffered, frame: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    if frame.len() > MOST_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too long for a frame"));
    }
    out.clear();
    out.extend_from_slice(&(frame.len() as u32).to_le_bytes());
    out.extend_from_slice(frame);
    stream.write_all(out).await?;
    out.shrink_to(KEEP);
    stream.flush().await
}

async fn read_frame(stream: &mut Buffered) -> io::Result<Vec<u8>> {
    let length = stream.read_u32_le().await? as usize;
    if length > MOST_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too long"));
    }
    // Grows with what really comes: a length is a claim.
    let mut frame = Vec::with_capacity(length.min(KEEP));
    let count = stream.take(length as u64).read_to_end(&mut frame).await?;
    if count < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(frame) }
}
