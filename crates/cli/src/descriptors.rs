//! A connection is a file descriptor, and a process may have 1,024 of them unless it asks for more.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What a server opens beside its connections: listeners, log, snapshot, standard streams.
const OTHERS: u64 = 64;

/// Makes room for so many connections, as far as the system allows, and says so if it does not.
pub(crate) fn raise(connections: usize) {
    let wanted = (connections as u64).saturating_add(OTHERS);
    let limit = getrlimit(Resource::Nofile);
    // No limit is `None`.
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= wanted);
    if enough(limit.current) {
        return;
    }
    let granted = if enough(limit.maximum) { Some(wanted) } else { limit.maximum };
    let raised = setrlimit(Resource::Nofile, Rlimit { current: granted, maximum: limit.maximum });
    let current = match raised {
        Ok(()) => granted,
        Err(_) => limit.current,
    };
    if !enough(current) {
        let most = current.unwrap_or(wanted);
        tracing::warn!(
            "{connections} connections need {wanted} file descriptors and the system allows {most}: \
             raise the hard limit (`ulimit -Hn`, `LimitNOFILE=` of systemd) or lower `connections`"
        );
    }
}
