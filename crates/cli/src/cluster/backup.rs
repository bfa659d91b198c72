//! Backups of a cluster, and new clusters: `snapshot`, `restore`, `init`. The last two write a data directory and
//! ask nobody.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use keylatch_server::cluster::{self, Backup, Founded};
use serde_json::{Value, json};

use super::Options;
use crate::place::Form;

const SNAPSHOT: &str = "\
Examples:
  keylatch cluster snapshot locks.backup                         of the cluster, by any member
  keylatch cluster snapshot locks.backup --from-data two         of a member that is stopped

It has everything that was acknowledged before. Whoever can read it can release the locks in it.";

const RESTORE: &str = "\
Example:
  keylatch cluster restore locks.backup --data new
  keylatch serve --data new --peer 127.0.0.1:5627

It is a new cluster of one, which others join. Members of the cluster that the backup is of cannot come into it:
stop them, or two clusters grant the same locks. Locks that were taken since the backup are lost, those that were
released since are held until their leases end, and tokens go on growing.";

/// Write a backup of a running cluster, or of a stopped member.
#[derive(Args, Debug)]
#[command(after_help = SNAPSHOT)]
pub(super) struct Snapshot {
    /// The file to write. One that is there is replaced once the new one is whole.
    file: PathBuf,
    /// The data directory of a member, or of a server that is alone, which is stopped.
    #[arg(long, value_name = "DIR")]
    from_data: Option<PathBuf>,
    #[command(flatten)]
    pub(super) options: Options,
}

/// Make a new cluster of a backup.
#[derive(Args, Debug)]
#[command(after_help = RESTORE)]
pub(super) struct Restore {
    /// The backup.
    file: PathBuf,
    #[command(flatten)]
    pub(super) data: Data,
}

/// Make a new cluster without locks.
#[derive(Args, Debug)]
pub(super) struct Init {
    #[command(flatten)]
    pub(super) data: Data,
}

#[derive(Args, Debug)]
pub(super) struct Data {
    /// The data directory of its first node: one that is empty, or not there yet.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    #[command(flatten)]
    pub(super) form: Form,
}

impl Snapshot {
    pub(super) fn run(&self) -> Result<()> {
        let backup = match &self.from_data {
            Some(dir) => cluster::back_up_data(dir, &self.file)?,
            None => self.options.visit()?.snapshot(&self.file)?,
        };
        let text = format!("{}: {}", self.file.display(), as_text(&backup));
        Ok(self.options.form.print(&as_json(&backup), text)?)
    }
}

impl Restore {
    pub(super) fn run(&self) -> Result<()> {
        let (backup, founded) = cluster::restore(&self.file, &self.data.data)?;
        let mut json = founded_json(&founded);
        json["backup"] = as_json(&backup);
        let text = format!(
            "{} is restored: {}\n{}",
            self.file.display(),
            as_text(&backup),
            self.data.founded(&founded)
        );
        Ok(self.data.form.print(&json, text)?)
    }
}

impl Init {
    pub(super) fn run(&self) -> Result<()> {
        let founded = cluster::init(&self.data.data)?;
        Ok(self.data.form.print(&founded_json(&founded), self.data.founded(&founded))?)
    }
}

impl Data {
    fn founded(&self, founded: &Founded) -> String {
        let Founded { cluster, node, token } = founded;
        let dir = self.data.display();
        format!(
            "a new cluster {cluster:032x} of node {node}, with tokens above {token}. Start it:\n  \
             keylatch serve --data {dir} --peer HOST:PORT"
        )
    }
}

fn as_text(backup: &Backup) -> String {
    let Backup { cluster, node, term, index, bytes, held, waiting, tasks, .. } = backup;
    let of = match cluster {
        0 => "a server that is alone".to_owned(),
        _ => format!("cluster {cluster:032x}, node {node}"),
    };
    format!(
        "{of}, up to entry {index} of term {term}; {held} held, {waiting} waiting, {tasks} tasks, {bytes} bytes"
    )
}

fn as_json(backup: &Backup) -> Value {
    json!({
        "cluster": format!("{:032x}", backup.cluster),
        "node": backup.node.to_string(),
        "made_ms": backup.made_ms,
        "term": backup.term,
        "index": backup.index,
        "bytes": backup.bytes,
        "token": backup.token,
        "held": backup.held,
        "waiting": backup.waiting,
        "tasks": backup.tasks,
    })
}

fn founded_json(founded: &Founded) -> Value {
    json!({
        "cluster": format!("{:032x}", founded.cluster),
        "node": founded.node.to_string(),
        "token": founded.token,
    })
}
