//! `keylatch cluster`: who is in a cluster, who leads it, and backups of it.

mod backup;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use keylatch_server::TlsFiles;
use keylatch_server::cluster::{MemberStatus, Status, Visit};
use serde_json::json;

use crate::place::Form;
use crate::table;

const EXAMPLES: &str = "\
Examples:
  keylatch serve --data one --peer 127.0.0.1:5627
  keylatch serve --data two --peer 127.0.0.1:5628 --join 127.0.0.1:5627 --resp 127.0.0.1:5635 ..
  keylatch cluster status
  keylatch cluster add 10.0.0.4:5627 --peer 10.0.0.1:5627
  keylatch cluster transfer 14103559218746237412
  keylatch cluster remove 14103559218746237412
  keylatch cluster snapshot locks.backup
  keylatch cluster restore locks.backup --data new

A server that is started with --peer is a cluster of one; others join it with --join. All members are
asked at their peer address, and any of them will do. docs/operations.md walks through it.";

/// Who is in a cluster, who leads it, and backups of it.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Cluster {
    #[command(subcommand)]
    command: Command,
}

#[derive(Args, Debug)]
struct Options {
    /// The peer address of any member; of those that meet at a Redis, its URL with the name of one (&node=NAME).
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "KEYLATCH_PEER",
        hide_env_values = true,
        default_value = "127.0.0.1:5627"
    )]
    peer: String,
    #[command(flatten)]
    tls: PeerTls,
    #[command(flatten)]
    form: Form,
}

/// How members of a cluster know each other.
#[derive(Args, Debug)]
pub(crate) struct PeerTls {
    /// The certificate that is shown to members of the cluster (PEM, with its chain).
    #[arg(long, value_name = "FILE", env = "KEYLATCH_PEER_TLS_CERT")]
    peer_tls_cert: Option<PathBuf>,
    /// Its key (PEM).
    #[arg(long, value_name = "FILE", env = "KEYLATCH_PEER_TLS_KEY")]
    peer_tls_key: Option<PathBuf>,
    /// Who signs the certificates of members (PEM).
    #[arg(long, value_name = "FILE", env = "KEYLATCH_PEER_TLS_CA")]
    peer_tls_ca: Option<PathBuf>,
}

/// The same of a configuration file.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PeerTlsFile {
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    ca: Option<PathBuf>,
}

impl PeerTls {
    pub(crate) fn files(&self, file: &PeerTlsFile) -> Result<Option<TlsFiles>> {
        let first = |one: &Option<PathBuf>, other: &Option<PathBuf>| one.clone().or(other.clone());
        let certificate = first(&self.peer_tls_cert, &file.cert);
        let key = first(&self.peer_tls_key, &file.key);
        let client_ca = first(&self.peer_tls_ca, &file.ca);
        match (certificate, key, client_ca) {
            (None, None, None) => Ok(None),
            (Some(certificate), Some(key), client_ca @ Some(_)) => {
                let require_client_certificate = true;
                Ok(Some(TlsFiles { certificate, key, client_ca, require_client_certificate }))
            }
            _ => {
                bail!("members need --peer-tls-cert, --peer-tls-key and --peer-tls-ca: all of them")
            }
        }
    }
}

impl Options {
    fn visit(&self) -> Result<Visit> {
        let tls = self.tls.files(&PeerTlsFile::default())?;
        Ok(Visit { peer: self.peer.clone(), tls })
    }
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Show all members, as one of them sees them.
    Status(Options),
    Add(Add),
    /// Take a member out, also one that is gone for good.
    Remove(Named),
    /// Have another member lead.
    Transfer(Named),
    Snapshot(backup::Snapshot),
    Restore(backup::Restore),
    Init(backup::Init),
}

#[derive(Args, Debug)]
struct Named {
    /// Its number, as `status` shows it.
    #[arg(value_parser = number)]
    node: u64,
    #[command(flatten)]
    options: Options,
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        "a member is named by its number, the first column of `keylatch cluster status`".to_owned()
    })
}

/// Have a node join that was started with `--join wait`.
#[derive(Args, Debug)]
struct Add {
    /// Its peer address.
    #[arg(value_name = "HOST:PORT")]
    address: String,
    #[command(flatten)]
    options: Options,
}

impl Cluster {
    pub(crate) fn is_json(&self) -> bool {
        let form = match &self.command {
            Command::Status(options) => &options.form,
            Command::Add(add) => &add.options.form,
            Command::Remove(named) | Command::Transfer(named) => &named.options.form,
            Command::Snapshot(snapshot) => &snapshot.options.form,
            Command::Restore(backup::Restore { data, .. })
            | Command::Init(backup::Init { data }) => &data.form,
        };
        form.is_json()
    }

    pub(crate) fn run(&self) -> Result<ExitCode> {
        match &self.command {
            Command::Status(options) => {
                let status = options.visit()?.status()?;
                options.form.print(&status.to_json(), as_text(&status))?;
            }
            Command::Add(Add { address, options }) => {
                let node = options.visit()?.add(address)?;
                let text = format!("{address} is a member: {node}");
                options.form.print(&json!({ "added": node.to_string(), "peer": address }), text)?;
            }
            Command::Remove(Named { node, options }) => {
                options.visit()?.remove(*node)?;
                let text = format!("{node} is no member any more");
                options.form.print(&json!({ "removed": node.to_string() }), text)?;
            }
            Command::Transfer(Named { node, options }) => {
                options.visit()?.transfer(*node)?;
                options
                    .form
                    .print(&json!({ "leader": node.to_string() }), format!("{node} leads"))?;
            }
            Command::Snapshot(snapshot) => snapshot.run()?,
            Command::Restore(restore) => restore.run()?,
            Command::Init(init) => init.run()?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn as_text(status: &Status) -> String {
    let row = |member: &MemberStatus| {
        let leads = status.leader == Some(member.node);
        let asked = if member.node == status.node { "asked" } else { "" };
        let heard = member.heard_ms.filter(|_| member.node != status.node);
        [
            member.node.to_string(),
            member.address.clone(),
            if leads { "leader" } else { member.role.word() }.into(),
            member.matched.map_or_else(String::new, |matched| matched.to_string()),
            heard.map_or_else(String::new, |ms| format!("{} ago", seconds(ms))),
            asked.into(),
        ]
    };
    let rows: Vec<[String; 6]> = status.members.iter().map(row).collect();
    let members = table::lay_out(&["NODE", "PEER", "ROLE", "LOG", "HEARD", ""], &rows);
    let Status { cluster, node, term, last_log, applied, .. } = status;
    let state = status.state.word();
    let asked = format!("{node} is asked: {state}, log {last_log}, applied {applied}");
    let leader = match (status.leader, status.heard_ms) {
        _ if !status.majority => {
            "it leads, but no majority of the members answers it: nothing is granted".into()
        }
        (Some(_), Some(ms)) => format!("the leader was heard {} ago", seconds(ms)),
        (Some(leader), None) if leader == *node => "it leads".into(),
        (Some(_), None) => "the leader was not heard yet".into(),
        (None, Some(ms)) => format!(
            "NO LEADER: the last one was heard {} ago, and what is shown is from then. Is a majority running?",
            seconds(ms)
        ),
        (None, None) => "NO LEADER was heard since it was started. Is a majority running?".into(),
    };
    format!("cluster {cluster:032x}, term {term}\n{members}\n{asked}; {leader}")
}

fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1_000, ms % 1_000 / 100)
}
