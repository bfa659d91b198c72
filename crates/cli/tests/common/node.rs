//! Members of a cluster, each a process, and the commands of an operator.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use keylatch_server::TlsFiles;
use keylatch_server::cluster::{Role, Status, Visit};
use keylatch_wire::Value;
use serde_json::Value as Json;

use super::{HANG, Server, Start};

pub(crate) fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(since.elapsed() < HANG, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How a member is started.
pub(crate) fn member(
    dir: &Path,
    peer: SocketAddr,
    join: Option<SocketAddr>,
    leader_wait_ms: u64,
) -> Start {
    let mut start = Start::in_dir(dir).config(&format!("peer = '{peer}'"));
    if let Some(join) = join {
        start = start.config(&format!("join = ['{join}']"));
    }
    // Files that are made in no time, also by three at once.
    let sizes = "[log]\nsegment_bytes = 1048576\nreserve_bytes = 65536";
    start.config(&format!("leader_wait_ms = {leader_wait_ms}")).config(sizes)
}

/// A member that runs.
pub(crate) struct Node {
    pub(crate) peer: SocketAddr,
    pub(crate) server: Server,
    /// What it shows to other members, and they to it.
    pub(crate) tls: Option<TlsFiles>,
}

impl Node {
    pub(crate) fn start(dir: &Path, join: Option<SocketAddr>) -> Node {
        let peer = super::free();
        Node { peer, server: member(dir, peer, join, 500).start(), tls: None }
    }

    pub(crate) fn status(&self) -> Option<Status> {
        Visit { peer: self.peer.to_string(), tls: self.tls.clone() }.status().ok()
    }

    pub(crate) fn until_voters(&self, count: usize) {
        eventually("voters", || {
            let members = self.status()?.members;
            let voters = members.iter().filter(|member| member.role == Role::Voter).count();
            (voters == count && members.len() == count).then_some(())
        });
    }

    /// Asks again what met no leader, as clients do.
    pub(crate) fn insist(&self, line: &str) -> Value {
        eventually(line, || match self.server.client().ask(line)? {
            Value::Error(error) if error.starts_with("NOLEADER") => None,
            answer => Some(answer),
        })
    }

    /// How many lines such a list has.
    pub(crate) fn count(&self, words: &str) -> usize {
        match self.insist(&format!("LOCKS {words}")) {
            Value::Array(all) => all.len(),
            other => panic!("not a list: {other:?}"),
        }
    }
}

/// What a command of `keylatch cluster` says that succeeds, as JSON.
pub(crate) fn said(words: &[&str], tls: Option<&TlsFiles>) -> Json {
    let (ok, said) = cluster(&[words, &["-o", "json"]].concat(), tls);
    assert!(ok, "{words:?}: {said}");
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// What one says that fails.
pub(crate) fn refused(words: &[&str], tls: Option<&TlsFiles>) -> String {
    let (ok, said) = cluster(words, tls);
    assert!(!ok, "{words:?}: {said}");
    said
}

fn cluster(words: &[&str], tls: Option<&TlsFiles>) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keylatch"));
    command.arg("cluster").args(words);
    if let Some(TlsFiles { certificate, key, client_ca, .. }) = tls {
        command.arg("--peer-tls-cert").arg(certificate).arg("--peer-tls-key").arg(key);
        command.arg("--peer-tls-ca").arg(client_ca.as_ref().unwrap());
    }
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}
