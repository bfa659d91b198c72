//! `keylatch serve`.

use std::io::{IsTerminal, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use keylatch_server::{Addresses, Config, RedisPeer, Server, TlsFiles};
use serde::Deserialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::pipe;

use crate::cluster::{PeerTls, PeerTlsFile};
use crate::telemetry::{self, LogFormat};

const EXAMPLES: &str = "\
Examples:
  keylatch serve                     locks survive a crash; the log is in ~/.local/state/keylatch
  keylatch serve --ephemeral         locks are forgotten on restart
  keylatch serve --peer 127.0.0.1:5627                         a cluster of one
  keylatch serve --peer 127.0.0.1:5628 --join 127.0.0.1:5627   one more member
  redis-cli -p 5625 LOCK user:42 WAIT 1000 OWNER ann
  redis-cli -p 5625 LOCKS WAITERS
  curl localhost:5626/v1/locks --json '{\"name\": \"user:42\", \"owner\": \"ann\", \"wait_ms\": 1000}'

A configuration file is TOML, named mostly like the flags (`resp = \"127.0.0.1:5625\"`), with the bounds of
the table under [settings] (`waiters = 10000`) and the sizes of the log's files under [log]
(`segment_bytes`, `reserve_bytes`, `snapshot_bytes`); docs/configuration.md has every key. Flags win
over the environment (KEYLATCH_RESP, ..), which wins over the file.";

/// Run a lock server.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    /// A configuration file (TOML).
    #[arg(long, value_name = "FILE", env = "KEYLATCH_CONFIG")]
    config: Option<PathBuf>,
    /// Where RESP is spoken, or `off`. Port 0 picks a free one. [default: 127.0.0.1:5625]
    #[arg(long, value_name = "HOST:PORT", env = "KEYLATCH_RESP")]
    resp: Option<String>,
    /// Where the enqueue protocol is spoken, or `off`. [default: 127.0.0.1:3721]
    #[arg(long, value_name = "HOST:PORT", env = "KEYLATCH_ENQUEUE")]
    enqueue: Option<String>,
    /// Where HTTP is spoken, or `off`. [default: 127.0.0.1:5626]
    #[arg(long, value_name = "HOST:PORT", env = "KEYLATCH_HTTP")]
    http: Option<String>,
    /// Where the log and its snapshots are. [default: keylatch in the user's state directory]
    #[arg(long, value_name = "DIR", env = "KEYLATCH_DATA")]
    data: Option<PathBuf>,
    /// Where other members of a cluster come in. Port 0 picks a free one. Without it the server is alone. Members
    /// that cannot reach each other meet at a Redis: `redis://USER:PASSWORD@HOST/0?channel=NAME&node=NAME`.
    #[arg(long, value_name = "HOST:PORT", env = "KEYLATCH_PEER", hide_env_values = true)]
    peer: Option<String>,
    /// As what other members know the peer address, if not as it is.
    #[arg(long, value_name = "HOST:PORT", env = "KEYLATCH_PEER_ADDRESS", requires = "peer")]
    peer_address: Option<String>,
    #[command(flatten)]
    peer_tls: PeerTls,
    /// Join the cluster that one of these peer addresses belongs to; `wait` waits until `keylatch cluster add`
    /// names one. A member ignores it, unless it
    /// names another cluster.
    #[arg(long, value_name = "HOST:PORT,..", value_delimiter = ',', env = "KEYLATCH_JOIN")]
    join: Vec<String>,
    /// Keep everything in memory: a restart forgets all locks.
    #[arg(long, conflicts_with = "data")]
    ephemeral: bool,
    /// The certificate for TLS on RESP and HTTP (PEM, with its chain).
    #[arg(long, value_name = "FILE", env = "KEYLATCH_TLS_CERT", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key (PEM).
    #[arg(long, value_name = "FILE", env = "KEYLATCH_TLS_KEY", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Who signs the certificates of clients (PEM); those that show one are known by its name.
    #[arg(long, value_name = "FILE", env = "KEYLATCH_TLS_CLIENT_CA")]
    tls_client_ca: Option<PathBuf>,
    /// Turn away clients without a certificate.
    #[arg(long)]
    tls_require_client_cert: bool,
    /// Who may do what: the file that `keylatch token` writes. Without it everybody may do everything.
    #[arg(long, value_name = "FILE", env = "KEYLATCH_ACCESS")]
    access: Option<PathBuf>,
    /// Append refused access and revocations to this file (JSON lines), instead of logging them.
    #[arg(long, value_name = "FILE", env = "KEYLATCH_AUDIT", requires = "access")]
    audit: Option<PathBuf>,
    /// Listen where other machines can come without TLS or without an access file.
    #[arg(long)]
    insecure: bool,
    /// The same for the enqueue port, which can have neither.
    #[arg(long)]
    enqueue_insecure: bool,
    /// How many connections at once. [default: 16000]
    #[arg(long, value_name = "N", env = "KEYLATCH_CONNECTIONS")]
    connections: Option<usize>,
    /// How the log is written: lines for people, or an object a line.
    #[arg(long, value_name = "FORMAT", env = "KEYLATCH_LOG_FORMAT", default_value = "text")]
    log_format: LogFormat,
    /// Say whether the configuration is valid, its files included, and end. Nothing is bound or written.
    #[arg(long)]
    check: bool,
}

