//! What is said first on a link, in both directions. The first bytes, up to the version, never change.

/// "KLPEER", so that a stranger is recognized.
const MAGIC: &[u8; 6] = b"KLPEER";
/// The version of everything that is said between members. One that does not know a version says so.
pub(crate) const VERSION: u16 = 1;
/// Bytes of a hello and of its answer.
pub(crate) const HELLO_BYTES: usize = 6 + 2 + 16 + 8 + 8;
pub(crate) const WELCOME_BYTES: usize = 6 + 2 + 1 + 16 + 8;

/// Whoever opens a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The cluster it belongs to; 0 if it belongs to none yet.
    pub(crate) cluster: u128,
    /// Its number; 0 if it has none.
    pub(crate) from: u64,
    /// Whom it wants to talk to; 0 for whoever is there.
    pub(crate) to: u64,
}

/// Whoever was found there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Welcome {
    pub(crate) cluster: u128,
    pub(crate) node: u64,
}

/// Why somebody does not talk to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("whoever is there is no member of a Keylatch cluster")]
    Stranger,
    #[error(
        "it speaks another version of the peer protocol ({0}, not {VERSION}): use the same release"
    )]
    Version(u16),
    #[error("it belongs to another cluster")]
    OtherCluster,
    #[error("another node is there now: the one that was there has lost its data or has moved")]
    OtherNode,
    #[error("it has as many links as it can have")]
    Crowded,
}

impl Hello {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HELLO_BYTES);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.cluster.to_le_bytes());
        out.extend_from_slice(&self.from.to_le_bytes());
        out.extend_from_slice(&self.to.to_le_bytes());
        out
    }

    pub(crate) fn from_bytes(bytes: &[u8; HELLO_BYTES]) -> Result<Hello, Refusal> {
        let rest = version(bytes)?;
        let (cluster, rest) = rest.split_at(16);
        let (from, to) = rest.split_at(8);
        Ok(Hello { cluster: u128_of(cluster), from: u64_of(from), to: u64_of(to) })
    }
}

/// The answer to a hello.
pub(crate) fn answer_to_bytes(answer: Result<Welcome, Refusal>) -> Vec<u8> {
    let mut out = Vec::with_capacity(WELCOME_BYTES);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.push(match answer {
        Ok(_) => 0,
        Err(Refusal::OtherCluster) => 1,
        Err(Refusal::OtherNode) => 2,
        Err(Refusal::Crowded) => 3,
        Err(Refusal::Stranger | Refusal::Version(_)) => 4,
    });
    let Welcome { cluster, node } = answer.unwrap_or(Welcome { cluster: 0, node: 0 });
    out.extend_from_slice(&cluster.to_le_bytes());
    out.extend_from_slice(&node.to_le_bytes());
    out
}

pub(crate) fn answer_from_bytes(bytes: &[u8; WELCOME_BYTES]) -> Result<Welcome, Refusal> {
    let rest = version(bytes)?;
    match rest[0] {
        0 => {
            let (cluster, node) = rest[1..].split_at(16);
            Ok(Welcome { cluster: u128_of(cluster), node: u64_of(node) })
        }
        1 => Err(Refusal::OtherCluster),
        2 => Err(Refusal::OtherNode),
        3 => Err(Refusal::Crowded),
        _ => Err(Refusal::Stranger),
    }
}

/// What is behind the version, if it is ours.
fn version(bytes: &[u8]) -> Result<&[u8], Refusal> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(Refusal::Stranger)?;
    let (version, rest) = rest.split_at(2);
    match u16::from_le_bytes([version[0], version[1]]) {
        VERSION => Ok(rest),
        other => Err(Refusal::Version(other)),
    }
}

fn u64_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

fn u128_of(bytes: &[u8]) -> u128 {
    u128::from_le_bytes(bytes.try_into().expect("sixteen bytes"))
}
