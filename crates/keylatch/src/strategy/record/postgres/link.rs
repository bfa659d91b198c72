//! From a URL to a connection: what is ours in it, and how a server's answers are judged.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_postgres::config::Host;
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Error, Notification, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::store::StoreError;
use super::LIMIT;
use super::pool::Params;
use super::tls::{Check, tls};

/// A connection that says nothing is asked after so long whether it still is one.
const QUIET: Duration = Duration::from_secs(15);
/// PostgreSQL's own.
const PORT: u16 = 5432;
/// How many connections a process has by default; one more listens.
const CONNECTIONS: usize = 6;

/// What the functions of the schema need of a connection. They do it themselves, for each transaction, where they are
/// not told that it is done. Without `enable_seqscan` a plan that cannot do without one looks dear enough to be compiled,
/// which takes far longer than to run it. After a crash there are other connections, so one look for it does. And the C
/// library of many a server gives memory back to the system at the end of every statement and asks for it again in the
/// next, until it has once given back as much as this `repeat` takes.
const SET_UP: &str = "
    SET lock_timeout = '4s';
    SET enable_seqscan = off;
    SET jit = off;
    SET plan_cache_mode = force_generic_plan;
    SET default_transaction_isolation = 'read committed';
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
    SELECT keylatch.after_crash() WHERE NOT EXISTS (SELECT FROM keylatch.since_crash s WHERE s.one);
    SELECT length(repeat(' ', 1000000));
    SET keylatch.is_set_up = 'on'";

/// Where, and how.
pub(super) struct Link {
    config: Config,
    /// Its addresses, for whoever reads that nobody answers there.
    pub(super) at: String,
    tls: MakeRustlsConnect,
    /// How many connections at most.
    pub(super) connections: usize,
    /// Whether to try to be told: it costs a connection, and does not work behind some poolers.
    pub(super) listens: bool,
}

/// One connection.
pub(super) struct Wire {
    pub(super) client: Client,
    /// By their texts, which are few.
    prepared: Vec<(&'static str, Statement)>,
    drives: AbortHandle,
}

impl Wire {
    /// Ends it, whatever is under way.
    pub(super) fn cut(self) {
        self.drives.abort();
    }

    /// The text is always the same for the same types.
    pub(super) async fn query_prepared(
        &mut self,
        text: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, Error> {
        let known = self.prepared.iter().position(|(known, _)| std::ptr::eq(*known, text));
        let known = if let Some(known) = known {
            known
        } else {
            if self.prepared.is_empty() {
                self.client.batch_execute(SET_UP).await?;
            }
            let types: Vec<Type> = params.iter().map(|(_, kind)| kind.clone()).collect();
            self.prepared.push((text, self.client.prepare_typed(text, &types).await?));
            self.prepared.len() - 1
        };
        let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|(value, _)| *value).collect();
        self.client.query(&self.prepared[known].1, &params).await
    }
}

impl Link {
    pub(super) fn new(url: &str) -> Result<Link, String> {
        let (start, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut connections, mut listens) = (CONNECTIONS, true);
        let (mut check, mut roots) = (Check::Nothing, None);
        let mut rest = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("listen", "on") => listens = true,
                ("listen", "off") => listens = false,
                ("listen", other) => return Err(format!("listen={other}: it is on or off")),
                ("connections", text) => match text.parse() {
                    Ok(count @ 1..=1_000) => connections = count,
                    _ => return Err(format!("connections={text}: it is a number from 1 to 1000")),
                },
                ("sslmode", "verify-ca") => check = Check::Signer,
                ("sslmode", "verify-full") => check = Check::Everything,
                ("sslrootcert", path) => roots = Some(decode(path)?),
                _ => rest.push(pair),
            }
        }
        if check != Check::Nothing {
            rest.push("sslmode=require");
        }
        let url = format!("{start}?{}", rest.join("&"));
        let mut config: Config = url.parse().map_err(|error: Error| explained(&error))?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(LIMIT);
        }
        if config.get_application_name().is_none() {
            config.application_name("keylatch");
        }
        config.keepalives_idle(QUIET).tcp_user_timeout(QUIET);
        let tls = tls(check, roots.as_deref())?;
        let at = addresses(&config);
        Ok(Link { config, at, tls, connections, listens })
    }

    /// That there is no connection, why, and where.
    pub(super) fn unreachable(&self, error: &Error) -> String {
        format!("PostgreSQL at {}: {}", self.at, explained(error))
    }

    pub(super) async fn connect(&self) -> Result<Wire, Error> {
        Ok(self.open().await?.0)
    }

    /// A connection, and what it is told.
    pub(super) async fn open(
        &self,
    ) -> Result<(Wire, mpsc::UnboundedReceiver<Notification>), Error> {
        let (client, mut connection) = self.config.connect(self.tls.clone()).await?;
        let (tell, told) = mpsc::unbounded_channel();
        let drives = tokio::spawn(async move {
            while let Some(Ok(message)) =
                std::future::poll_fn(|context| connection.poll_message(context)).await
            {
                if let AsyncMessage::Notification(notification) = message {
                    drop(tell.send(notification));
                }
            }
        });
        Ok((Wire { client, prepared: Vec::new(), drives: drives.abort_handle() }, told))
    }
}

/// One port is for all hosts, and none is the usual one.
fn addresses(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(PORT);
    let named = |(at, host): (usize, &Host)| match host {
        Host::Tcp(host) => format!("{host}:{}", port(at)),
        Host::Unix(path) => format!("{}/.s.PGSQL.{}", path.display(), port(at)),
    };
    let mut addresses: Vec<String> = config.get_hosts().iter().enumerate().map(named).collect();
    if addresses.is_empty() {
        let hosts = config.get_hostaddrs().iter().enumerate();
        addresses.extend(hosts.map(|(at, host)| format!("{host}:{}", port(at))));
    }
    addresses.join(", ")
}

/// Text with `%41` for `A`.
fn decode(text: &str) -> Result<String, String> {
    let wrong = || format!("'{text}' is not a part of a URL");
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).ok_or_else(wrong)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// What went wrong, with its cause: the client's own text has none.
pub(super) fn explained(error: &Error) -> String {
    if let Some(answer) = error.as_db_error() {
        return answer.message().to_string();
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

/// What became of something that was sent. A server that answers with an error has not done it, with these
/// exceptions: a connection that was ended from outside may have been ended after the commit; a
/// pooler answers in the place of a server that it has lost; and a commit that has happened can still be
/// hindered from telling, by a limit or by somebody who cancels it.
pub(super) fn failed(error: &Error) -> StoreError {
    let certain = error.as_db_error().is_some_and(|answer| {
        let code = answer.code();
        let doubtful = ["08", "53", "54", "57", "58", "F0", "XX"];
        answer.parsed_severity() == Some(Severity::Error)
            && !doubtful.iter().any(|class| code.code().starts_with(class))
            && *code != SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN
    });
    StoreError { text: format!("PostgreSQL: {}", explained(error)), unknown: !certain }
}