/// What a configuration file may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    resp: Option<String>,
    enqueue: Option<String>,
    http: Option<String>,
    peer: Option<String>,
    peer_address: Option<String>,
    peer_tls: PeerTlsFile,
    join: Vec<String>,
    leader_wait_ms: Option<u64>,
    http_hosts: Vec<String>,
    http_answer_ms: Option<u64>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    tls_client_ca: Option<PathBuf>,
    tls_require_client_cert: bool,
    access: Option<PathBuf>,
    audit: Option<PathBuf>,
    enqueue_principal: Option<String>,
    insecure: bool,
    enqueue_insecure: bool,
    data: Option<PathBuf>,
    ephemeral: Option<bool>,
    connections: Option<usize>,
    frame_bytes: Option<usize>,
    unread_bytes: Option<usize>,
    handshake_ms: Option<u64>,
    incomplete_ms: Option<u64>,
    idle_ms: Option<u64>,
    grace_ms: Option<u64>,
    log: LogFile,
    settings: std::collections::BTreeMap<String, u64>,
}

/// The sizes of the log's files.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LogFile {
    segment_bytes: Option<u64>,
    reserve_bytes: Option<u64>,
    snapshot_bytes: Option<u64>,
}

impl Serve {
    pub(crate) fn run(self) -> Result<()> {
        let config = self.resolve()?;
        Server::check(&config)?;
        telemetry::filter()?;
        if self.check {
            println!("the configuration is valid");
            return Ok(());
        }
        let _traces = telemetry::start(self.log_format)?;
        crate::descriptors::raise(config.connections);
        let signals = Signals::new()?;
        let mut server = Server::bind(config.clone())?;
        signals.heeded_by(&mut server)?;
        say_hello(server.addresses(), &config);
        server.run()?;
        Ok(())
    }

