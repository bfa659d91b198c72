//! `keylatch cluster`: who is in a cluster, and who leads it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use keylatch_server::TlsFiles;
use keylatch_server::cluster::{MemberStatus, Role, Status, Visit};
use serde_json::{Value, json};

use crate::place::Form;
use crate::table;

const EXAMPLES: &str = "\
Examples:
  keylatch serve --data one --peer 127.0.0.1:5627
  keylatch serve --data two --peer 127.0.0.1:5628 --join 127.0.0.1:5627 --resp 127.0.0.1:5635 ..
  keylatch cluster status
  keylatch cluster transfer 14103559218746237412
  keylatch cluster remove 14103559218746237412

A server that is started with --peer is a cluster of one; others join it with --join. All members are
asked at their peer address, and any of them will do. docs/operations.md walks through it.";

/// Who is in a cluster, and who leads it.
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
    /// Take a member out, also one that is gone for good.
    Remove(Named),
    /// Have another member lead.
    Transfer(Named),
}

#[derive(Args, Debug)]
struct Named {
    /// Its number, as `status` shows it.
    node: u64,
    #[command(flatten)]
    options: Options,
}

impl Cluster {
    pub(crate) fn is_json(&self) -> bool {
        let options = match &self.command {
            Command::Status(options) => options,
            Command::Remove(named) | Command::Transfer(named) => &named.options,
        };
        options.form.is_json()
    }

    pub(crate) fn run(&self) -> Result<ExitCode> {
        match &self.command {
            Command::Status(options) => {
                let status = options.visit()?.status()?;
                options.form.print(&as_json(&status), as_text(&status))?;
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
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Voter => "voter",
        Role::Learner => "learner",
    }
}

/// Numbers of nodes as text: they are larger than what JSON readers take for whole numbers.
fn as_json(status: &Status) -> Value {
    let members = status.members.iter().map(|member| {
        json!({
            "node": member.node.to_string(),
            "peer": member.address,
            "role": role(member.role),
            "leads": status.leader == Some(member.node),
            "matched": member.matched,
        })
    });
    json!({
        "cluster": format!("{:032x}", status.cluster),
        "node": status.node.to_string(),
        "leader": status.leader.map(|leader| leader.to_string()),
        "term": status.term,
        "applied": status.applied,
        "members": members.collect::<Vec<_>>(),
    })
}

fn as_text(status: &Status) -> String {
    let row = |member: &MemberStatus| {
        let leads = status.leader == Some(member.node);
        let asked = if member.node == status.node { "asked" } else { "" };
        [
            member.node.to_string(),
            member.address.clone(),
            if leads { "leader" } else { role(member.role) }.into(),
            member.matched.map_or_else(String::new, |matched| matched.to_string()),
            asked.into(),
        ]
    };
    let rows: Vec<[String; 5]> = status.members.iter().map(row).collect();
    let members = table::lay_out(&["NODE", "PEER", "ROLE", "LOG", ""], &rows);
    let nobody = match status.leader {
        Some(_) => "",
        None => "\nnobody leads: is a majority of them running?",
    };
    format!("cluster {:032x}, term {}\n{members}{nobody}", status.cluster, status.term)
}
