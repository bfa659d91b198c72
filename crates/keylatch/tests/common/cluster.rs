//! Three members of a cluster in this process.
#![allow(dead_code)] // every test file uses some of it

use std::path::Path;

use keylatch::cluster::{Builder, Node, Role};
use tempfile::TempDir;

use super::{HANG, eventually};

pub(crate) struct Three {
    /// The first one began the cluster; the others have joined it.
    pub(crate) nodes: Vec<Node>,
    pub(crate) dirs: Vec<TempDir>,
}

/// Files that are made in no time, also by three at once; and a busy machine may need several elections for one.
pub(crate) fn small(dir: &Path) -> Builder {
    Node::builder(dir).listen("127.0.0.1:0").segment_bytes(1 << 20).leader_wait(HANG / 8)
}

impl Three {
    pub(crate) async fn start() -> Three {
        let dirs: Vec<TempDir> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let mut nodes = vec![small(dirs[0].path()).start().await.unwrap()];
        for dir in &dirs[1..] {
            let join = [nodes[0].peer_address()];
            nodes.push(small(dir.path()).join(join).start().await.unwrap());
        }
        for node in &nodes {
            until_voters(node, 3).await;
        }
        Three { nodes, dirs }
    }

    pub(crate) async fn stop(self) {
        for node in self.nodes {
            node.stop().await.unwrap();
        }
    }
}

pub(crate) async fn until_voters(node: &Node, count: usize) {
    eventually(async || {
        let Ok(status) = node.status().await else { return false };
        status.members.iter().filter(|member| member.role == Role::Voter).count() == count
    })
    .await;
}