    /// Flags over environment (clap does that) over file over defaults.
    fn resolve(&self) -> Result<Config> {
        let file = match &self.config {
            Some(path) => read_file(path)?,
            None => File::default(),
        };
        if file.ephemeral == Some(true) && file.data.is_some() {
            bail!(
                "the configuration file has both `ephemeral` and `data`: only one of them can be"
            );
        }
        let ephemeral = self.ephemeral || (self.data.is_none() && file.ephemeral == Some(true));
        let data = match (ephemeral, self.data.as_ref().or(file.data.as_ref())) {
            (true, _) => None,
            (false, Some(dir)) => Some(dir.clone()),
            (false, None) => Some(
                keylatch::place::state_dir()
                    .context("there is no home directory: set XDG_STATE_HOME, or say --data DIR")?,
            ),
        };
        let mut config = Config { data, ..Config::default() };
        if let Some(text) = self.resp.as_ref().or(file.resp.as_ref()) {
            config.resp = address("resp", text)?;
        }
        if let Some(text) = self.enqueue.as_ref().or(file.enqueue.as_ref()) {
            config.enqueue = address("enqueue", text)?;
        }
        if let Some(text) = self.http.as_ref().or(file.http.as_ref()) {
            config.http = address("http", text)?;
        }
        if let Some(text) = self.peer.as_ref().or(file.peer.as_ref()) {
            match RedisPeer::is_meant(text) {
                true => config.peer_redis = Some(RedisPeer::parse(text)?),
                false => config.peer = address("peer", text)?,
            }
        }
        config.peer_address = self.peer_address.as_ref().or(file.peer_address.as_ref()).cloned();
        config.peer_tls = self.peer_tls.files(&file.peer_tls)?;
        config.join.clone_from(if self.join.is_empty() { &file.join } else { &self.join });
        config.http_hosts.clone_from(&file.http_hosts);
        self.resolve_security(&file, &mut config)?;
        let set = |to: &mut usize, value: Option<usize>| *to = value.unwrap_or(*to);
        set(&mut config.connections, self.connections.or(file.connections));
        set(&mut config.frame_bytes, file.frame_bytes);
        set(&mut config.unread_bytes, file.unread_bytes);
        let set = |to: &mut Duration, ms: Option<u64>| *to = ms.map_or(*to, Duration::from_millis);
        set(&mut config.http_answer, file.http_answer_ms);
        set(&mut config.handshake, file.handshake_ms);
        set(&mut config.incomplete, file.incomplete_ms);
        set(&mut config.idle, file.idle_ms);
        set(&mut config.grace, file.grace_ms);
        set(&mut config.leader_wait, file.leader_wait_ms);
        let set = |to: &mut u64, value: Option<u64>| *to = value.unwrap_or(*to);
        set(&mut config.log.segment_bytes, file.log.segment_bytes);
        set(&mut config.log.reserve_bytes, file.log.reserve_bytes);
        set(&mut config.log.snapshot_bytes, file.log.snapshot_bytes);
        for (name, value) in &file.settings {
            if !config.settings.set(name, *value) {
                let known = config.settings.entries().map(|(name, _)| name).collect::<Vec<_>>();
                bail!("[settings] has no `{name}`; there are {}", known.join(", "));
            }
        }
        Ok(config)
    }
}

impl Serve {
    fn resolve_security(&self, file: &File, config: &mut Config) -> Result<()> {
        let first = |flag: &Option<PathBuf>, file: &Option<PathBuf>| {
            flag.as_ref().or(file.as_ref()).cloned()
        };
        let certificate = first(&self.tls_cert, &file.tls_cert);
        let key = first(&self.tls_key, &file.tls_key);
        let client_ca = first(&self.tls_client_ca, &file.tls_client_ca);
        let require_client_certificate =
            self.tls_require_client_cert || file.tls_require_client_cert;
        config.tls = match (certificate, key) {
            (Some(certificate), Some(key)) => {
                Some(TlsFiles { certificate, key, client_ca, require_client_certificate })
            }
            (None, None) if client_ca.is_none() && !require_client_certificate => None,
            _ => bail!("TLS needs both a certificate and its key: --tls-cert and --tls-key"),
        };
        config.access = first(&self.access, &file.access);
        config.audit = first(&self.audit, &file.audit);
        if let Some(name) = &file.enqueue_principal {
            config.enqueue_principal.clone_from(name);
        }
        config.insecure = self.insecure || file.insecure;
        config.enqueue_insecure = self.enqueue_insecure || file.enqueue_insecure;
        Ok(())
    }
}

fn read_file(path: &Path) -> Result<File> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text)
        .with_context(|| format!("{} is not a valid configuration", path.display()))
}

