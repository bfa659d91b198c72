//! Lists of locks, a page at a time: the server refuses an answer that is too long, and a long one keeps others waiting.

use keylatch_table::{Entry, LocksQuery};
use tokio::sync::mpsc;

use super::link::Submitted;
use super::{answer, read, send};
use crate::error::ListError;

/// Requests a page. The server takes so many for a short list, which is answered at once.
const PAGE: usize = 1_000;

/// Everything that is wanted, in the order of arrival. What comes or goes meanwhile may be in it or not.
pub(super) async fn pages(
    submit: mpsc::UnboundedSender<Submitted>,
    mut query: LocksQuery,
) -> Result<Vec<Entry>, ListError> {
    let wanted = if query.limit == 0 { usize::MAX } else { query.limit };
    let (mut entries, mut requests) = (Vec::new(), 0);
    loop {
        query.limit = (wanted - requests).min(PAGE);
        let value = answer(send(&submit, &words(&query))).await?;
        let mut page = read::entries(&value)?;
        // Those of one request stand together.
        let count = page.chunk_by(|one, next| one.seq == next.seq).count();
        let last = page.last().map(|entry| entry.seq);
        entries.append(&mut page);
        requests += count;
        match last {
            Some(seq) if count == query.limit && requests < wanted => query.cursor = seq,
            _ => return Ok(entries),
        }
    }
}

fn words(query: &LocksQuery) -> Vec<String> {
    let mut words = vec!["LOCKS".to_owned()];
    if let Some(name) = &query.name {
        words.extend(["NAME".into(), name.to_string()]);
    }
    if let Some(owner) = &query.owner {
        words.extend(["OWNER".into(), owner.to_string()]);
    }
    if query.waiters {
        words.push("WAITERS".into());
    }
    words.extend(["LIMIT".into(), query.limit.to_string()]);
    if query.cursor > 0 {
        words.extend(["CURSOR".into(), query.cursor.to_string()]);
    }
    words
}
