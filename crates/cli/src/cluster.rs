//! `keylatch cluster`: who is in a cluster, and who leads it.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use keylatch_server::cluster::{self, MemberStatus, Role, Status};
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
    /// The peer address of any member.
    #[arg(long, value_name = "HOST:PORT", env = "KEYLATCH_PEER", default_value = "127.0.0.1:5627")]
    peer: String,
    #[command(flatten)]
    form: Form,
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
                let status = Status::of(&options.peer)?;
                options.form.print(&as_json(&status), as_text(&status))?;
            }
            Command::Remove(Named { node, options }) => {
                cluster::remove(&options.peer, *node)?;
                let text = format!("{node} is no member any more");
                options.form.print(&json!({ "removed": node.to_string() }), text)?;
            }
            Command::Transfer(Named { node, options }) => {
                cluster::transfer(&options.peer, *node)?;
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