fn address(name: &str, text: &str) -> Result<Option<SocketAddr>> {
    if text == "off" {
        return Ok(None);
    }
    let port = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let wrong = || match port {
        true => format!("{name}: the host of '{text}' has no address"),
        false => {
            format!("{name}: '{text}' is neither HOST:PORT, such as 127.0.0.1:5625, nor `off`")
        }
    };
    let address = text.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    Ok(Some(address.with_context(wrong)?))
}

/// Signals, from the moment on when they do not simply end the process.
struct Signals {
    hears: UnixStream,
    tells: UnixStream,
    ends: Arc<AtomicBool>,
    reloads: Arc<AtomicBool>,
}

impl Signals {
    /// SIGHUP has certificates and the access file read again, now or once the server runs. To one whose terminal is closed
    /// it means the end, as the others do.
    fn new() -> Result<Signals> {
        let (hears, tells) = UnixStream::pair()?;
        let signals = Signals { hears, tells, ends: Arc::default(), reloads: Arc::default() };
        if !std::io::stdin().is_terminal() {
            flag::register(SIGHUP, Arc::clone(&signals.reloads))?;
            pipe::register(SIGHUP, signals.tells.try_clone()?)?;
        }
        Ok(signals)
    }

    /// A signal to end finishes what has been asked for, a second one ends at once. Until now a first one did: a start may wait
    /// for long, and has nothing to finish.
    fn heeded_by(self, server: &mut Server) -> Result<()> {
        let Signals { hears, tells, ends, reloads } = self;
        let hangup = std::io::stdin().is_terminal().then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
            // What is registered first is done first: this is for the second signal, even if nobody listens any more.
            flag::register_conditional_shutdown(signal, 130, Arc::clone(&ends))?;
            flag::register(signal, Arc::clone(&ends))?;
            pipe::register(signal, tells.try_clone()?)?;
        }
        let (stop, mut told) = (server.stopper(), false);
        server.heed(hears, move || {
            if reloads.swap(false, Ordering::SeqCst) {
                stop.reload();
            }
            if ends.load(Ordering::SeqCst) && !std::mem::replace(&mut told, true) {
                stop.stop();
                // Whoever read this may have gone; that is no reason not to stop.
                let text = "stopping: finishing what has been asked for; again to stop at once\n";
                drop(std::io::stderr().write_all(text.as_bytes()));
            }
        })?;
        Ok(())
    }
}

/// In one piece, so that whoever reads the addresses may stop reading then.
fn say_hello(addresses: Addresses, config: &Config) {
    let listener = |name, address: Option<SocketAddr>| match address {
        Some(address) => format!("{name} on {address}"),
        None => format!("{name} is off"),
    };
    let kept = match &config.data {
        Some(dir) => format!("data in {}: locks survive a crash", dir.display()),
        None => "locks are in memory only: a restart forgets them".into(),
    };
    let resp = listener("RESP", addresses.resp);
    let enqueue = listener("enqueue", addresses.enqueue);
    let http = listener("HTTP", addresses.http);
    let who = match (&config.access, config.insecure) {
        (Some(file), _) => format!("who may do what is in {}", file.display()),
        (None, false) => {
            "not protected: every process on this machine may take, release and list locks".into()
        }
        (None, true) => {
            "NOT PROTECTED: everyone who can reach it may take, release and list locks".into()
        }
    };
    let how = match (&config.tls, &config.access) {
        (Some(_), _) => "\n  TLS on RESP and HTTP",
        (None, Some(_)) if config.insecure => "\n  NO TLS: tokens can be read on the way",
        (None, _) => "",
    };
    let open = format!("{who}{how}");
    let kept = match addresses.peer {
        Some(address) => format!("member of a cluster, peers on {address}\n  {kept}"),
        None => match &config.peer_redis {
            Some(redis) => format!("member of a cluster, peers meet at {redis}\n  {kept}"),
            None => kept,
        },
    };
    let version = env!("CARGO_PKG_VERSION");
    let text = format!(
        "keylatch {version} is ready\n  {resp}\n  {enqueue}\n  {http}\n  {kept}\n  {open}\n"
    );
    // A server without a reader is a server all the same.
    drop(std::io::stdout().write_all(text.as_bytes()));
}
